from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import harmonium
from harmonium.answers.classify import (
    best_thresholds,
    classify_triples,
    label_facts,
    labelled_split,
    make_false_facts,
    ranking_quality,
)
from harmonium.answers.open_run import open_run
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from small import family, make_graph, make_run, untrained


def score(triples: Triples) -> torch.Tensor:
    """Any number for each fact."""
    return (7 * triples.head + 3 * triples.relation + 5 * triples.tail).double() % 11


# Scores and thresholds ------------------------------------------------------------------------------------------------


rows = st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 4), st.booleans()), min_size=1, max_size=25)


@given(rows, st.integers(-6, 6))
def test_thresholds_are_the_most_accurate_and_nearest(rows: list[tuple[int, int, bool]], near: int) -> None:
    """Against all cuts of each group: halfway between distinct scores, or beyond the ends."""
    group, scores, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
    found = best_thresholds(scores.double(), labels, group, 5, float(near)).tolist()
    reach = (int(scores.max()) - int(scores.min())) or 1
    for g in range(4):
        inside = [(s, truth) for other, s, truth in rows if other == g]
        if not inside:
            continue
        levels = sorted({int(scores.min()) - reach, *(s for s, _ in inside), max(s for s, _ in inside) + reach})
        cuts = [(low + high) / 2 for low, high in pairwise(levels)]
        right = {cut: sum((s >= cut) == truth for s, truth in inside) for cut in cuts}
        best = [cut for cut in cuts if right[cut] == max(right.values())]
        assert found[g] in best
        assert abs(found[g] - near) == min(abs(cut - near) for cut in best)
    assert len(found) == 5 and all(map(math.isfinite, found))


# The classifier --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run() -> Run:
    """Trained on the family; validation facts enough for thresholds of its relations' own."""
    overrides = ["model.composition=complex", "model.entity_dim=8", "train.epochs=60", "train.learning_rate=0.05"]
    run = harmonium.train(
        config="paper", data=family(), overrides=[*overrides, "train.batch_size=32", "train.negatives=16"]
    )
    graph = run.graph
    return replace(run, graph=replace(graph, valid=graph.train[:60], test=Triples.cat([graph.valid, graph.test])))


def test_metrics_are_their_definitions(run: Run) -> None:
    found = harmonium.classify(run, seed=1)
    generator = torch.Generator().manual_seed(1)
    _, (triples, truth) = (labelled_split(run.graph, split, generator) for split in ("valid", "test"))
    scores = open_run(run).held_out_scores(triples).tolist()
    relation, labels = triples.relation.tolist(), truth.tolist()
    facts, metrics = range(len(labels)), found.metrics
    margins = [scores[i] - found.thresholds[relation[i]].item() for i in facts]
    correct = [(margins[i] >= 0) == labels[i] for i in facts]
    assert metrics["accuracy"] == pytest.approx(sum(correct) / len(facts))
    one = sum((scores[i] >= found.threshold) == labels[i] for i in facts)
    assert metrics["accuracy_one_threshold"] == pytest.approx(one / len(facts))
    assert metrics["auc"] == ranking_quality(found.scores, found.labels)[0]
    assert metrics["auc_of_margins"] == ranking_quality(torch.tensor(margins), found.labels)[0]
    for r, name in enumerate(run.graph.relations.ids):
        rows = [i for i in facts if relation[i] == r]
        row = found.by_relation()[name]
        assert row["facts"] == len(rows)
        assert row["accuracy"] == pytest.approx(sum(correct[i] for i in rows) / len(rows))


def test_it_learned_to_label_facts(run: Run, tmp_path: Path) -> None:
    found = harmonium.classify(run)
    assert found.has_threshold.all()
    assert found.metrics["accuracy"] > 0.8
    false = make_false_facts(run.graph, run.graph.train, torch.Generator().manual_seed(9))
    labels = found.label(open_run(run).held_out_scores, Triples.cat([run.graph.train, false]))
    assert labels[:100].double().mean() > 0.9
    assert labels[100:].double().mean() < 0.2
    assert harmonium.classify(run).to_json() == found.to_json()
    assert harmonium.classify(run, seed=5).to_json() != found.to_json()


def test_labelled_facts_have_the_probability_of_score(tmp_path: Path) -> None:
    """One probability for a fact, whichever command reports it; none where none can be fitted."""
    graph = make_graph(20, 3, (200, 60, 60))
    run = make_run(graph, untrained(graph))
    found, names = harmonium.classify(run), graph.names_of(graph.test)
    facts = label_facts(run, names, found)
    assert [fact.triple for fact in facts] == names
    assert [fact.label for fact in facts] == found.label(open_run(run).held_out_scores, graph.test).tolist()
    assert {fact.label for fact in facts} == {True, False}
    expected = [fact.probability for fact in harmonium.score(run, names)]
    assert [fact.probability for fact in facts] == pytest.approx(expected)
    (tmp_path / "facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in names))
    assert label_facts(run, tmp_path / "facts.tsv", found) == facts
    few = replace(run, graph=replace(graph, valid=graph.valid[:5]))
    assert {fact.probability for fact in label_facts(few, names[:3], found)} == {None}


def test_a_relation_with_few_validation_facts_takes_the_threshold_of_all() -> None:
    graph = make_graph(n_relations=5, sizes=(200, 60, 60))
    valid, test = (labelled_split(graph, split, torch.Generator().manual_seed(0)) for split in ("valid", "test"))
    relation, truth = valid[0].relation, valid[1]
    keep = (relation != 0) & ~((relation == 1) & ~truth) & ~((relation == 2) & truth)  # absent, all true, all false
    keep &= relation != 3
    for label, count in ((True, 5), (False, 4)):
        keep[((relation == 3) & (truth == label)).nonzero()[:count, 0]] = True
    found = classify_triples(score, graph, (valid[0][keep], truth[keep]), test)
    nine = classify_triples(score, graph, (valid[0][keep], truth[keep]), test, minimum=9)
    assert found.has_threshold.tolist() == [False, False, False, False, True]
    assert nine.has_threshold.tolist() == [False, False, False, True, True]
    assert found.thresholds[:4].tolist() == [found.threshold] * 4
    assert found.thresholds[4] != found.threshold
    four = keep & (relation == 4)
    scores = score(valid[0][four])
    right = ((scores >= found.thresholds[4]) == truth[four]).sum()
    assert right >= ((scores >= found.threshold) == truth[four]).sum()
    report = found.to_json()
    assert list(report["thresholds"]) == [name for name, row in report["by_relation"].items() if row["own_threshold"]]
    assert list(report["thresholds"]) == ["r4"]


# Labelled facts -------------------------------------------------------------------------------------------------------


def test_a_false_fact_is_near_a_true_one_and_known_nowhere() -> None:
    graph = make_graph(sizes=(80, 60, 60))
    false = make_false_facts(graph, graph.test, torch.Generator().manual_seed(0))
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    seen = {(slot, row[1], row[slot]) for row in known for slot in (0, 2)}
    sides = []
    for old, new in zip(graph.test.to_rows().tolist(), false.to_rows().tolist(), strict=True):
        (changed,) = [slot for slot in range(3) if old[slot] != new[slot]]
        assert tuple(new) not in known
        assert (changed, new[1], new[changed]) in seen
        sides.append(changed)
    assert set(sides) == {0, 2}
    again = [make_false_facts(graph, graph.test, torch.Generator().manual_seed(seed)).to_rows() for seed in (0, 1)]
    assert [torch.equal(rows, false.to_rows()) for rows in again] == [True, False]


def test_a_false_fact_takes_any_entity_where_all_others_give_facts() -> None:
    graph = make_graph(sizes=(40, 8, 10))
    alone = Triples.from_rows([[0, 0, 1], [2, 0, 1]])  # a relation with a single tail
    graph = replace(graph, train=alone, valid=alone[:1], test=alone[:0])
    false = make_false_facts(graph, Triples.cat([graph.train] * 100), torch.Generator().manual_seed(0))
    assert not graph.known_answers(Slot.TAIL).contain(false).any()
    assert set(false.tail.tolist()) == set(range(12))
    everything = Triples.from_rows([[h, 0, t] for h in range(12) for t in range(12)])
    full = replace(graph, train=everything)
    with pytest.raises(HarmoniumError, match=r"cannot make a false fact from \(e0, r0, e0\)"):
        make_false_facts(full, full.train, torch.Generator().manual_seed(0))
