"""The command line as a user meets it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import harmonium
from harmonium import cli
from harmonium.composition import Composition
from harmonium.graph import SPLITS, Graph
from small import family

FAST = ["model.composition=complex", "model.entity_dim=8", "train.epochs=20", "train.learning_rate=0.05"]
FAST = [part for setting in [*FAST, "train.batch_size=32", "train.negatives=16"] for part in ("--set", setting)]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What was printed, however it was broken into lines."""
        return " ".join(self.out.split())


def write_graph(graph: Graph, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for split in SPLITS:
        lines = ["\t".join(names) + "\n" for names in graph.spell(getattr(graph, split))]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def shell(*arguments: str | Path, cwd: Path | None = None) -> Result:
    """A new process, as from a shell."""
    command = [sys.executable, "-W", "error", "-m", "harmonium", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The same in this process, which is faster; a plugin's compositions are forgotten afterwards."""
    monkeypatch.setattr(Composition, "registry", dict(Composition.registry))

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["harmonium", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return Result(stopped.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph in it, `family`, and a run trained on it by the command line, `runs/family`."""
    place = tmp_path_factory.mktemp("place")
    write_graph(family(), place / "family")
    trained = shell("train", "--data", "family", *FAST, cwd=place)
    assert trained.code == 0, trained.err
    (place / "printed.txt").write_text(trained.out, encoding="utf-8")
    (place / "told.txt").write_text(trained.err, encoding="utf-8")
    return place


# Train -----------------------------------------------------------------------------------------------------------


def test_train_prints_what_it_reached_and_where(place: Path) -> None:
    printed = (place / "printed.txt").read_text(encoding="utf-8")
    words = " ".join(printed.split())
    assert "Graph 'family': 40 entities, 3 relations; train 100, valid 10, test 10" in printed
    assert "best at epoch" in printed
    assert "run folder: runs/family\n" in printed
    assert "frequency baseline" in printed
    assert (
        "protocol: test heads and tails, filtered by train+valid+test, all entities are candidates, "
        "realistic ties, unseen entities keep" in words
    )
    told = (place / "told.txt").read_text(encoding="utf-8")
    assert "training 100% epoch 20 loss" in " ".join(told.split())
    assert told.count("training by fused kernels, as the tensors are not on a GPU\n") == 1
    run = harmonium.Run.load(place / "runs" / "family")
    assert f"{run.metrics['metrics']['mrr']:.3f}" in printed
    assert run.config.model.composition == "complex"
    assert run.config.data == "family"
    assert run.history.way == "fused kernels, as the tensors are not on a GPU"
    assert run.metrics["metrics"]["mrr"] > 3 * run.metrics["frequency_baseline"]["mrr"]


def test_train_takes_a_file_and_set_wins_over_it(call, place: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    data = str(place / "family")
    config.write_text(f"data = {json.dumps(data)}\n[model]\nentity_dim = 4\n[train]\nepochs = 2\n", encoding="utf-8")
    out = tmp_path / "a" / "folder" / "with-a-very-long-name-that-no-terminal-of-eighty-columns-could-hold" / "run"
    result = call("train", config, "--set", "train.epochs=1", "--out", out)
    assert result.code == 0
    assert f"run folder: {out}\n" in result.out
    run = harmonium.Run.load(out)
    assert (run.config.train.epochs, run.config.model.entity_dim, run.config.data) == (1, 4, data)
    again = call("train", config, "--set", "train.epochs=1", "--set", "train.seed=5", "--out", out, "--overwrite")
    assert again.code == 0
    assert harmonium.Run.load(out).config.train.seed == 5


def test_train_on_one_file_splits_it_and_says_so(call, tmp_path: Path) -> None:
    facts = family().spell(family().facts())
    file = tmp_path / "facts.tsv"
    file.write_text("".join("\t".join(fact) + "\n" for fact in [*facts, facts[0]]), encoding="utf-8")
    result = call("train", "--data", file, "--set", "train.epochs=1", "--out", tmp_path / "run")
    assert result.code == 0
    assert "note: train: dropped 1 repeated triples of 121\n" in result.out
    assert "note: split by seed 0: 0.05 valid, 0.05 test asked for" in result.out


def test_train_lists_its_settings(call) -> None:
    result = call("train", "--settings")
    assert result.code == 0
    assert "model.faithfulness 1.0 lambda: how strongly" in result.words
    assert "train.seed 0" in result.words


# Evaluate --------------------------------------------------------------------------------------------------------


def test_ctrl_c_saves_and_resume_goes_on(call, place: Path, tmp_path: Path) -> None:
    """A real process, interrupted as a person does it."""
    out = tmp_path / "mine"
    command = [sys.executable, "-m", "harmonium", "train", "--data", str(place / "family"), "--out", str(out), *FAST]
    command += ["--set", "train.epochs=100000", "--set", "train.patience=100000", "--set", "train.checkpoint_every=1"]
    with subprocess.Popen(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not any((out / "checkpoints").glob("0*.json")):
            time.sleep(0.02)
        second = call("resume", out)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert (second.code, f"({process.pid}); wait for it" in second.err) == (2, True)
    assert re.search(rf"stopped; `harmonium resume {out}` goes on from step \d", told)
    assert "Traceback" not in told
    unfinished = call("evaluate", out)
    assert (unfinished.code, f"training has not finished; `harmonium resume {out}`" in unfinished.err) == (2, True)
    assert call("resume", out, "--set", "model.rank=2").code == 2
    quick = ["train.patience=1", "train.evaluate_every=1", "train.checkpoint_every=none"]
    resumed = call("resume", out, *(part for setting in quick for part in ("--set", setting)))
    assert resumed.code == 0
    assert "Link prediction on family" in resumed.words
    assert f"run folder: {out}" in resumed.words
    again = call("resume", out)
    assert (again.code, f"{out} is finished; there is nothing to go on with" in again.words) == (0, True)


def test_evaluate_repeats_the_numbers_of_training(call, place: Path) -> None:
    folder = place / "runs" / "family"
    printed = json.loads(call("evaluate", folder, "--json").out)
    stored = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    del stored["frequency_baseline"]
    assert printed == stored
    assert printed["queries"] == 20
    assert json.loads(call("evaluate", folder, "--chunk", 3, "--json").out) == stored


def test_evaluate_takes_a_protocol(call, place: Path) -> None:
    folder = place / "runs" / "family"
    options = ["--split", "valid", "--candidates", "typed-train", "--ties", "pessimistic", "--side", "tail"]
    result = call("evaluate", folder, *options, "--no-filtered", "--unseen", "drop")
    assert (
        "protocol: valid tails, unfiltered, candidates seen in that slot in train, pessimistic ties, "
        "unseen entities drop" in result.words
    )
    expected = harmonium.evaluate(
        folder, split="valid", candidates="typed-train", ties="pessimistic", side="tail", filtered=False, unseen="drop"
    )
    assert len(expected.ranks) == 10
    assert f"all 10 queries {expected.metrics['mr']:.3f} {expected.metrics['mrr']:.3f}" in result.words


def test_evaluate_estimates_from_a_sample_and_says_so(call, place: Path, tmp_path: Path) -> None:
    folder, words = place / "runs" / "family", "estimated from 6 of 10 facts drawn at random"
    printed = json.loads(call("evaluate", folder, "--sample", 6, "--json").out)
    assert printed["queries"] == 12
    assert printed["estimate"]["words"].startswith(words)
    low = printed["estimate"]["intervals"]["mrr"][0]
    shown = call("evaluate", folder, "--sample", 6).words
    assert words in shown
    assert f"95 %: from {printed['estimate']['intervals']['mr'][0]:.3f} {low:.3f}" in shown
    options = ["--set", "evaluate.sample=6", "--set", "train.epochs=1", "--set", "model.entity_dim=4"]
    trained = call("train", "--data", place / "family", *options, "--out", tmp_path / "run")
    assert words in trained.words
    assert words in json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))["estimate"]["words"]
    assert "estimate" not in json.loads(call("evaluate", folder, "--sample", 99, "--json").out)
    assert call("evaluate", folder, "--sample", 1).code == 2


def test_evaluate_ranks_several_runs_together(call, place: Path, tmp_path: Path) -> None:
    one, other = place / "runs" / "family", tmp_path / "other"
    more = ["--set", "model.entity_dim=6", "--set", "train.epochs=2"]
    assert call("train", "--data", place / "family", *more, "--out", other).code == 0
    printed = json.loads(call("evaluate", one, other, "--weight", 1, "--weight", 0.5, "--json").out)
    assert printed["metrics"] == harmonium.evaluate([one, other], weights=[1, 0.5]).metrics
    assert f"{one} x {other} on family" in call("evaluate", one, other).words
    wrong = call("evaluate", one, other, "--weight", 1)
    assert (wrong.code, "error: 2 experts need as many weights, not 1" in wrong.err) == (2, True)


def test_evaluate_tells_how_many_ranks_hang_on_rounding(call, place: Path) -> None:
    folder = place / "runs" / "family"
    printed = json.loads(call("evaluate", folder, "--gaps", 4, "--json").out)
    low, high = printed["gaps"]["metrics"]["mrr"]
    assert (printed["queries"], printed["gaps"]["queries"]) == (20, 8)
    assert 0 < low <= high <= 1
    told = call("evaluate", folder, folder, "--gaps", 100).words
    assert "rounding: in " in told
    assert "of 20 queries candidates are too near to the truth to tell apart" in told
    assert call("evaluate", folder, "--gaps", 0).code == 2


@pytest.mark.parametrize(
    ("by", "rows"),
    [("side", ["head", "tail"]), ("relation", ["next (", "before (", "twin ("]), ("category", ["1-1 head (10)"])],
)
def test_evaluate_shows_parts(call, place: Path, by: str, rows: list[str]) -> None:
    out = call("evaluate", place / "runs" / "family", "--by", by).out
    for row in rows:
        assert any(line.strip().startswith(row) for line in out.splitlines())


def test_evaluate_ranks_another_graph_with_the_same_names(call, place: Path, tmp_path: Path) -> None:
    other = write_graph(family(seed=1), tmp_path / "other")
    printed = json.loads(call("evaluate", place / "runs" / "family", "--data", other, "--json").out)
    assert printed["graph"] == "other"
    assert printed["metrics"] == harmonium.evaluate(place / "runs" / "family", harmonium.load(other)).metrics
    (tmp_path / "strangers.tsv").write_text("person 1\tnext\tMax\n", encoding="utf-8")
    result = call("evaluate", place / "runs" / "family", "--data", tmp_path / "strangers.tsv")
    assert (result.code, result.err.count("error: no entity named 'Max' among 40")) == (2, 1)


# Predict ---------------------------------------------------------------------------------------------------------


def test_predict_prints_a_table_json_and_csv(call, place: Path) -> None:
    folder = place / "runs" / "family"
    query = ["predict", folder, "--head", "person 7", "--relation", "next", "--top", 3]
    answers = harmonium.predict(folder, head="person 7", relation="next", top=3)
    table = call(*query).out
    assert table.startswith("(person 7, next, ?)")
    for answer in answers:
        fact = f"known ({answer.known})" if answer.known else "new"
        assert f"{answer.rank} {answer.name} {answer.score:.3f} {fact}" in " ".join(table.split())
    printed = json.loads(call(*query, "--format", "json").out)
    assert printed == {"query": "person 7, next, ?", "answers": [answer.to_json() for answer in answers]}
    rows = list(csv.DictReader(io.StringIO(call(*query, "--format", "csv").out)))
    assert [row["name"] for row in rows] == [answer.name for answer in answers]
    assert [float(row["score"]) for row in rows] == [answer.score for answer in answers]
    assert [row["known"] or None for row in rows] == [answer.known for answer in answers]


def test_predict_answers_any_slot_and_only_new_facts(call, place: Path) -> None:
    folder = place / "runs" / "family"
    heads = json.loads(call("predict", folder, "--relation", "next", "--tail", "person 8", "--format", "json").out)
    assert heads["query"] == "?, next, person 8"
    assert len(heads["answers"]) == 10
    assert {answer["known"] for answer in heads["answers"]} != {None}
    options = ("--head", "person 7", "--tail", "person 8", "--new-only", "--format", "json")
    relations = json.loads(call("predict", folder, *options).out)
    assert {answer["name"] for answer in relations["answers"]} == {"before", "twin"}
    assert {answer["known"] for answer in relations["answers"]} == {None}


def test_predict_answers_a_file_of_queries(call, place: Path, tmp_path: Path) -> None:
    folder, out = place / "runs" / "family", tmp_path / "answers.tsv"
    (tmp_path / "queries.tsv").write_text("person 7\tnext\t?\n?\ttwin\tperson 1\n", encoding="utf-8")
    options = ("--top", 4, "--new-only", "--typed")
    done = call("predict", folder, "--queries", tmp_path / "queries.tsv", "--out", out, *options)
    assert (done.code, done.out) == (0, f"8 answers: {out}\n")
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines(), delimiter="\t"))
    expected = harmonium.predict(folder, head="person 7", relation="next", top=4, new_only=True, typed=True)
    assert [row["tail"] for row in rows[:4]] == [answer.name for answer in expected]
    for wrong in (("--queries", out), ("--out", out), ("--queries", out, "--out", out, "--head", "person 7")):
        told = call("predict", folder, *wrong)
        assert told.code == 2
        assert "give --queries FILE and --out FILE, or else two of" in told.err


# Score, complete, calibrate --------------------------------------------------------------------------------------


def test_score_says_how_probable_facts_are(call, place: Path, tmp_path: Path) -> None:
    folder = place / "runs" / "family"
    (tmp_path / "facts.tsv").write_text("person 7\tnext\tperson 8\nperson 7\tnext\tperson 3\n", encoding="utf-8")
    expected = harmonium.score(folder, tmp_path / "facts.tsv")
    assert json.loads(call("score", folder, tmp_path / "facts.tsv", "--json").out) == [f.to_json() for f in expected]
    table = call("score", folder, tmp_path / "facts.tsv").words
    assert "person 7, next" in table
    assert table.endswith("ranks among answers that are not known facts")
    written = call("score", folder, tmp_path / "facts.tsv", "--out", tmp_path / "scored.jsonl")
    assert written.out == f"2 facts: {tmp_path / 'scored.jsonl'}\n"
    lines = (tmp_path / "scored.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [f.to_json() for f in expected]


def test_complete_finds_missing_facts(call, place: Path, tmp_path: Path) -> None:
    folder = place / "runs" / "family"
    expected = harmonium.complete(folder, ["next", "twin"], top=6)
    options = ("--relation", "twin", "--relation", "next", "--top", 6)
    assert json.loads(call("complete", folder, *options, "--json").out) == expected
    assert f"1 {expected[0]['text']} {expected[0]['score']:.3f}" in call("complete", folder, *options).words
    out = tmp_path / "missing.csv"
    assert call("complete", folder, "--all-relations", "--top", 9, "--out", out).out == f"9 facts: {out}\n"
    assert len(out.read_text(encoding="utf-8").splitlines()) == 10
    for wrong in ((), ("--all-relations", "--relation", "next")):
        told = call("complete", folder, *wrong)
        assert told.code == 2
        assert "give --relation NAME (as often as you like), or else --all-relations" in told.err


def test_complete_trains_on_a_graph_first(call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "train.txt").write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n", encoding="utf-8")
    monkeypatch.setattr("harmonium.config.TrainConfig.epochs", 1)
    first = call("complete", "small", "--relation", "r", "--top", 2)
    assert "Missing from small" in first.out
    assert (tmp_path / "runs" / "small" / "run.json").is_file()
    again = call("complete", "small", "--relation", "r")
    assert again.code == 2
    assert "is there already: complete that" in again.err


def test_calibrate_shows_how_probabilities_did(call, place: Path, tmp_path: Path) -> None:
    folder = place / "runs" / "family"
    found = harmonium.calibrate(folder)
    plot = tmp_path / "reliability.png"
    assert json.loads(call("calibrate", folder, "--json", "--plot", plot).out) == found.to_json()
    assert plot.is_file()
    told = call("calibrate", folder).out
    for slot in found.fits:
        assert f"The {slot} asked for, family" in told
    assert found.fits or "too few validation facts" in told


def test_names_are_never_read_as_markup(call, tmp_path: Path) -> None:
    rows = "".join(f"[red]a{i}[/red]\t[link]\t[/b]{i}\n" for i in range(4))
    (tmp_path / "marked").mkdir()
    (tmp_path / "marked" / "train.txt").write_text(rows, encoding="utf-8")
    out = tmp_path / "run[1]"
    assert call("train", "--data", tmp_path / "marked", "--set", "train.epochs=1", "--out", out).code == 0
    table = call("predict", out, "--head", "[red]a1[/red]", "--relation", "[link]").out
    assert "([red]a1[/red], [link], ?)" in table
    assert "[/b]1" in table
    assert "[red]a0[/red] · [link] · [/b]0" in call("info", out).words
    assert "[red]a1[/red]" in call("neighbours", out, "[red]a1[/red]", "[link]", "[/b]1").out
    wrong = call("predict", out, "--head", "[red]a9[/red]", "--relation", "[link]")
    assert "error: no entity named '[red]a9[/red]' among 8" in wrong.err


# Classify --------------------------------------------------------------------------------------------------------


def test_classify_says_how_well_facts_are_told(call, place: Path, tmp_path: Path) -> None:
    folder, figure = place / "runs" / "family", tmp_path / "reliability.png"
    found = harmonium.classify(folder)
    result = call("classify", folder, "--plot", figure, "--top", 1)
    assert result.code == 0
    assert f"accuracy {found.metrics['accuracy']:.3f} accuracy one threshold" in result.words
    assert "metric 20 test facts" in result.words
    assert "another head or tail seen in that place, seed 0" in result.words
    assert "2 more" in result.words
    assert figure.is_file()
    assert json.loads(call("classify", folder, "--json").out) == found.to_json()
    other = json.loads(call("classify", folder, "--seed", 3, "--json").out)
    assert other == harmonium.classify(folder, seed=3).to_json() != found.to_json()


def test_classify_labels_a_file_of_triples(call, place: Path, tmp_path: Path) -> None:
    folder, file = place / "runs" / "family", tmp_path / "new.tsv"
    file.write_text("person 7\tnext\tperson 8\nperson 7\tnext\tperson 30\n", encoding="utf-8")
    run = harmonium.Run.load(folder)
    found = harmonium.classify(run)
    triples = [run.graph.triple("person 7", "next", f"person {i}") for i in (8, 30)]
    labels = [tuple(column.item() for column in found.label(run.model, triple)) for triple in triples]
    printed = json.loads(call("classify", folder, "--data", file, "--json").out)
    assert [(row["label"], pytest.approx(row["probability"])) for row in printed] == labels
    assert printed[1]["triple"] == ["person 7", "next", "person 30"]
    words = call("classify", folder, "--data", file).words
    for i, (label, probability) in zip((8, 30), labels, strict=True):
        assert f"person 7 next person {i} {str(label).lower()} {probability:.3f}" in words
    assert f"{found.metrics['accuracy']:.1%} of test facts were labelled rightly" in words


# Neighbours and info ---------------------------------------------------------------------------------------------


def test_serve_says_what_it_cannot_do(call, place: Path) -> None:
    run = place / "runs" / "family"
    assert "no such run folder" in call("serve", place / "nothing").err
    for wrong, message in (
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines in: give --token"),
        (["--token", "short"], "--token needs at least 16"),
        (["--host", "192.0.2.1", "--token", "x" * 16], "cannot listen on 192.0.2.1"),
    ):
        result = call("serve", run, *wrong)
        assert result.code == 2
        assert message in " ".join(result.err.split())


def test_neighbours_stand_beside_each_other(call, place: Path) -> None:
    folder, fact = place / "runs" / "family", ("person 7", "next", "person 8")
    found = harmonium.neighbours(folder, *fact, count=4)
    result = call("neighbours", folder, *fact, "--count", 4)
    assert result.out.startswith("person 7 in (person 7, next, person 8)")
    assert "nearest composed nearest token" in result.words
    for composed, token in zip(found.composed, found.token, strict=True):
        assert f"{composed.name} {composed.distance:.3f} #{composed.rank:g}" in result.words
        assert f"{token.name} {token.distance:.3f} #{token.rank:g}" in result.words
    assert f"the triplet itself: #{found.rank:g}, true" in result.words
    assert "✓ true with that entity in its place: 0 of 4 nearest composed, 0 of 4 nearest token" in result.words
    tails = json.loads(call("neighbours", folder, *fact, "--slot", "tail", "--no-typed", "--json").out)
    assert tails == json.loads(json.dumps(harmonium.neighbours(folder, *fact, slot="tail", typed=False).to_json()))
    assert len(tails["token"]) == 5


def test_neighbours_of_entities_and_a_figure(call, place: Path, tmp_path: Path) -> None:
    folder, fact = place / "runs" / "family", ("person 7", "next", "person 8")
    found = harmonium.neighbours(folder, *fact, of="entities", count=3)
    words = call("neighbours", folder, *fact, "--of", "entities", "--count", 3).words
    assert "nearest to the entity nearest to its token" in words
    assert f"{found.token[0].name} {found.token[0].distance:.3f}" in words
    assert f"leaves {found.residual:.0%} of mu - x uncomposed (ridge 0.01" in words
    assert call("neighbours", folder, *fact, "--plot", tmp_path / "near.png").code == 0
    assert (tmp_path / "near.png").stat().st_size > 1000


def test_density_by_label(call, place: Path, tmp_path: Path) -> None:
    folder, file = place / "runs" / "family", tmp_path / "labelled.txt"
    file.write_text("person 7\tnext\tperson 8\t1\nperson 7\tnext\tperson 3\t-1\n", encoding="utf-8")
    found = json.loads(call("density", folder, "--labelled", file, "--count", 3, "--json").out)
    assert found == json.loads(json.dumps(harmonium.density(folder, file, 3).to_json()))
    assert found["positives"]["queries"] == 2
    printed = call("density", folder, "--no-typed").words
    assert "Facts among the 5 nearest on family" in printed
    made = harmonium.density(folder, typed=False)
    assert "queries 20 20" in printed
    for part in (made.positives, made.negatives):
        assert f"{part.change.mean:+.3f} ± {part.change.standard_error:.3f}" in printed
        assert f"{part.by_relation[0]:+.3f} to {part.by_relation[1]:+.3f}" in printed
    assert "candidates: all entities" in printed


def test_gain_by_candidates(call, place: Path, tmp_path: Path) -> None:
    folder = place / "runs" / "family"
    result = call("gain", folder, "--split", "test", "--plot", tmp_path / "gain.png")
    found = harmonium.gain(folder, "test").to_json()
    assert json.loads(call("gain", folder, "--split", "test", "--json").out) == json.loads(json.dumps(found))
    assert "Harmony gain against rank change, family test" in result.out
    for part in found["candidates"].values():
        assert f"{part['spearman']['rank']['rho']:+.4f}" in result.out
        assert f"MRR {part['mrr_before']:.3f} -> {part['mrr_after']:.3f}" in result.words
    assert (tmp_path / "gain.png").stat().st_size > 1000


def test_dynamics_from_start_to_end(call, place: Path, tmp_path: Path) -> None:
    folder, fact = place / "runs" / "family", ("person 7", "next", "person 8")
    found = json.loads(call("dynamics", folder, *fact, "--json").out)
    printed = call("dynamics", folder, *fact, "--plot", tmp_path / "climb.png").words
    assert printed.startswith("person 7, next, person 8 step harmony core harmony distance to the token")
    assert f" {found['steps']} {found['harmony'][-1]:.4f}" in printed
    assert f"harmony of the closed form: {found['optimum']:.4f}" in printed
    assert (tmp_path / "climb.png").stat().st_size > 1000
    short = json.loads(call("dynamics", folder, *fact, "--steps", 3, "--samples", 7, "--json").out)
    assert (short["steps"], short["samples"]["count"]) == (3, 7)


def test_explain_in_words_and_numbers(call, place: Path, tmp_path: Path) -> None:
    folder, fact = place / "runs" / "family", ("person 7", "next", "person 8")
    found = json.loads(call("explain", folder, *fact, "--count", 3, "--json").out)
    assert found == json.loads(json.dumps(harmonium.explain(folder, *fact, count=3).to_json()))
    printed = call("explain", folder, *fact, "--count", 3, "--no-same-relation", "--plot", tmp_path / "why.png").words
    assert printed.startswith(f"person 7, next, person 8 score {found['score']:.3f}, #{found['rank']['head']:g} as")
    assert f"total {found['harmony']['composed']['total']:,.3f} {found['harmony']['token']['total']:,.3f}" in printed
    assert f"{found['directions'][0]['push']:+.3f}" in printed
    anywhere = harmonium.explain(folder, *fact, same_relation=False).nearest[0]
    for reason in (found["reasons"][0], {"fact": anywhere.fact, "effect": anywhere.effect}):
        assert " · ".join(reason["fact"]) in printed
        assert f"{reason['effect']:+.3f}" in printed
    assert (tmp_path / "why.png").stat().st_size > 1000
    wrong = call("explain", folder, "person 7", "next", "nobody")
    assert wrong.code == 2
    assert "no entity named 'nobody'" in wrong.err


def test_add_someone_new(call, place: Path, tmp_path: Path) -> None:
    folder, facts, out = place / "runs" / "family", tmp_path / "facts.tsv", tmp_path / "more"
    facts.write_text("Zoe\tnext\tperson 3\nperson 3\tbefore\tZoe\nperson 1\ttwin\tperson 2\n", encoding="utf-8")
    result = call("add", folder, facts, "--out", out)
    assert result.code == 0, result.err
    assert result.out.startswith("1 new entities from 2 facts: Zoe\nnote: 1 facts are about known entities alone")
    assert f"run folder: {out}" in result.out
    assert "Zoe" in call("predict", out, "--head", "person 3", "--relation", "before", "--top", 5).out
    told = json.loads(call("add", folder, facts, "--out", out, "--overwrite", "--json").out)
    assert (told["entities"], told["facts"], told["metrics"]["mrr"] > 0) == (["Zoe"], 2, True)
    facts.write_text("Zoe\tknows\tperson 3\n", encoding="utf-8")
    for arguments, message in (((), "out"), (("--out", out), "exists; choose another --out"),
                               (("--out", tmp_path / "new"), "no relation named 'knows'")):  # fmt: skip
        wrong = call("add", folder, facts, *arguments)
        assert wrong.code == 2
        assert message in wrong.err


def test_a_plain_model_has_no_token_column(call, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    options = ("--data", place / "family", "--set", "model.harmony=false", "--set", "train.epochs=1", "--out", out)
    assert call("train", *options).code == 0
    printed = call("neighbours", out, "person 7", "next", "person 8").out
    assert "nearest composed" in printed
    assert "token" not in printed
    for command in (("density", out), ("gain", out), ("dynamics", out, "person 7", "next", "person 8")):
        result = call(*command)
        assert result.code == 2
        assert "error: plain hole has no harmony, so no tokens; train with faithfulness" in result.err
    explained = call("explain", out, "person 7", "next", "person 8").words
    assert "note: a plain model: no harmony and no W" in explained
    assert "Directions" not in explained


def test_someone_alone_has_no_neighbours(call, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "train.txt").write_text("a\tr\tb\nc\ts\td\n", encoding="utf-8")
    assert call("train", "--data", tmp_path / "alone", "--set", "train.epochs=1", "--out", tmp_path / "run").code == 0
    result = call("neighbours", tmp_path / "run", "a", "r", "b")
    assert result.code == 0
    assert result.out == "a in (a, r, b): nobody else was seen in that place; --no-typed asks among all entities\n"


def test_info_counts_a_graph(call, place: Path) -> None:
    result = call("info", place / "family")
    assert result.out.startswith("family: 40 entities, 3 relations; train 100, valid 10, test 10\n")
    assert "triples with an entity that train never shows: 0 in valid, 0 in test" in result.out
    assert "before 34 1-1 person" in result.words
    assert "2 more" in call("info", place / "family", "--top", 1).words
    printed = json.loads(call("info", place / "family", "--json").out)
    assert printed == json.loads(json.dumps(harmonium.info(place / "family")))
    assert printed["graph"]["triples"] == {"train": 100, "valid": 10, "test": 10}
    assert sum(relation["train"] for relation in printed["graph"]["by_relation"]) == 100


def test_info_shows_how_a_run_went(call, place: Path) -> None:
    folder = place / "runs" / "family"
    assert "Link prediction on family" in call("info", folder).out
    run = json.loads(call("info", folder, "--json").out)["run"]
    assert run["settings"]["model"]["composition"] == "complex"
    assert run["epochs"] == 20
    assert run["parameters"] == 40 * 8 + 3 * 8 + 8 * 8 + 8
    assert run["metrics"]["metrics"] == harmonium.Run.load(folder).metrics["metrics"]


def test_doctor_gives_a_verdict_and_a_cleaned_copy(call, place: Path, tmp_path: Path) -> None:
    shown = call("doctor", place / "family", "--clean", tmp_path / "clean")
    assert shown.code == 0
    assert shown.out.startswith("family: leaking\n  why: ")
    assert "inverse next before 100%" in shown.words or "inverse before next 100%" in shown.words
    assert "symmetric twin itself 100%" in shown.words
    assert "protocol: test heads and tails, filtered by train+valid+test" in shown.words
    assert "1 redundant relations dropped" in shown.words
    assert "redundant relation" in shown.words and "found by a rule" in shown.words
    assert json.loads(call("doctor", tmp_path / "clean", "--json").out)["verdict"] == "calm"
    assert call("doctor", place / "family", "--markdown").out.startswith("**leaking**: ")
    again = call("doctor", place / "family", "--clean", tmp_path / "clean")
    assert again.code == 2
    assert "is there already; choose another name" in again.err
    assert call("doctor", "nowhere").code == 2


def test_convert_takes_a_messy_table(call, tmp_path: Path) -> None:
    file = tmp_path / "messy.csv"
    text = '\ufeffWho ; "How, really";Whom;since\n"Müller; Ana" ; knows;Zoë ;1999\n\nZoë;knows;"Müller; Ana";2001\n'
    file.write_bytes(text.encode())
    refused = call("convert", file, tmp_path / "out")
    assert refused.code == 2
    assert "4 columns (1, 2, 3, 4), not clear which are head, relation and tail" in refused.err
    shown = call("convert", file, tmp_path / "out", "--columns", "1,2,3", "--header")
    assert shown.code == 0
    assert "2 entities, 1 relations; train 2, valid 0, test 0" in shown.words
    assert (tmp_path / "out" / "train.tsv").read_text("utf-8") == "Müller; Ana\tknows\tZoë\nZoë\tknows\tMüller; Ana\n"
    printed = json.loads(call("convert", tmp_path / "out", tmp_path / "out.nt", "--json").out)
    assert (printed["entities"], printed["triples"]["train"]) == (2, 2)
    again = call("convert", tmp_path / "out", tmp_path / "out.nt")
    assert (again.code, "already there; choose another name or say --overwrite" in again.err) == (2, True)


def test_convert_keeps_splits_or_makes_them(call, place: Path, tmp_path: Path) -> None:
    assert call("convert", place / "family", tmp_path / "family.parquet").code == 0
    assert "train 100, valid 10, test 10" in call("info", tmp_path / "family.parquet").words
    whole = call("convert", place / "family", tmp_path / "whole.nt")
    assert "note: whole.nt: train, valid, test are merged; a folder or .nq keeps them apart" in whole.words
    dealt = call("convert", tmp_path / "whole.nt", tmp_path / "dealt", "--test", "0.2", "--to", "libkge")
    assert "note: split by seed 0" in dealt.words
    assert (tmp_path / "dealt" / "test.del").is_file()


def test_info_tells_of_the_embedded_graph(call) -> None:
    assert "atlas: 3,334 entities, 25 relations; train 11,389, valid 871, test 994" in call("info", "atlas").out


# A user's own composition ----------------------------------------------------------------------------------------

PLUGIN = """
from harmonium import Composition


class Sandwich(Composition):
    def compose(self, head, relation, tail):
        return head * relation.roll(1, -1) * tail.flip(-1)
"""


def test_a_plugin_brings_a_composition(call, place: Path, tmp_path: Path) -> None:
    plugin, out = tmp_path / "sandwich.py", tmp_path / "run"
    plugin.write_text(PLUGIN, encoding="utf-8")
    assert len(PLUGIN.splitlines()) < 15
    trained = shell(
        "--plugin", plugin, "train", "--data", place / "family", *FAST, "--set", "model.composition=sandwich",
        "--out", out,
    )  # fmt: skip
    assert trained.code == 0, trained.err
    evaluated = shell("--plugin", plugin, "evaluate", out, "--json")
    assert json.loads(evaluated.out)["metrics"] == json.loads((out / "metrics.json").read_text())["metrics"]
    assert "sandwich" not in Composition.registry
    missing = call("evaluate", out)
    assert missing.code == 2
    assert "error: no composition 'sandwich'; there are complex, concatenation, distmult" in missing.err
    assert "(--plugin FILE.py)" in missing.err
    predicted = call("--plugin", plugin, "predict", out, "--head", "person 7", "--relation", "twin", "--format", "json")
    assert len(json.loads(predicted.out)["answers"]) == 10
    near = call("--plugin", plugin, "neighbours", out, "person 7", "twin", "person 27", "--json")
    assert len(json.loads(near.out)["token"]) == 5


# Bad input -------------------------------------------------------------------------------------------------------

BAD = {
    "missing data": ("train --data nope", "no graph at 'nope'; give a folder with train.txt"),
    "wrong columns": ("train --data {place}/narrow", "narrow/train.txt:2: found 2 columns, expected 3: head TAB"),
    "unknown name": (
        "predict {run} --head Person_7 --relation next",
        "no entity named 'Person_7' among 40; did you mean 'person 7'",
    ),
    "unknown relation": (
        "predict {run} --head person --relation nxt",
        "no entity named 'person' among 40; did you mean",
    ),
    "lambda not above cap": (
        "train --data {place}/family --set model.faithfulness=1 --set model.cap=2",
        "faithfulness (lambda) = 1.0 must be above the cap on W, 2.0",
    ),
    "odd complex": (
        "train --data {place}/family --set model.composition=complex --set model.entity_dim=7",
        "complex needs an even entity_dim (real and imaginary halves), not 7",
    ),
    "existing out": ("train --data {place}/family --out {run}", "exists; choose another --out, or say --overwrite"),
    "out is no run": (
        "train --data {place}/family --out {place}/family --overwrite",
        "family is not a run folder, so it will not be replaced; choose another --out",
    ),
    "not a run": ("evaluate {place}/family", "family: no run.json in it, so it is not a (complete) run folder"),
    "no run": ("predict {place}/gone --head a --relation b", "gone: no such run folder; `harmonium train --out"),
    "unknown setting": ("train --set train.epoch=3", "settings: no setting 'train.epoch'; there are train.epochs"),
    "bad toml": ("train {place}/bad.toml", "bad.toml: not TOML: "),
    "no toml": ("train {place}/gone.toml", "gone.toml: cannot be read (No such file or directory)"),
    "unknown composition": ("train --data {place}/family --set model.composition=transe", "no composition 'transe'"),
    "unknown device": ("train --data {place}/family --set train.device=tpu", "train.device 'tpu' cannot be used here"),
    "unknown split": ("evaluate {run} --split dev", "split is one of train, valid, test, not 'dev'"),
    "unknown ties": ("evaluate {run} --ties lucky", "ties is one of realistic, optimistic, pessimistic, not 'lucky'"),
    "bad by": ("evaluate {run} --by colour", "--by is side, relation or category, not 'colour'"),
    "one slot": ("predict {run} --head a", "give exactly two of head, relation and tail; 1 given"),
    "bad of": ("neighbours {run} a b c --of relations", "neighbourhoods are of triplets or of entities, not of"),
    "bad plot": ("gain {run} --plot gain.txt", "--plot gain.txt: a figure ends in .png, .pdf or .svg"),
    "no labels": ("density {run} --labelled {place}/family/train.txt", "train.txt:1: found 3 columns, expected 4"),
    "bad device": ("density {run} --device abacus", "device 'abacus' cannot be used here"),
    "bad slot": (
        "neighbours {run} a b c --slot relation",
        "neighbourhoods change the head or the tail, not 'relation'",
    ),
    "no labelled folder": (
        "classify {run} --labelled {place}/family",
        "family/classification_valid.txt: cannot be read (No such file or directory)",
    ),
    "one labelled file": ("classify {run} --labelled {place}/bad.toml", "--labelled is one folder or two files"),
    "bad triples": ("classify {run} --data {place}/narrow/train.txt", "narrow/train.txt:1: no entity named 'a'"),
    "no neighbour": ("neighbours {run} nobody next nobody", "no entity named 'nobody' among 40"),
    "info of nothing": ("info {place}/gone", "gone'; give a folder with train.txt"),
    "no plugin": ("--plugin {place}/gone.py info atlas", "gone.py: not a Python file that can be read"),
    "demo elsewhere": ("demo --out {place}/family", "family is not a run folder, so it will not be replaced"),
}


@pytest.mark.parametrize(("command", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_message_and_code_2(
    call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    (place / "narrow").mkdir(exist_ok=True)
    (place / "narrow" / "train.txt").write_text("a\tr\tb\na\tb\n")
    (place / "bad.toml").write_text("[train\n")
    monkeypatch.chdir(tmp_path)
    result = call(*command.format(place=place, run=place / "runs" / "family").split())
    assert result.code == 2
    assert message in result.err
    assert result.err.count("error:") == 1
    assert "Traceback" not in result.err
    assert result.out == ""
    assert not list(tmp_path.rglob("run.json"))


def test_bad_input_in_a_shell(place: Path) -> None:
    result = shell("predict", "runs/family", "--head", "persn 7", "--relation", "next", cwd=place)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: no entity named 'persn 7' among 40; did you mean 'person 7'")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["bogus"], ["evaluate"], ["predict", "run", "--top", "0"], ["train", "--nope"]])
def test_bad_usage_is_code_2_too(call, arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.code == 2
    assert "Usage: harmonium" in result.err
    assert "Traceback" not in result.err


def test_an_interrupt_outside_training_is_code_130(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harmonium.commands.info", stop)
    assert call("info", "atlas").code == 130


# Help ------------------------------------------------------------------------------------------------------------


def test_help_is_quick() -> None:
    started = time.perf_counter()
    result = shell("--help")
    assert time.perf_counter() - started < 1.5
    assert result.code == 0
    assert "Start with: harmonium demo" in result.out
    for command in cli.app.registered_commands:
        assert command.callback.__name__ in result.out


@pytest.mark.parametrize("command", [command.callback.__name__ for command in cli.app.registered_commands])
def test_every_command_explains_itself(call, command: str) -> None:
    result = call(command, "--help")
    assert result.code == 0
    assert result.words.startswith(f"Usage: harmonium {command}")
    assert getattr(cli, command).__doc__.split("\n")[0].split(":")[0] in result.words


def test_the_shell_can_complete_commands() -> None:
    """What a shell asks after `harmonium pl<Tab>`."""
    asking = {"_HARMONIUM_COMPLETE": "complete_bash", "COMP_WORDS": "harmonium pl", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'harmonium'; from harmonium.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | asking, capture_output=True, text=True)
    assert done.stdout.split() == ["plan"], done.stderr
    shown = shell("--help").out
    assert "--install-completion" in shown


@pytest.mark.parametrize("command", [command.callback.__name__ for command in cli.app.registered_commands])
def test_every_command_shows_an_example(command: str) -> None:
    assert f"Example: harmonium {command}" in getattr(cli, command).__doc__


def test_plan_says_how_long_and_how_much(call, place: Path) -> None:
    told = call("plan", "--data", place / "family", *FAST)
    assert told.code == 0, told.err
    assert "20 epochs of 4 steps on cpu" in told.words
    for word in ("optimiser", "together", "final evaluation", "a step"):
        assert word in told.words
    found = json.loads(call("plan", "--data", place / "family", *FAST, "--json").out)
    assert found["epochs"] == 20 and found["fits"]
    assert found["total_seconds"] >= 20 * found["steps"] * found["step_seconds"]
    told = call("plan", "--data", place / "family", *FAST, "--processes", 2)
    assert "in each of 2 processes" in told.words
    assert "predicted, not tried" in told.words
    wrong = call("plan", "--data", place / "family", "--set", "model.dimension=3")
    assert wrong.code == 2
    assert "no setting 'model.dimension'" in wrong.err


def test_report_writes_a_page_and_says_where(call, place: Path, tmp_path: Path) -> None:
    run, out = place / "runs" / "family", tmp_path / "new" / "page.html"
    result = call("report", run, "--out", out, "--limit", 8, "--fact", "person 0", "next", "person 1")
    assert result.code == 0, result.err
    assert result.out == f"report: {out}\n"
    page = out.read_text(encoding="utf-8")
    assert "person 0, next, person 1</th>" in page
    wrong = call("report", run, "--fact", "nobody", "next", "person 1")
    assert wrong.code == 2
    assert "no entity named 'nobody'" in wrong.err


def test_the_version_is_told() -> None:
    done = subprocess.run([sys.executable, "-m", "harmonium", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"harmonium {harmonium.__version__}"
    assert done.returncode == 0


def test_a_plugin_that_fails_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    command = [sys.executable, "-m", "harmonium", "--plugin", str(tmp_path / "broken.py"), "info", "atlas"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "Traceback" not in done.stderr


def test_tune_leaves_settings_to_train_with(call, place: Path, tmp_path: Path) -> None:
    quick = [
        "--set",
        "train.epochs=2",
        "--set",
        "train.batch_size=64",
        "--set",
        "model.entity_dim=8",
        "--set",
        "model.rank=2",
    ]
    options = ["--data", place / "family", *quick, "--storage", tmp_path / "a.study", "--out", tmp_path / "best.toml"]
    shown = call("tune", "--trials", "2", *options)
    assert shown.code == 0, shown.err
    assert "The best of 2 trials" in shown.out
    assert f"harmonium train {tmp_path / 'best.toml'}" in shown.words
    more = json.loads(call("tune", "--trials", "3", "--json", *options).out)
    assert [trial["number"] for trial in more["trials"]] == [0, 1, 2]
    assert call("train", tmp_path / "best.toml", "--out", tmp_path / "run").code == 0
    wrong = call("tune", *options, "--set", "train.seed=5")
    assert wrong.code == 2
    assert "take a new file" in wrong.err


def test_export_and_train_from_it_while_others_follow(call, place: Path, tmp_path: Path) -> None:
    run, vectors, log = place / "runs" / "family", tmp_path / "my vectors.parquet", tmp_path / "log.csv"
    assert json.loads(call("export", run, vectors, "--json").out) == {"written": [str(vectors)]}
    options = [*FAST, "--set", "train.epochs=1", "--set", "train.learning_rate=1e-9"]
    trained = call("train", "--data", place / "family", *options, "--out", tmp_path / "run", "--init", vectors,
                   "--track", f"csv:{log}")  # fmt: skip
    assert trained.code == 0, trained.err
    old, new = (harmonium.Run.load(path).model.entities() for path in (run, tmp_path / "run"))
    assert (old - new).abs().max() < 1e-5
    assert "valid/mrr" in log.read_text(encoding="utf-8")
    again = call("export", run, vectors)
    assert (again.code, "--overwrite" in again.err) == (2, True)
    refused = call("export", run, tmp_path / "out", "--to", "pykeen")
    assert (refused.code, "PyKEEN has no harmonic complex" in refused.err) == (2, True)
    assert call("train", "--data", place / "family", "--track", "excel", "--out", tmp_path / "no").code == 2


def test_one_file_is_evaluated_whole(tmp_path: Path) -> None:
    from harmonium.commands import evaluate, train
    from small import family

    run = train(data=family(), sets=["train.epochs=1", "model.entity_dim=4"])
    (tmp_path / "new.tsv").write_text("person 0\ttwin\tperson 3\nperson 1\tnext\tperson 9\n")
    assert len(evaluate(run, data=str(tmp_path / "new.tsv")).ranks) == 4


def test_reproduce_shows_both_protocols_and_resumes(call, tmp_path: Path) -> None:
    folder = write_graph(family(), tmp_path / "family")
    options = ["--dataset", folder, "--rows", "hhole-*", "--scale", "small", "--runs", tmp_path / "runs"]
    first = call("reproduce", "table1", *options, "--variant", "calibrated", "--set", "train.epochs=1")
    assert first.code == 0
    assert "table1 on family" in first.out
    assert "full" in first.words
    assert "λ=inf" in first.words
    assert "λ=1" in first.words
    again = call("reproduce", "table1", *options, "--variant", "calibrated", "--set", "train.epochs=1")
    assert again.out == first.out
    assert again.err.count("done before") == 2
    wrong = call("reproduce", "table7", *options)
    assert wrong.code == 2
    assert "no experiment 'table7'" in wrong.err
