from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonium import model as model_module
from harmonium.config import Config, EvaluateConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import (
    Estimate,
    Frequency,
    Ranks,
    best,
    describe,
    evaluate,
    inside,
    rank,
    steady,
    weigh,
)
from harmonium.graph import SPLITS, Graph, Slot, Triples, Vocabulary
from harmonium.training import build_model
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


@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
def test_metrics_are_those_of_pykeen(levels: int) -> None:
    """On random scores with many ties, kept with PyKEEN's metrics by make_pykeen_metrics.py."""
    kept = json.loads(Path(__file__).with_name("pykeen_metrics.json").read_text(encoding="utf-8"))
    names = [Vocabulary([f"{kind}{i}" for i in range(n)], kind=kind) for kind, n in (("entity", 17), ("relation", 3))]
    graph = Graph(*names, *(Triples.from_rows(kept[split]) for split in SPLITS), name="random")
    (case,) = [case for case in kept["cases"] if case["levels"] == levels]
    scorer = Table(*(torch.tensor(case[side]).float() for side in ("heads", "tails")))
    assert len(case["metrics"]) == 18
    for about, metrics in case["metrics"].items():
        which, side, ties = about.split()
        found = evaluate(
            scorer, graph, EvaluateConfig(filtered=which == "filtered", side=side, ties=ties), chunk=7
        ).metrics
        assert found == pytest.approx(found | metrics, rel=1e-6, abs=1e-6), about


@given(
    protocol=protocols,
    kind=st.sampled_from(
        [["harmony=false"], ["rank=2"], ["composition=complex", "reciprocal=true"], ["normalise=false"]]
    ),
    block=st.sampled_from([1, 2, 4, 5, 8, 9, 100]),
    chunk=st.integers(1, 50),
    seed=st.integers(0, 20),
)
@settings(max_examples=25)
def test_ranks_in_blocks_of_candidates_are_the_same(protocol, kind, block, chunk, seed) -> None:
    graph = make_graph(n_entities=9, n_relations=2, sizes=(30, 6, 7), seed=seed)
    model = build_model(Config.read(None, ["model.entity_dim=4", *(f"model.{k}" for k in kind)]).model, 9, 2, seed)
    if protocol.unseen == "drop" and graph.unseen(graph.split(protocol.split)).all():
        return
    whole = evaluate(model, graph, protocol, chunk=chunk).ranks
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(model_module.BLOCK, "cpu", block)
        found = evaluate(model, graph, protocol, chunk=chunk).ranks
        assert len(list(steady(model).score_blocks(Slot.TAIL, graph.test))) == math.ceil(9 / block)
    for column in ("better", "tied", "candidates", "relation", "is_head"):
        assert getattr(found, column).equal(getattr(whole, column)), column


def test_no_second_table_exists_while_ranking(monkeypatch) -> None:
    monkeypatch.setitem(model_module.BLOCK, "cpu", 16)
    graph = make_graph(n_entities=100)
    snapshot = steady(build_model(Config().model, 100, graph.n_relations))
    largest = []
    unit = model_module.unit_rows
    monkeypatch.setattr(model_module, "unit_rows", lambda rows: (largest.append(len(rows)), unit(rows))[1])
    rank(snapshot, graph.test, Slot.TAIL, graph.answers(Slot.TAIL))
    best(snapshot, Slot.TAIL, graph.test, 5)
    assert max(largest) == 16
    assert "entities" not in vars(snapshot)


def test_the_best_and_their_sum_by_blocks(monkeypatch) -> None:
    graph = make_graph(n_entities=30)
    model = build_model(Config().model, 30, graph.n_relations)
    with torch.no_grad():
        scores = model.snapshot().score_slot(Slot.TAIL, graph.test)
    own, whole = scores.gather(1, graph.test.tail[:, None])[:, 0], scores.logsumexp(1)
    barred = (torch.arange(10), scores.argmax(1))
    scores[barred] = -torch.inf
    for block in (1, 7, 30):
        monkeypatch.setitem(model_module.BLOCK, "cpu", block)
        found = best(
            steady(model), Slot.TAIL, graph.test, 4,
            lambda start, some: some.index_put_(inside(barred, start, some.shape[1]), torch.tensor(-torch.inf)),
        )  # fmt: skip
        assert found.indices.equal(scores.topk(4).indices)
        torch.testing.assert_close(found.values, scores.topk(4).values)
        torch.testing.assert_close(found.total[:, 0], whole)
        for mine, expected in zip(weigh(model, Slot.TAIL, graph.test), (own, whole), strict=True):
            torch.testing.assert_close(mine, expected)


def test_a_sample_is_ranked_exactly_and_labelled() -> None:
    graph = make_graph(n_entities=40, sizes=(200, 20, 300))
    scorer, protocol = random_table(graph, 50, 1), EvaluateConfig(sample=50)
    whole, found = evaluate(scorer, graph), evaluate(scorer, graph, protocol)
    assert len(found.ranks) == 100
    assert evaluate(scorer, graph, protocol).metrics == found.metrics
    rows = {tuple(row) for row in torch.stack([whole.ranks.better, whole.ranks.relation], dim=1).tolist()}
    assert {tuple(row) for row in torch.stack([found.ranks.better, found.ranks.relation], dim=1).tolist()} <= rows
    words = "estimated from 50 of 300 facts drawn at random"
    assert describe(found.protocol, found.estimate.of).endswith(words)
    assert "estimated from 50 facts" in describe(found.protocol)
    told = found.to_json()
    assert told["estimate"]["words"].startswith(words)
    assert told["protocol"]["sample"] == 50
    assert all(row["estimated"] == words for row in found.records())
    for name, (low, high) in found.estimate.intervals.items():
        assert low < found.metrics[name] < high, name
    exact = evaluate(scorer, graph, EvaluateConfig(sample=300))
    assert exact.estimate is None
    assert exact.to_json() == whole.to_json()
    assert "estimate" not in describe(exact.protocol)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Ranks of one fact are much alike, so intervals that took them for independent would hold it less often."""
    generator = torch.Generator().manual_seed(0)
    n, drawn, often = 4000, 400, 300
    better = (torch.randn(n, generator=generator).abs() * 1.4).exp().long().expand(2, n)
    candidates = torch.randint(4000, 6000, (2, n), generator=generator)

    def ranks(index: torch.Tensor) -> Ranks:
        columns = (better[:, index].flatten(), torch.zeros(2 * len(index)).long(), candidates[:, index].flatten())
        return Ranks(*columns, torch.zeros(2 * len(index)).long(), torch.zeros(2 * len(index)).bool())

    whole, held = ranks(torch.arange(n)).metrics(), Counter()
    for _ in range(often):
        some = torch.randperm(n, generator=generator)[:drawn]
        found = Estimate.of_ranks(ranks(some), "realistic", drawn, n).intervals
        held.update(name for name, (low, high) in found.items() if low <= whole[name] <= high)
    for name in ("mrr", "hits@3", "hits@10"):
        assert 0.92 <= held[name] / often <= 0.98, name
    for name in ("mr", "amri"):  # few ranks hold most of the sum
        assert 0.84 <= held[name] / often <= 0.98, name
    assert whole["hits@1"] == 0
    assert held["hits@1"] == often


def test_an_interval_by_hand() -> None:
    """4 of 8 shares out of many: Wilson's interval, and with half of the facts drawn half of its variance."""
    ranks = Ranks(torch.tensor([0, 1] * 4), *[torch.zeros(8).long()] * 2, torch.zeros(8).long(), torch.zeros(8).bool())
    for of, draws in ((10**9, 7), (16, 14)):  # 8 - 1, as the variance is a sample's; twice as many by the share drawn
        low, high = Estimate.of_ranks(ranks, "realistic", 8, of).intervals["hits@1"]
        half = 1.96 / (1 + 1.96**2 / draws) * math.sqrt(0.25 / draws + 1.96**2 / (4 * draws**2))
        assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-6)


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


def test_no_facts_left_to_rank_is_said() -> None:
    graph = make_graph()
    lonely = replace(
        graph, train=graph.train[:1], test=Triples.from_rows([[graph.n_entities - 1, 0, graph.n_entities - 1]])
    )
    with pytest.raises(HarmoniumError, match="no test facts are left to rank; say unseen=keep"):
        evaluate(Frequency(lonely), lonely, EvaluateConfig(unseen="drop"))
