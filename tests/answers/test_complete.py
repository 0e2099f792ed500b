from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.answers import complete as complete_module
from harmonium.answers.complete import MissingFacts, find_missing, open_or_train
from harmonium.answers.probability import Calibration, SlotCalibration
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import MAX_SCORES
from harmonium.model import gradient_graph
from harmonium.model.build import build_model
from harmonium.model.scoring import EmbeddingScorer, Scorer
from harmonium.run.run import Run
from harmonium.runtime.config import ModelConfig
from harmonium.runtime.errors import HarmoniumError
from small import make_graph, make_run, random_model

FIT = SlotCalibration(1.3, 0.7, -0.5, "test", 1, 1, 1, 0.0, 0.0, 0.0, [])
CALIBRATION = Calibration("g", {Slot.TAIL: FIT})


class Ties(Scorer):
    """Three scores for each of three kinds of head, so that many facts are equal, of one head and of several."""

    def __init__(self, graph: Graph) -> None:
        few = torch.randint(3, (3, graph.n_relations, graph.n_entities), generator=torch.Generator().manual_seed(0))
        kinds = few * torch.rand(3, graph.n_relations, 1, generator=torch.Generator().manual_seed(1))
        self.scores = kinds[torch.arange(graph.n_entities) % 3]

    def score_slot(self, slot: Slot, queries: Triples) -> torch.Tensor:
        return self.scores[queries.head, queries.relation].clone()


def brute_force(scorer, graph: Graph, relations, typed: bool, calibration: Calibration | None) -> list:
    """(log-odds, head, relation, tail, score) of every triple that may be missing, best first, by the definitions."""
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    found = []
    for r in relations:
        heads, tails = {h for h, q, _ in known if q == r}, {t for _, q, t in known if q == r}
        loops = any(h == t for h, q, t in known if q == r)
        for h in range(graph.n_entities):
            with torch.no_grad():
                scores = scorer.score_slot(Slot.TAIL, Triples.from_rows([[h, r, 0]]))[0].double()
            answered = sum((h, r, t) in known for t in range(graph.n_entities))
            for t in range(graph.n_entities):
                if (h, r, t) in known or (typed and (h not in heads or t not in tails or (h == t and not loops))):
                    continue
                p = scores.softmax(0)[t]
                odds = torch.log(p / (1 - p)).item()
                if calibration:
                    odds = 1.3 * odds + 0.7 * torch.log(torch.tensor(1.0 + answered)).item() - 0.5
                found.append((odds, h, r, t, scores[t].item()))
    return sorted(found, key=lambda row: (-round(row[0], 5), row[2], row[1], row[3]))


def rows(found: MissingFacts) -> list[tuple]:
    return [tuple(row) for row in found.triples.to_rows().tolist()]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("calibration", [CALIBRATION, None], ids=["calibrated", "bare"])
def test_equals_brute_force_with_ties(monkeypatch, calibration, typed: bool, chunk: int) -> None:
    monkeypatch.setitem(MAX_SCORES, "cpu", 12 * chunk)
    graph = make_graph(sizes=(40, 8, 10))
    scorer = Ties(graph)
    for relations in ([1], [2, 0], None):
        expected = brute_force(scorer, graph, relations or range(3), typed, calibration)
        for top in (1, 5, 33, 10_000):
            found = find_missing(scorer, graph, relations, top, typed, calibration)
            assert rows(found) == [row[1:4] for row in expected[:top]]
            assert found.scores.tolist() == [row[4] for row in expected[:top]]
            odds = found.probabilities.logit().tolist() if calibration else None
            assert odds == (pytest.approx([row[0] for row in expected[:top]], abs=1e-4) if calibration else None)


@pytest.mark.parametrize("config", [ModelConfig("hole", 6), ModelConfig("complex", 6, reciprocal=True, harmony=False)])
@pytest.mark.parametrize("block", [7, 1000])
def test_bounds_exclude_no_fact(monkeypatch, block: int, config: ModelConfig) -> None:
    """A model is asked by falling bounds; heads that cannot improve on the best facts are never asked."""
    monkeypatch.setitem(MAX_SCORES, "cpu", 40 * 2)
    monkeypatch.setitem(gradient_graph.BLOCK, "cpu", block)
    graph = make_graph(40, 3, (150, 8, 10))
    model = build_model(config, graph.n_entities, graph.n_relations, seed=3)
    with torch.no_grad():
        model.entity.mul_(3)
    asked: list[int] = []
    score_blocks = EmbeddingScorer.score_blocks

    def count_queries(scorer: EmbeddingScorer, slot: Slot, queries: Triples):
        asked.append(len(queries))
        return score_blocks(scorer, slot, queries)

    monkeypatch.setattr(EmbeddingScorer, "score_blocks", count_queries)
    for relations in ([0], [1, 2], None):
        expected = brute_force(model, graph, relations or range(3), True, CALIBRATION)
        asked.clear()
        found = find_missing(model, graph, relations, 3, True, CALIBRATION)
        assert rows(found) == [row[1:4] for row in expected[:3]]
        heads = graph.slot_candidates(Slot.HEAD).lookup(torch.tensor(relations or range(3)))[1]
        assert 0 < sum(asked) < len(heads)


def test_loops_are_missing_only_where_a_relation_has_some() -> None:
    graph = make_graph(sizes=(60, 8, 10))
    scorer = Ties(graph)
    scorer.scores[torch.arange(12), :, torch.arange(12)] = 9.0
    without = graph.train[graph.train.head != graph.train.tail]
    empty = without[:0]
    graph = replace(graph, train=without, valid=empty, test=empty)
    assert all(h != t for h, _, t in rows(find_missing(scorer, graph, None, 50)))
    one = replace(graph, valid=Triples.from_rows([[3, 1, 3]]))
    found = rows(find_missing(scorer, one, None, 50))
    assert {r for h, r, t in found if h == t} == {1}
    assert found[0][0] == found[0][2]


def test_a_relation_with_nothing_missing_is_empty() -> None:
    graph = make_graph(sizes=(40, 8, 10))
    full = Triples.from_rows([[h, 0, t] for h in range(12) for t in range(12)])
    assert len(find_missing(Ties(graph), replace(graph, train=full), [0])) == 0
    unused = replace(graph, train=full, valid=full[:0], test=full[:0])
    assert len(find_missing(Ties(graph), unused, [1])) == 0


def test_complete_gives_rows_by_name_and_writes_them(tmp_path: Path) -> None:
    graph = make_graph(20, 3, (200, 60, 60))
    run = make_run(graph, random_model(graph, "distmult", 6).float())
    facts = harmonium.complete(run, "r1", top=4, out=tmp_path / "missing.tsv")
    known = set(graph.names_of(graph.facts()))
    assert [row["rank"] for row in facts] == [1, 2, 3, 4]
    for row in facts:
        fact = row["head"], row["relation"], row["tail"]
        assert fact not in known
        assert row["text"] == ", ".join(fact)
        assert row["relation"] == "r1"
    scored = harmonium.score(run, [(row["head"], row["relation"], row["tail"]) for row in facts])
    assert [row["probability"] for row in facts] == pytest.approx([fact.probability for fact in scored], rel=1e-4)
    lines = (tmp_path / "missing.tsv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[1].split("\t")[:3] == [facts[0]["head"], "r1", facts[0]["tail"]]


def test_a_graph_is_trained_on_first(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained = []

    def train(data: Graph | str, out: Path | None = None, progress: object = None) -> Run:
        trained.append((data, out))
        return make_run(graph, random_model(graph).float())

    monkeypatch.setattr(complete_module, "train", train)
    assert len(harmonium.complete(graph, top=3)) == 3
    open_or_train("data/facts.tsv.gz")
    assert trained == [(graph, None), ("data/facts.tsv.gz", Path("runs/facts"))]
    assert open_or_train(make_run(graph, random_model(graph))).graph is graph
    Path("runs/facts").mkdir(parents=True)
    with pytest.raises(HarmoniumError, match="runs/facts exists"):
        open_or_train("data/facts.tsv.gz")
    assert len(trained) == 2
