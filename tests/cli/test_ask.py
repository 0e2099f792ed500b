"""The commands predict, score, classify, calibrate and evaluate print what the library returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import harmonium
from harmonium.answers.calibration.hidden_facts import find_hidden
from harmonium.config.settings import Config, ModelConfig
from harmonium.model.build import build_model
from harmonium.run.run import History, Run
from small import make_graph, untrained


def test_predict_prints_a_table_or_json(call, run: Path) -> None:
    query = ["predict", run, "--head", "person 7", "--relation", "next", "--top", 3]
    answers = harmonium.predict(run, head="person 7", relation="next", top=3)
    table = call(*query)
    assert table.out.startswith("(person 7, next, ?)")
    for answer in answers:
        fact = f"known ({answer.known})" if answer.known else "new"
        assert f"{answer.rank:g} {answer.name} {answer.score:.3f} {fact}" in table.words
    assert "--no-typed lists other candidates" in table.out
    assert len(answers) == 1 < len(harmonium.predict(run, head="person 7", relation="next", top=3, typed=False))
    printed = json.loads(call(*query, "--format", "json").out)
    assert printed == {"query": "person 7, next, ?", "answers": [answer.to_json() for answer in answers]}


def test_predict_gives_an_answer_set(call, tmp_path: Path) -> None:
    graph, config = make_graph(20, 3, (200, 60, 60)), Config(model=ModelConfig("distmult", 8))
    run = Run(config, graph, build_model(config.model, 20, 3), History()).save(tmp_path / "run")
    query = ["predict", run, "--head", "e2", "--relation", "r1", "--coverage", "0.8"]
    answers = harmonium.predict(run, head="e2", relation="r1", coverage=0.8)
    assert len(answers) > 2
    printed = json.loads(call(*query, "--top", 2, "--format", "json").out)
    assert (printed["coverage"], printed["size"]) == (0.8, len(answers))
    assert printed["answers"] == [answer.to_json() for answer in answers]
    shown = call(*query, "--top", 2).words
    assert f"the answer set has {len(answers)} answers (2 shown)" in shown
    assert "holds it in 80 % of cases" in shown
    assert answers[1].name in shown
    assert f"3 {answers[2].name} " not in shown
    out, queries = tmp_path / "a.tsv", tmp_path / "q.tsv"
    queries.write_text("e2\tr1\t?\n", encoding="utf-8")
    done = call("predict", run, "--queries", queries, "--out", out, "--coverage", "0.8")
    assert done.out == f"{len(answers):,} answers: {out}\n"
    assert "share between 0 and 1" in call(*query[:-1], "2").err


def test_predict_with_one_name_lists_missing_facts(call, tmp_path: Path) -> None:
    graph, config = make_graph(20, 3, (200, 60, 60)), Config(model=ModelConfig("distmult", 8))
    run = Run(config, graph, build_model(config.model, 20, 3), History()).save(tmp_path / "run")
    for options, given in ((("--head", "e2"), {"head": "e2"}), (("--tail", "e2"), {"tail": "e2"})):
        expected = harmonium.predict(run, **given, top=4)
        assert json.loads(call("predict", run, *options, "--top", 4, "--format", "json").out) == expected.records()
        shown = call("predict", run, *options, "--top", 4)
        assert shown.out.startswith("Missing from random")
        assert all(row.tail in shown.words for row in expected)
    assert (
        json.loads(call("predict", run, "--relation", "r1", "--format", "json").out)
        == harmonium.predict(run, relation="r1").records()
    )
    none = call("predict", run)
    assert (none.code, "two of head, relation and tail, or one" in none.err) == (2, True)


def test_score_prints_or_writes_facts(call, run: Path, tmp_path: Path) -> None:
    facts, out = tmp_path / "facts.tsv", tmp_path / "scored.jsonl"
    facts.write_text("person 7\tnext\tperson 8\nperson 7\tnext\tperson 3\n", encoding="utf-8")
    expected = [fact.to_json() for fact in harmonium.score(run, facts)]
    assert json.loads(call("score", run, facts, "--format", "json").out) == expected
    assert f"{expected[0]['score']:.3f}" in call("score", run, facts).words
    assert call("score", run, facts, "--out", out).out == f"2 facts: {out}\n"
    assert [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] == expected


def test_classify_prints_metrics(call, run: Path, tmp_path: Path) -> None:
    figure, expected = tmp_path / "reliability.png", harmonium.classify(run)
    result = call("classify", run, "--plot", figure, "--top", 1)
    assert f"accuracy {expected.metrics['accuracy']:.3f}" in result.words
    assert "20 test facts" in result.words and "2 more" in result.words
    assert figure.is_file()
    assert json.loads(call("classify", run, "--format", "json").out) == expected.to_json()
    other = json.loads(call("classify", run, "--seed", 3, "--format", "json").out)
    assert other == harmonium.classify(run, seed=3).to_json() != expected.to_json()


def test_calibrate_shows_what_became_of_hidden_facts(call, tmp_path: Path) -> None:
    graph, plot = make_graph(20, 3, (200, 60, 60)), tmp_path / "reliability.png"
    run = Run(Config(model=ModelConfig("distmult", 6)), graph, untrained(graph, ModelConfig("distmult", 6)), History())
    folder = run.save(tmp_path / "run")
    hidden = find_hidden(harmonium.Run.load(folder))
    printed = json.loads(call("calibrate", folder, "--format", "json", "--plot", plot).out)
    assert printed == json.loads(json.dumps(hidden.to_json()))
    assert plot.is_file()
    words = call("calibrate", folder).words
    assert f"without its {hidden.hidden:,} test facts" in words
    assert "How complete is it?" in words
    for row in hidden.completeness[:3]:
        assert row["text"] in words


# Evaluate ------------------------------------------------------------------------------------------------------------

PROTOCOL = {"split": "valid", "candidates": "typed-train", "ties": "pessimistic", "side": "tail", "unseen": "drop"}


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], {}),
        (["--chunk", 3], {}),
        ([word for key, value in PROTOCOL.items() for word in (f"--{key}", value)], PROTOCOL),
        (["--no-filtered", "--sample", 6], {"filtered": False, "sample": 6}),
    ],
    ids=["default", "chunk", "protocol", "sample"],
)
def test_evaluate_prints_what_the_library_returns(call, run: Path, options: list, arguments: dict) -> None:
    expected = harmonium.evaluate(run, **arguments)
    assert json.loads(call("evaluate", run, *options, "--format", "json").out) == json.loads(
        json.dumps(expected.to_json())
    )
    words = call("evaluate", run, *options).words
    assert f"{len(expected.ranks)} queries {expected.metrics['mr']:.3f} {expected.metrics['mrr']:.3f}" in words
    assert f"protocol: {expected.summary().describe()}" in words
    for low, _ in expected.estimate.intervals.values() if expected.estimate else ():
        assert f" {low:.3f} " in words


def test_evaluate_ranks_several_runs_together(call, workspace: Path, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    options = ["--set", "model.entity_dim=6", "--set", "train.epochs=2", "--out", other]
    assert call("train", "--preset", "paper", "--data", workspace / "family", *options).code == 0
    printed = json.loads(call("evaluate", run, other, "--weights", "1,0.5", "--format", "json").out)
    assert printed["metrics"] == harmonium.evaluate([run, other], weights=[1, 0.5]).metrics
    assert printed["weights"] == [1, 0.5]
    learned = harmonium.evaluate([run, other], weights="learned")
    assert json.loads(call("evaluate", run, other, "--weights", "learned", "--format", "json").out) == learned.to_json()
    shown = ", ".join(f"{weight:.3g}" for weight in learned.weights)
    assert f"weights {shown}" in call("evaluate", run, other, "--weights", "learned").words
    assert "equal, learned or one number per run, not 'half'" in call("evaluate", run, other, "--weights", "half").err
    assert f"{run} x {other} on family" in call("evaluate", run, other).words
    assert f"{run} x path rules on family" in call("evaluate", run, "--rules").words
    printed = json.loads(call("evaluate", run, "--rules", "--format", "json").out)
    assert printed == harmonium.evaluate(run, rules=True).to_json()
