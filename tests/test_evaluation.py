from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.config import EvaluateConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Frequency, Ranks, describe, evaluate, rank
from harmonium.graph import SPLITS, Graph, Slot, Triples, Vocabulary
from small import make_graph


@dataclass
class Table:
    """Scores from a table, one row per (slot, given entity, relation)."""

    heads: torch.Tensor  # (n_relations, n_entities of the tail, n_entities)
    tails: torch.Tensor

    def score_slot(self, slot: Slot, queries: Triples) -> torch.Tensor:
        table, known = (self.heads, queries.tail) if slot is Slot.HEAD else (self.tails, queries.head)
        return table[queries.relation, known]


def random_table(graph: Graph, levels: int, seed: int) -> Table:
    """Integer scores with few levels make many ties."""
    shape = (graph.n_relations, graph.n_entities, graph.n_entities)
    generator = torch.Generator().manual_seed(seed)
    return Table(*(torch.randint(levels, shape, generator=generator).float() for _ in range(2)))


def brute_force(scorer: Table, graph: Graph, protocol: EvaluateConfig) -> list[float]:
    """Ranks by the definition: list the candidates, sort, look. One query at a time, plain Python."""
    known = {tuple(row) for split in SPLITS for row in getattr(graph, split).rows().tolist()}
    sources = {"typed-train": ("train",), "typed-all": SPLITS}.get(protocol.candidates, ())
    seen = {tuple(row) for split in sources for row in getattr(graph, split).rows().tolist()}
    trained = {e for h, _, t in graph.train.rows().tolist() for e in (h, t)}
    found = []
    for slot in ("head", "tail"):
        if protocol.side not in ("both", slot):
            continue
        for h, r, t in getattr(graph, protocol.split).rows().tolist():
            if protocol.unseen == "drop" and not {h, t} <= trained:
                continue
            place, truth = (0, h) if slot == "head" else (2, t)
            row = (scorer.heads[r][t] if slot == "head" else scorer.tails[r][h]).tolist()
            competitors = []
            for e in range(graph.n_entities):
                triple = (e, r, t) if slot == "head" else (h, r, e)
                allowed = not sources or any(f[1] == r and f[place] == e for f in seen)
                if e != truth and allowed and not (protocol.filtered and triple in known):
                    competitors.append(row[e])
            better = sum(s > row[truth] for s in competitors)
            tied = sum(s == row[truth] for s in competitors)
            share = {"realistic": tied / 2, "optimistic": 0, "pessimistic": tied}[protocol.ties]
            found.append(1 + better + share)
    return found


protocols = st.builds(
    EvaluateConfig,
    split=st.sampled_from(SPLITS),
    candidates=st.sampled_from(["full", "typed-train", "typed-all"]),
    ties=st.sampled_from(["realistic", "optimistic", "pessimistic"]),
    side=st.sampled_from(["head", "tail", "both"]),
    filtered=st.booleans(),
    unseen=st.sampled_from(["keep", "drop"]),
)


@given(protocol=protocols, levels=st.sampled_from([1, 2, 4, 1000]), seed=st.integers(0, 50), chunk=st.integers(1, 50))
def test_ranks_equal_brute_force(protocol, levels, seed, chunk) -> None:
    graph = make_graph(n_entities=9, n_relations=2, sizes=(30, 6, 7), seed=seed)
    scorer = random_table(graph, levels, seed)
    expected = brute_force(scorer, graph, protocol)
    if not expected:
        with pytest.raises(HarmoniumError, match="no triples to rank"):
            evaluate(scorer, graph, protocol, chunk=chunk)
        return
    result = evaluate(scorer, graph, protocol, chunk=chunk)
    assert result.ranks.values(protocol.ties).tolist() == expected
    assert result.metrics["mr"] == pytest.approx(sum(expected) / len(expected))
    assert result.metrics["mrr"] == pytest.approx(sum(1 / r for r in expected) / len(expected))
    assert result.metrics["hits@3"] == pytest.approx(sum(r <= 3 for r in expected) / len(expected))


def hand_graph() -> Graph:
    """Four entities, one relation. train: 0-1, 0-2; test: 0-3."""
    split = [Triples.from_rows(rows) for rows in ([[0, 0, 1], [0, 0, 2]], [[1, 0, 2]], [[0, 0, 3]])]
    return Graph(Vocabulary(list("abcd")), Vocabulary(["r"], kind="relation"), *split, name="hand")


def test_a_case_worked_by_hand() -> None:
    """Tail query (a, r, ?), truth d. Scores a 2, b 5, c 1, d 2: b is a known answer, a ties, so 1 + 0 + 1/2."""
    scores = torch.tensor([2.0, 5.0, 1.0, 2.0]).expand(1, 4, 4)
    graph = hand_graph()
    for filtered, ties, expected in [
        (True, "realistic", 1.5), (True, "optimistic", 1), (True, "pessimistic", 2), (False, "realistic", 2.5),
    ]:  # fmt: skip
        protocol = EvaluateConfig(side="tail", filtered=filtered, ties=ties)
        assert evaluate(Table(scores, scores), graph, protocol).ranks.values(ties).tolist() == [expected]
    amri = evaluate(Table(scores, scores), graph, EvaluateConfig(side="tail")).metrics["amri"]
    assert amri == pytest.approx(1 - (1.5 - 1) / ((2 + 1) / 2 - 1))  # two candidates are left: a and d


def test_metrics_by_hand() -> None:
    better, tied, candidates = torch.tensor([0, 1, 9, 0]), torch.tensor([0, 0, 0, 3]), torch.tensor([10, 10, 10, 4])
    ranks = Ranks(better, tied, candidates, torch.zeros(4).long(), torch.zeros(4).bool())
    metrics = ranks.metrics()
    assert metrics["mr"] == (1 + 2 + 10 + 2.5) / 4
    assert metrics["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 10 + 1 / 2.5) / 4)
    assert (metrics["hits@1"], metrics["hits@3"], metrics["hits@10"]) == (0.25, 0.75, 1)
    assert metrics["amri"] == pytest.approx(1 - (metrics["mr"] - 1) / ((5.5 * 3 + 2.5) / 4 - 1))
    assert ranks.metrics("pessimistic")["hits@3"] == 0.5


def test_a_constant_scorer_is_at_chance() -> None:
    graph = make_graph()
    constant = Table(*[torch.zeros(3, 12, 12)] * 2)
    assert evaluate(constant, graph).metrics["amri"] == pytest.approx(0, abs=1e-12)
    assert evaluate(constant, graph, EvaluateConfig(ties="optimistic")).metrics["mrr"] == 1


def test_parts_add_up() -> None:
    graph = make_graph(n_entities=20, sizes=(80, 10, 30))
    result = evaluate(random_table(graph, 50, 1), graph)
    relations = result.by_relation()
    assert sum(part["queries"] for part in relations.values()) == len(result.ranks) == 60
    mean = sum(part["queries"] * part["mrr"] for part in relations.values()) / 60
    assert mean == pytest.approx(result.metrics["mrr"])
    kinds = [part for sides in result.by_category().values() for part in sides.values()]
    assert sum(part["queries"] for part in kinds) == 60
    sides = result.by_side()
    assert (sides["head"]["mrr"] + sides["tail"]["mrr"]) / 2 == pytest.approx(result.metrics["mrr"])
    assert result.to_json()["protocol"]["filter"] == list(SPLITS)
    assert "filtered by train+valid+test" in describe(result.protocol)


def test_relations_can_be_ranked_too() -> None:
    graph = make_graph()

    class Truth:
        def score_slot(self, slot, queries):
            return torch.nn.functional.one_hot(queries.relation, graph.n_relations).float()

    ranks = rank(Truth(), graph.test, Slot.RELATION, graph.answers(Slot.RELATION))
    assert ranks.values().eq(1).all()
    assert ranks.candidates.max() <= graph.n_relations


def test_frequency_counts_fillers() -> None:
    graph = hand_graph()
    assert Frequency(graph).score_slot(Slot.TAIL, graph.test).tolist() == [[0, 1, 1, 0]]
    assert Frequency(graph).score_slot(Slot.HEAD, graph.test).tolist() == [[2, 0, 0, 0]]


def test_scores_that_are_not_numbers_are_refused() -> None:
    broken = Table(*[torch.full((3, 12, 12), math.nan)] * 2)
    with pytest.raises(HarmoniumError, match="not numbers"):
        evaluate(broken, make_graph())


def test_ranking_keeps_nothing_of_past_chunks() -> None:
    from harmonium.config import Config
    from harmonium.training import build_model

    graph = make_graph()
    snapshot = build_model(Config().model, graph.n_entities, graph.n_relations).snapshot()
    rank(snapshot, graph.test, Slot.TAIL, chunk=2)
    assert not snapshot.gathered
