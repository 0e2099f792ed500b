"""The difference of two runs: what is the same is the same, what changed is named, and noise is not called a change."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.analysis.diff import Difference
from harmonium.analysis.metric_changes import compare_metrics, restrict, verdict
from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.joint_facts import JointFacts
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import Run
from html_page import Page, count_printed_sheets, needs_chromium
from small import CONFIGS, family, fitted, make_graph, make_run, untrained


def run_on(graph: Graph, config: ModelConfig = CONFIGS["harmony"]) -> Run:
    return make_run(graph, untrained(graph, config))


@pytest.fixture(scope="module")
def run() -> Run:
    """With probabilities: there are enough validation facts."""
    return run_on(make_graph(20, 3, (200, 60, 60)))


@pytest.fixture(scope="module")
def trained() -> Run:
    graph = family(60)
    return make_run(graph, fitted(graph, graph.train))


def with_noise(run: Run, size: float, seed: int = 0) -> Run:
    """The same run with noise on its entity vectors."""
    model = deepcopy(run.model)
    with torch.no_grad():
        model.entity.add_(size * torch.randn(model.entity.shape, generator=torch.Generator().manual_seed(seed)))
    return replace(run, model=model)


def renumbered(run: Run, seed: int = 0) -> Run:
    """The same run with its entities and relations in another order."""
    generator, graph = torch.Generator().manual_seed(seed), run.graph
    entity, relation = (torch.randperm(n, generator=generator) for n in (graph.n_entities, graph.n_relations))
    names = [graph.entities.ids[i] for i in entity.tolist()], [graph.relations.ids[i] for i in relation.tolist()]
    number = entity.argsort(), relation.argsort()
    splits = [
        Triples(number[0][facts.head], number[1][facts.relation], number[0][facts.tail])
        for facts in graph.splits.values()
    ]
    other = Graph(Vocabulary(names[0]), Vocabulary(names[1], kind="relation"), *splits, name=graph.name)
    return replace(run, graph=other, model=restrict(run.model, entity, relation))


def widened(run: Run) -> Run:
    """The same run with one more entity, whose vector is that of the first, in one more training fact."""
    graph, model = run.graph, deepcopy(run.model)
    n = graph.n_entities
    fact = Triples.from_rows([[n, 0, 0]])
    graph = replace(
        graph, entities=Vocabulary([*graph.entities.ids, "new one"]), train=Triples.cat([graph.train, fact])
    )
    rows = torch.cat([model.entity.detach(), model.entity.detach()[:1]])
    model.entity, model.n_entities, model.local_rows = torch.nn.Parameter(rows), n + 1, slice(0, n + 1)
    return replace(run, graph=graph, model=model)


# The same -------------------------------------------------------------------------------------------------------------


def test_a_run_and_itself(run: Run) -> None:
    same = harmonium.diff(run, run, missing=10)
    assert not same.changed and same.summary == ["nothing changed"]
    assert same.answers.questions == 120 and same.probabilities.facts == 60 and same.missing is not None
    assert "nothing changed" in str(same) and "nothing changed" in repr(same)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_numbering_of_names_is_no_change(name: str) -> None:
    run = run_on(make_graph(20, 3, (200, 60, 60)), CONFIGS[name])
    other = harmonium.diff(run, renumbered(run), missing=0)
    assert other.graph.is_empty and all(part.is_same for part in other.metrics)
    assert other.answers.changed == 0
    if other.probabilities:  # fitted on other samples
        assert max((abs(row["change"]) for row in other.probabilities.rows.rows), default=0) < 0.05


def test_it_is_the_same_every_time(trained: Run) -> None:
    run, other = trained, with_noise(trained, 0.1)
    first, second = (json.dumps(harmonium.diff(run, other, limit=10, missing=5).to_json()) for _ in range(2))
    assert first == second
    assert first != json.dumps(harmonium.diff(run, other, limit=10, seed=1, missing=5).to_json())


# Metrics --------------------------------------------------------------------------------------------------------------


def test_metrics_on_common_questions_are_those_of_an_evaluation(run: Run) -> None:
    other = with_noise(run, 0.3)
    parts = {part.split: part for part in harmonium.diff(run, other, missing=0).metrics}
    assert set(parts) == {"test", "valid"}
    for split, part in parts.items():
        for side, metrics in ((run, part.before), (other, part.after)):
            assert metrics == pytest.approx(side.evaluate(split=split).metrics)
        assert part.comparisons["mrr"].difference == pytest.approx(part.after["mrr"] - part.before["mrr"])
        assert part.better + part.worse <= part.queries == 120


def test_an_entity_that_only_one_run_has_is_no_candidate(run: Run) -> None:
    other = harmonium.diff(run, widened(run), missing=0)
    assert other.graph.entities["added"].count == 1
    assert all(part.is_same for part in other.metrics)
    back = harmonium.diff(widened(run), run, missing=0)
    assert back.graph.entities["removed"].count == 1 and all(part.is_same for part in back.metrics)


def test_facts_that_one_was_trained_on_are_not_compared(run: Run) -> None:
    graph = run.graph
    moved = replace(graph, train=Triples.cat([graph.train, graph.test[:20]]), test=graph.test[20:])
    test, valid = harmonium.diff(run, replace(run, graph=moved), missing=0).metrics
    assert (test.facts, valid.facts) == (40, 60)
    assert test.is_same  # the same model, filtered by the facts of both


def test_restricted_models_score_as_the_whole_one() -> None:
    graph = make_graph()
    for config in CONFIGS.values():
        model = untrained(graph, config)
        entities, relations = torch.tensor([3, 0, 7, 11]), torch.tensor([2, 0])
        small: GradientGraph = restrict(model, entities, relations)
        triples = Triples.from_rows([[0, 0, 1], [2, 1, 3], [1, 1, 1]])
        whole = Triples(entities[triples.head], relations[triples.relation], entities[triples.tail])
        assert torch.allclose(small.score(triples), model.score(whole))
        assert restrict(model, torch.arange(12), torch.arange(3)) is model


def test_noise_is_not_called_a_change_and_a_worse_model_is(trained: Run) -> None:
    graph = trained.graph
    noisy = harmonium.diff(trained, with_noise(trained, 1e-4), missing=0)
    assert {verdict(part.comparisons["mrr"]) for part in noisy.metrics} <= {"the same", "no clear change"}
    untaught = make_run(graph, untrained(graph))
    worse = harmonium.diff(trained, untaught, missing=0)
    assert {verdict(part.comparisons["mrr"]) for part in worse.metrics} == {"worse"}
    assert {verdict(part.comparisons["mrr"]) for part in harmonium.diff(untaught, trained, missing=0).metrics} == {
        "better"
    }
    assert worse.answers.lost > worse.answers.gained
    assert worse.answers.right[0] - worse.answers.right[1] == worse.answers.lost - worse.answers.gained


def test_random_models_rarely_differ_clearly() -> None:
    graph = make_graph(30, 12, (300, 0, 100))
    run = make_run(graph, untrained(graph))
    facts = JointFacts.of(graph, graph)
    verdicts = []
    for seed in range(10, 20):
        pair = run, with_noise(run, 10.0, seed)  # other random vectors
        (part,) = compare_metrics(facts, pair, 200, 0, 10)
        verdicts += [verdict(part.comparisons["mrr"]), *(row["verdict"] for row in part.by_relation.rows)]
    assert len(verdicts) > 50 and verdicts.count("no clear change") >= len(verdicts) - 1


# Answers --------------------------------------------------------------------------------------------------------------


def test_first_answers_are_those_of_predict_without_the_held_out_facts(trained: Run) -> None:
    other = with_noise(trained, 0.5)
    answers = harmonium.diff(trained, other, missing=0, top=100).answers
    empty = trained.graph.test[:0]
    asked = [replace(run, graph=replace(run.graph, valid=empty, test=empty)) for run in (trained, other)]
    assert answers.rows.count == answers.changed > 0
    for row in answers.rows.rows:
        head, relation, tail = (None if word == "?" else word for word in row["question"].split(", "))
        firsts = []
        for run in asked:
            best = run.predict(head, relation, tail, top=1, new_only=True, probability=False)
            firsts.append(best[0].name if best else None)
        assert [row["before"], row["after"]] == firsts
        rights = [first == row["held_out"] for first in firsts]
        assert row["change"] == {(False, True): "became right", (True, False): "became wrong"}.get(
            (rights[0], rights[1]), "still wrong"
        )


def test_probabilities_are_those_of_score(run: Run) -> None:
    other = with_noise(run, 0.5)
    rows = harmonium.diff(run, other, missing=0, top=100).probabilities.rows.rows
    assert [abs(row["change"]) for row in rows] == sorted((abs(row["change"]) for row in rows), reverse=True)
    facts = [(row["head"], row["relation"], row["tail"]) for row in rows]
    for side, each in (("before", run), ("after", other)):
        assert [row[side] for row in rows] == pytest.approx([fact.probability for fact in each.score(facts)], abs=1e-6)


def test_missing_facts_that_entered_and_left_are_those_of_the_lists_of_complete(run: Run) -> None:
    other = with_noise(run, 0.5)
    missing = harmonium.diff(run, other, missing=10, top=100).missing
    lists = [{row["text"]: row for row in each.complete(top=10, reasons=False)} for each in (run, other)]
    assert {row["text"] for row in missing.entered.rows} == lists[1].keys() - lists[0].keys()
    assert {row["text"] for row in missing.left.rows} == lists[0].keys() - lists[1].keys()
    assert missing.common == len(lists[0].keys() & lists[1].keys())
    for row in missing.entered.rows:
        assert row["after"] == pytest.approx(lists[1][row["text"]]["probability"], abs=1e-6)


def test_a_missing_fact_that_the_graph_now_has_leaves_the_list_and_says_so(run: Run) -> None:
    first = run.complete(top=1, reasons=False)[0]
    fact = run.graph.triple(first["head"], first["relation"], first["tail"])
    graph = replace(run.graph, train=Triples.cat([run.graph.train, fact]))
    missing = harmonium.diff(run, replace(run, graph=graph), missing=5).missing
    assert [(row["text"], row["after"], row["why"]) for row in missing.left.rows if row["why"]] == [
        (first["text"], None, "now in the graph")
    ]


# Other parts ----------------------------------------------------------------------------------------------------------


def test_settings_that_differ(run: Run) -> None:
    config = Config.read(None, ["train.seed=7", "model.entity_dim=9"])
    rows = harmonium.diff(
        run, replace(run, config=config, environment={**run.environment, "torch": "x"}), missing=0
    ).settings
    assert {row["setting"] for row in rows} == {"train.seed", "model.entity_dim", "environment.torch"}


def test_graphs_and_files_are_compared_without_runs(run: Run, tmp_path: Path) -> None:
    graph = run.graph
    lines = ["\t".join(names) for names in graph.names_of(graph.facts())]
    (tmp_path / "old.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "new.tsv").write_text("\n".join([*lines[1:], "e0\tr0\tsomeone new"]) + "\n")
    difference = harmonium.diff(tmp_path / "old.tsv", tmp_path / "new.tsv")
    assert difference.models is None and difference.metrics == ()
    assert (difference.graph.facts["added"].count, difference.graph.facts["removed"].count) == (1, 1)
    assert difference.graph.facts["moved"].count == 0  # neither has splits
    mixed = harmonium.diff(run, graph)
    assert not mixed.changed and "only one of them is a run" in mixed.notes[0]


def test_options_of_reading_are_refused_where_nothing_is_read(run: Run) -> None:
    with pytest.raises(HarmoniumError, match="both are runs, .* drop columns"):
        harmonium.diff(run, run, columns="1,2,3")


def test_it_says_that_few_facts_are_held_out_in_both(run: Run) -> None:
    graph = run.graph
    other = replace(graph, train=Triples.cat([graph.train, graph.test[5:]]), test=graph.test[:5])
    notes = harmonium.diff(run, replace(run, graph=other), missing=0).notes
    assert [note for note in notes if "only 5 of 60 test facts are held out in both" in note]


def test_graphs_without_common_held_out_facts(run: Run) -> None:
    graph = replace(run.graph, valid=run.graph.valid[:0], test=run.graph.test[:0])
    difference = harmonium.diff(run, replace(run, graph=graph), missing=3)
    assert difference.metrics == [] and difference.answers is None
    assert any("held out in both" in note for note in difference.notes)
    other = run_on(make_graph(5, 2, (10, 3, 3)))
    renamed = replace(other.graph, entities=Vocabulary([f"other {i}" for i in range(5)]))
    assert harmonium.diff(run, replace(other, graph=renamed), missing=2).metrics == []


def test_large_graphs_are_sampled_and_not_searched_for_missing_facts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from harmonium.analysis import diff as module

    monkeypatch.setattr(module, "MAX_PAIRS", 10)
    difference = harmonium.diff(run, with_noise(run, 0.1), limit=20)
    assert difference.missing is None and any("--missing 100" in note for note in difference.notes)
    assert [part.facts for part in difference.metrics] == [10, 10] and difference.metrics[0].of == 60
    assert harmonium.diff(run, with_noise(run, 0.1), limit=20, missing=3).missing.top == 3


def test_every_row_is_in_the_table(run: Run) -> None:
    difference = harmonium.diff(run, with_noise(widened(run), 0.5), top=5, missing=5)
    rows = difference.records()
    assert {row["part"] for row in rows} == {"graph", "metrics", "answers", "probabilities", "missing", "calibration"}
    assert len({tuple(row) for row in rows}) == 1  # the same columns
    assert difference.to_frame().height == len(rows)


# The page ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Difference, Path]:
    out = tmp_path_factory.mktemp("page") / "diff.html"
    return harmonium.diff(run, with_noise(widened(run), 0.5), out, missing=10), out


def test_the_page_is_whole_and_says_what_changed(page: tuple[Difference, Path]) -> None:
    difference, text = page[0], page[1].read_text(encoding="utf-8")
    parsed = Page(text)
    assert not {"script", "link", "iframe", "object"} & set(parsed.tags)
    assert "default-src 'none'" in text and not re.search(r"url\((?!#)|@import", text)
    ids, labels = parsed.all("id"), set(parsed.all("aria-labelledby"))
    links = {value.removeprefix("#") for value in parsed.all("href")}
    assert len(ids) == len(set(ids)) and links | labels <= set(ids)
    assert parsed.tags.count("table") == parsed.tags.count("caption") == parsed.tags.count("thead")
    assert parsed.tags.count("th") == len(parsed.all("scope"))
    for sentence in difference.summary:
        assert f"{sentence[0].upper()}{sentence[1:]}." in parsed.words
    for row in (*difference.answers.rows.rows, *difference.metrics[0].by_relation.rows):
        assert row.get("question", row.get("relation")) in parsed.words


def test_names_are_never_markup(run: Run) -> None:
    evil = '<script>alert("x")</script> & \x1b[31m'
    names = [f"{evil} {name}" for name in run.graph.entities.ids]
    graph = replace(run.graph, entities=Vocabulary(names), name=evil)
    difference = harmonium.diff(replace(run, graph=graph), with_noise(replace(run, graph=graph), 0.5), missing=5)
    assert "script" not in Page(difference.to_html()).tags
    assert "<script" not in difference._repr_html_() and "\x1b" not in str(difference)


def test_a_page_of_someone_else_is_not_replaced(run: Run, page: tuple[Difference, Path], tmp_path: Path) -> None:
    other = tmp_path / "page.html"
    other.write_text("<html>mine</html>")
    with pytest.raises(HarmoniumError, match="will not be replaced"):
        harmonium.diff(run, run, other)
    with pytest.raises(HarmoniumError, match=r"ends in \.html"):
        harmonium.diff(run, run, tmp_path / "page.pdf")
    harmonium.diff(run, run, page[1], missing=0)
    assert "Nothing changed." in page[1].read_text(encoding="utf-8")


@pytest.mark.browser
@needs_chromium
def test_a_browser_prints_it(run: Run, tmp_path: Path) -> None:
    harmonium.diff(run, with_noise(widened(run), 0.5), tmp_path / "diff.html", missing=10)
    assert 1 <= count_printed_sheets(tmp_path / "diff.html", tmp_path) <= 8
