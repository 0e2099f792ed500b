from __future__ import annotations

import gzip
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import harmonium
from harmonium.classification import (
    Classification,
    best_thresholds,
    classify,
    corrupt,
    labelled,
    platt,
    ranking_quality,
    read_labelled,
    read_triples,
    score,
)
from harmonium.config import Config, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.figures import classification_figure
from harmonium.graph import Graph, Triples, Vocabulary
from harmonium.model import GradientGraph
from harmonium.run import Run
from harmonium.training import History
from small import family, make_graph

MODELS = {
    "harmony": ModelConfig("hole", 6, faithfulness=2.0),
    "low rank": ModelConfig("distmult", 6, rank=2),
    "plain": ModelConfig("complex", 6, harmony=False),
    "reciprocal": ModelConfig("complex", 6, reciprocal=True),
}


def random_model(graph: Graph, config: ModelConfig = MODELS["harmony"]) -> GradientGraph:
    return harmonium.build_model(config, graph.n_entities, graph.n_relations, seed=3)


def write_labelled(graph: Graph, facts: tuple[Triples, torch.Tensor], path: Path) -> Path:
    names = zip(graph.spell(facts[0]), facts[1].tolist(), strict=True)
    lines = [f"{head}\t{relation}\t{tail}\t{1 if label else -1}\n" for (head, relation, tail), label in names]
    path.write_text("".join(lines), encoding="utf-8")
    return path


# Labelled facts --------------------------------------------------------------------------------------------------


def test_labels_may_be_written_in_several_ways(tmp_path: Path) -> None:
    bare = make_graph()
    graph = replace(bare, entities=Vocabulary(bare.entities.ids, [f"person {i}" for i in range(12)], "entity"))
    text = "\ufeffe1\tr0\te2\t1\r\n\ne3\tr1\tperson 4\t-1\nperson 5\tr2\te6\tTrue\ne7\tr0\te8\tfalse\ne9\tr0\te1\t0\n"
    (tmp_path / "facts.txt").write_bytes(text.encode())
    (tmp_path / "facts.tsv.gz").write_bytes(gzip.compress(text.encode()))
    for file in ("facts.txt", "facts.tsv.gz"):
        triples, labels = read_labelled(tmp_path / file, graph)
        assert triples.rows().tolist() == [[1, 0, 2], [3, 1, 4], [5, 2, 6], [7, 0, 8], [9, 0, 1]]
        assert labels.tolist() == [True, False, True, False, False]
    (tmp_path / "three.txt").write_text("e1\tr0\te2\n")
    assert read_triples(str(tmp_path / "three.txt"), graph).rows().tolist() == [[1, 0, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"e1\tr0\te2\t1\ne1\tr0\te2\n",
            r"bad.txt:2: found 3 columns, expected 4: head TAB relation TAB tail TAB label",
        ),
        (b"\ne1\tr0\te2\tyes\n", r"bad.txt:2: the label is 'yes'; expected 1 or true, or else -1, 0 or false"),
        (b"e1\tr0\te2\t1\ne1\tr0\te99\t1\n", r"bad.txt:2: no entity named 'e99' among 12"),
        (b"e1\tr9\te2\t1\n", r"bad.txt:1: no relation named 'r9'"),
        (b"\n\n", r"bad.txt: no triples in it; each line is head TAB"),
        (b"e1\tr0\t\xff\t1\n", r"bad.txt: cannot be read \('utf-8' codec.*; give a UTF-8 file"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(HarmoniumError, match=message):
        read_labelled(tmp_path / "bad.txt", make_graph())


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match=r"gone.txt: cannot be read \(No such file or directory\)"):
        read_labelled(tmp_path / "gone.txt", make_graph())
    (tmp_path / "half.gz").write_bytes(gzip.compress(b"e1\tr0\te2\t1\n" * 99)[:30])
    with pytest.raises(HarmoniumError, match=r"half.gz: cannot be read"):
        read_labelled(tmp_path / "half.gz", make_graph())


def test_a_false_fact_is_near_a_true_one_and_known_nowhere() -> None:
    graph = make_graph(sizes=(80, 60, 60))
    false = corrupt(graph, graph.test, torch.Generator().manual_seed(0))
    known = {tuple(row) for row in graph.facts().rows().tolist()}
    seen = {(place, row[1], row[place]) for row in known for place in (0, 2)}
    sides = []
    for old, new in zip(graph.test.rows().tolist(), false.rows().tolist(), strict=True):
        (changed,) = [place for place in range(3) if old[place] != new[place]]
        assert tuple(new) not in known
        assert (changed, new[1], new[changed]) in seen
        sides.append(changed)
    assert set(sides) == {0, 2}
    same, other = (corrupt(graph, graph.test, torch.Generator().manual_seed(seed)).rows() for seed in (0, 1))
    assert torch.equal(same, false.rows())
    assert not torch.equal(other, false.rows())


def test_every_entity_seen_there_is_drawn_equally_often() -> None:
    """Tail 0 is frequent in the relation, 9 and 10 are rare; each stands for 11 in a third of the false facts."""
    rows = [[head, 0, 0] for head in range(1, 9)] + [[1, 0, 9], [1, 0, 10]]
    graph = replace(
        make_graph(), train=Triples.from_rows(rows), valid=Triples.from_rows([]), test=Triples.from_rows([])
    )
    fact = Triples.from_rows([[9, 0, 11]] * 6000)
    false = corrupt(graph, fact, torch.Generator().manual_seed(0))
    tails = false.tail[false.head == 9].bincount(minlength=12)
    assert tails.nonzero()[:, 0].tolist() == [0, 9, 10]
    assert tails[[0, 9, 10]].sum().item() == pytest.approx(3000, abs=200)
    assert tails[[0, 9, 10]].tolist() == pytest.approx([1000] * 3, abs=120)


def test_a_false_fact_takes_anyone_where_all_seen_there_are_true() -> None:
    graph = make_graph(sizes=(40, 8, 10))
    alone = Triples.from_rows([[0, 0, 1], [2, 0, 1]])  # a relation with a single tail
    graph = replace(graph, train=alone, valid=alone[:1], test=alone[:0])
    false = corrupt(graph, Triples.cat([graph.train] * 100), torch.Generator().manual_seed(0))
    assert not graph.answers(harmonium.Slot.TAIL).contain(false).any()
    assert set(false.tail.tolist()) == set(range(12))
    everything = Triples.from_rows([[h, 0, t] for h in range(12) for t in range(12)])
    full = replace(graph, train=everything)
    with pytest.raises(HarmoniumError, match=r"no false fact like \(e0, r0, e0\) was found"):
        corrupt(full, full.train, torch.Generator().manual_seed(0))


def test_half_of_labelled_facts_are_true() -> None:
    graph = make_graph()
    triples, labels = labelled(graph, "test", torch.Generator().manual_seed(0))
    assert torch.equal(graph.answers(harmonium.Slot.TAIL).contain(triples), labels)
    assert (len(labels), int(labels.sum())) == (20, 10)
    empty = replace(graph, valid=graph.valid[:0])
    with pytest.raises(HarmoniumError, match="the valid split of 'random' has no triples"):
        labelled(empty, "valid")


# Scores, thresholds, probabilities -------------------------------------------------------------------------------


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS.keys())
def test_scores_are_the_models_without_the_constant(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    model, facts = random_model(graph, config).double(), graph.facts()
    expected = model.score(facts)
    if config.reciprocal:
        back = model.composition.compose(
            model.entities(facts.tail), model.relations(facts.relation + graph.n_relations), model.entities(facts.head)
        )
        expected = (expected + model.form.fold()(back)) / 2
    expected = (expected - model.form.fold().constant).detach()
    monkeypatch.setattr("harmonium.classification.CHUNK", 7)
    torch.testing.assert_close(score(model, facts), expected, rtol=1e-10, atol=1e-10)
    single = score(model.float(), facts)
    assert single.dtype == torch.float64
    torch.testing.assert_close(single, expected, rtol=1e-4, atol=1e-5)


def test_scores_that_are_not_numbers_are_refused() -> None:
    graph = make_graph()
    model = random_model(graph)
    with torch.no_grad():
        model.entity[0] = torch.nan
    with pytest.raises(HarmoniumError, match="scores that are not numbers"):
        score(model, graph.train)


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


def test_platt_finds_the_logistic_that_made_the_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = 50 + 4 * torch.randn(200_000, dtype=torch.float64, generator=generator)
    labels = torch.rand(200_000, dtype=torch.float64, generator=generator) < (0.7 * (scores - 51)).sigmoid()
    slope, intercept = platt(scores, labels)
    assert slope == pytest.approx(0.7, rel=0.02)
    assert -intercept / slope == pytest.approx(51, abs=0.05)
    true, false = labels.sum(), (~labels).sum()
    target = torch.where(labels, (true + 1) / (true + 2), 1 / (false + 2)).double()
    wrong = (slope * scores + intercept).sigmoid() - target  # the gradient is zero
    assert wrong.mean().item() == pytest.approx(0, abs=1e-9)
    assert (wrong * (scores - 50)).mean().item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("gap", [1e-6, 1.0, 1e6])
def test_platt_stays_finite_when_scores_separate_or_say_nothing(gap: float) -> None:
    labels = torch.tensor([False] * 5 + [True] * 20)
    slope, intercept = platt(labels.double() * gap, labels)
    said = (slope * torch.tensor([0.0, gap], dtype=torch.float64) + intercept).sigmoid()
    assert said.tolist() == pytest.approx([1 / 7, 21 / 22], abs=1e-6)  # Platt's targets themselves
    slope, intercept = platt(torch.full((25,), 3.0, dtype=torch.float64), labels)
    assert 1 / (1 + math.exp(-3 * slope - intercept)) == pytest.approx((5 / 7 + 20 * 21 / 22) / 25, abs=1e-4)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_ranking_quality_is_the_definition(rows: list[tuple[int, bool]]) -> None:
    """AUC: the share of (true, false) pairs in order, ties half. AP: precision at each distinct score, by recall gained."""
    scores, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
    auc, precision = ranking_quality(scores.double(), labels)
    true, false = ([s for s, label in rows if label is kind] for kind in (True, False))
    if true and false:
        assert auc == pytest.approx(sum((t > f) + (t == f) / 2 for t in true for f in false) / len(true) / len(false))
    else:
        assert math.isnan(auc)
    if true:
        above = {s: [label for other, label in rows if other >= s] for s in set(scores.tolist())}
        parts = [true.count(s) * sum(above[s]) / len(above[s]) for s in above]
        assert precision == pytest.approx(sum(parts) / len(true))
    else:
        assert math.isnan(precision)


# The classifier --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run() -> Run:
    """Trained on the family; validation facts enough for thresholds of its relations' own."""
    sets = ["model.composition=complex", "model.entity_dim=8", "train.epochs=60", "train.learning_rate=0.05"]
    run = harmonium.train(data=family(), sets=[*sets, "train.batch_size=32", "train.negatives=16"])
    graph = run.graph
    return replace(run, graph=replace(graph, valid=graph.train[:60], test=Triples.cat([graph.valid, graph.test])))


def test_metrics_are_their_definitions(run: Run) -> None:
    found = harmonium.classify(run, seed=1)
    generator = torch.Generator().manual_seed(1)
    valid, test = (labelled(run.graph, split, generator) for split in ("valid", "test"))
    scores, relation, labels = score(run.model, test[0]).tolist(), test[0].relation.tolist(), test[1].tolist()
    margins = [s - found.thresholds[r].item() for s, r in zip(scores, relation, strict=True)]
    said = [1 / (1 + math.exp(-found.slope * m - found.intercept)) for m in margins]
    facts, metrics = range(len(labels)), found.metrics
    right = [(margins[i] >= 0) == labels[i] for i in facts]
    assert metrics["accuracy"] == pytest.approx(sum(right) / len(facts))
    one = sum((scores[i] >= found.threshold) == labels[i] for i in facts)
    assert metrics["accuracy_one_threshold"] == pytest.approx(one / len(facts))
    assert metrics["auc"] == ranking_quality(found.scores, found.labels)[0]
    assert metrics["auc_of_margins"] == ranking_quality(torch.tensor(said), found.labels)[0]
    assert metrics["brier"] == pytest.approx(sum((said[i] - labels[i]) ** 2 for i in facts) / len(facts))
    loss = -sum(math.log(said[i] if labels[i] else 1 - said[i]) for i in facts) / len(facts)
    assert metrics["log_loss"] == pytest.approx(loss)
    error = 0.0
    for part in found.reliability():
        inside = [i for i in facts if part["from"] <= said[i] < part["to"]]
        assert part["facts"] == len(inside)
        if inside:
            assert part["probability"] == pytest.approx(sum(said[i] for i in inside) / len(inside))
            assert part["true"] == pytest.approx(sum(labels[i] for i in inside) / len(inside))
            error += abs(sum(said[i] - labels[i] for i in inside))
    assert metrics["calibration_error"] == pytest.approx(error / len(facts))
    for r, name in enumerate(run.graph.relations.ids):
        inside = [i for i in facts if relation[i] == r]
        row = found.by_relation()[name]
        assert (row["facts"], row["accuracy"]) == (
            len(inside),
            pytest.approx(sum(right[i] for i in inside) / len(inside)),
        )
    assert len(found.reliability()) == 10
    expected = platt(score(run.model, valid[0]) - found.thresholds[valid[0].relation], valid[1])
    assert (found.slope, found.intercept) == expected


def test_it_learned_to_tell_facts_and_labels_new_ones(run: Run) -> None:
    found = harmonium.classify(run)
    assert found.own.all()
    assert found.metrics["accuracy"] > 0.8
    assert found.metrics["brier"] < 0.15
    false = corrupt(run.graph, run.graph.train, torch.Generator().manual_seed(9))
    called, probability = found.label(run.model, Triples.cat([run.graph.train, false]))
    assert called[:100].double().mean() > 0.9
    assert called[100:].double().mean() < 0.2
    assert probability[called].min() > probability[~called].max()  # the margin decides both
    again = harmonium.classify(run)
    assert again.to_json() == found.to_json()
    assert harmonium.classify(run, seed=5).to_json() != found.to_json()


def test_a_relation_without_enough_validation_facts_takes_the_threshold_of_all() -> None:
    graph = make_graph(n_relations=5, sizes=(200, 60, 60))
    model = random_model(graph)
    valid, test = (labelled(graph, split, torch.Generator().manual_seed(0)) for split in ("valid", "test"))
    relation, truth = valid[0].relation, valid[1]
    keep = (relation != 0) & ~((relation == 1) & ~truth) & ~((relation == 2) & truth)  # absent, all true, all false
    keep &= relation != 3
    for label, count in ((True, 5), (False, 4)):
        keep[((relation == 3) & (truth == label)).nonzero()[:count, 0]] = True
    found = classify(model, graph, (valid[0][keep], truth[keep]), test)
    nine = classify(model, graph, (valid[0][keep], truth[keep]), test, minimum=9)
    assert found.own.tolist() == [False, False, False, False, True]
    assert nine.own.tolist() == [False, False, False, True, True]
    assert found.thresholds[:4].tolist() == [found.threshold] * 4
    assert found.thresholds[4] != found.threshold
    four = keep & (relation == 4)
    scores = score(model, valid[0][four])
    right = ((scores >= found.thresholds[4]) == truth[four]).sum()
    assert right >= ((scores >= found.threshold) == truth[four]).sum()
    report = found.to_json()
    assert list(report["thresholds"]) == ["r4"]
    assert report["by_relation"]["r4"]["own_threshold"] is True
    assert report["by_relation"]["r0"]["own_threshold"] is False


def test_one_class_only() -> None:
    graph = make_graph()
    model = random_model(graph)
    facts, labels = labelled(graph, "test", torch.Generator().manual_seed(0))
    with pytest.raises(HarmoniumError, match="all 10 validation facts are true; a threshold needs both"):
        classify(model, graph, (facts[labels], labels[labels]), (facts, labels))
    with pytest.raises(HarmoniumError, match="all 10 validation facts are false"):
        classify(model, graph, (facts[~labels], labels[~labels]), (facts, labels))
    found = classify(model, graph, (facts, labels), (facts[labels], labels[labels]))
    assert math.isnan(found.metrics["auc"])
    assert found.to_json()["metrics"]["auc"] is None
    assert found.to_json()["facts"] == {"true": 10, "false": 0}


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS.keys())
def test_every_kind_of_model_is_classified_from_files_as_from_memory(config: ModelConfig, tmp_path: Path) -> None:
    graph = make_graph(sizes=(60, 30, 30))
    run = Run(Config(), graph, random_model(graph, config), History(), {})
    expected = harmonium.classify(run)
    generator = torch.Generator().manual_seed(0)
    files = [
        write_labelled(graph, labelled(graph, split, generator), tmp_path / f"classification_{split}.txt")
        for split in ("valid", "test")
    ]
    for source in (tmp_path, files, [str(tmp_path)]):
        found = harmonium.classify(run, source)
        assert found.source == "classification_valid.txt and classification_test.txt"
        assert replace(found, source=expected.source).to_json() == expected.to_json()
    with pytest.raises(HarmoniumError, match="--labelled is one folder or two files, valid and test; given: 1"):
        harmonium.classify(run, files[:1])


def test_a_figure_is_drawn(run: Run, tmp_path: Path) -> None:
    found = harmonium.classify(run, plot=tmp_path / "folder" / "a.png")
    assert isinstance(found, Classification)
    assert (tmp_path / "folder" / "a.png").read_bytes().startswith(b"\x89PNG")
    only_true = replace(found, scores=found.scores[:3], labels=found.labels[:3], relation=found.relation[:3])
    assert classification_figure(only_true, tmp_path / "b.svg").stat().st_size > 1000
