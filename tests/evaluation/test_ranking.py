"""Ranks by counting equal ranks by definition, under every protocol, in any chunks and blocks; metrics equal PyKEEN's."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.candidates import score_and_log_normaliser, select_block, top_candidates
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.ranking import rank
from harmonium.model import gradient_graph
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from small import PlainScorer, TableScorer, family, make_graph, random_model, random_table


def brute_force(scorer: TableScorer, graph: Graph, protocol: EvaluateConfig) -> list[float]:
    """Ranks by definition, one query at a time: list the competitors and count."""
    facts = {split: [tuple(row) for row in graph.splits[split].to_rows().tolist()] for split in SPLITS}
    known = {fact for split in SPLITS for fact in facts[split]}
    sources = {"typed-train": ("train",), "typed-all": SPLITS}.get(protocol.candidates, ())
    seen = {fact for split in sources for fact in facts[split]}
    trained = {entity for h, _, t in facts["train"] for entity in (h, t)}
    ranks = []
    for slot in ("head", "tail") if protocol.side == "both" else (protocol.side,):
        for h, r, t in facts[protocol.split]:
            if protocol.unseen == "drop" and not {h, t} <= trained:
                continue
            position, truth = (0, h) if slot == "head" else (2, t)
            scores = (scorer.heads[r][t] if slot == "head" else scorer.tails[r][h]).tolist()
            competitors = []
            for e in range(graph.n_entities):
                triple = (e, r, t) if slot == "head" else (h, r, e)
                allowed = not sources or any(f[1] == r and f[position] == e for f in seen)
                if e != truth and allowed and not (protocol.filtered and triple in known):
                    competitors.append(scores[e])
            better = sum(score > scores[truth] for score in competitors)
            tied = sum(score == scores[truth] for score in competitors)
            ranks.append(1 + better + {"realistic": tied / 2, "optimistic": 0, "pessimistic": tied}[protocol.ties])
    return ranks


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
def test_ranks_equal_brute_force(protocol: EvaluateConfig, levels: int, seed: int, chunk: int) -> None:
    graph = make_graph(n_entities=9, n_relations=2, sizes=(30, 6, 7), seed=seed)
    scorer = random_table(graph, levels, seed)
    expected = brute_force(scorer, graph, protocol)
    if not expected:
        with pytest.raises(HarmoniumError, match=f"no {protocol.split} facts"):
            evaluate_scorer(scorer, graph, protocol, chunk=chunk)
        return
    ranks = evaluate_scorer(scorer, graph, protocol, chunk=chunk).ranks
    assert ranks.values(protocol.ties).tolist() == expected


@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
def test_metrics_equal_those_of_pykeen(levels: int) -> None:
    """On random scores with many ties, stored with PyKEEN's metrics by make_pykeen_metrics.py."""
    stored = json.loads(Path(__file__).with_name("pykeen_metrics.json").read_text(encoding="utf-8"))
    names = [Vocabulary([f"{kind}{i}" for i in range(n)], kind=kind) for kind, n in (("entity", 17), ("relation", 3))]
    graph = Graph(*names, *(Triples.from_rows(stored[split]) for split in SPLITS), name="random")
    (case,) = [case for case in stored["cases"] if case["levels"] == levels]
    scorer = TableScorer(*(torch.tensor(case[side]).float() for side in ("heads", "tails")))
    assert len(case["metrics"]) == 18
    for name, expected in case["metrics"].items():
        filtered, side, ties = name.split()
        protocol = EvaluateConfig(filtered=filtered == "filtered", side=side, ties=ties)
        metrics = evaluate_scorer(scorer, graph, protocol, chunk=7).metrics
        assert metrics == pytest.approx(metrics | expected, rel=1e-6, abs=1e-6), name


@given(
    protocol=protocols,
    options=st.sampled_from(
        [["harmony=false"], ["rank=2"], ["composition=complex", "reciprocal=true"], ["normalise=false"]]
    ),
    block=st.sampled_from([1, 2, 4, 5, 8, 9, 100]),
    chunk=st.integers(1, 50),
    seed=st.integers(0, 20),
)
@settings(max_examples=25)
def test_ranks_do_not_depend_on_blocks_of_candidates(
    protocol: EvaluateConfig, options: list[str], block: int, chunk: int, seed: int
) -> None:
    graph = make_graph(n_entities=9, n_relations=2, sizes=(30, 6, 7), seed=seed)
    model = build_model(Config.read(None, ["model.entity_dim=4", *(f"model.{o}" for o in options)]).model, 9, 2, seed)
    if protocol.unseen == "drop" and graph.unseen(graph.split(protocol.split)).all():
        return
    expected = evaluate_scorer(model, graph, protocol, chunk=chunk).ranks
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(gradient_graph.CANDIDATES_PER_BLOCK, "cpu", block)
        ranks = evaluate_scorer(model, graph, protocol, chunk=chunk).ranks
        assert len(list(model.prepare().score_blocks(Slot.TAIL, graph.test))) == math.ceil(9 / block)
    assert all(map(torch.equal, ranks.columns, expected.columns))


@pytest.mark.parametrize("block", [1, 7, 30])
def test_top_candidates_and_log_normaliser_do_not_depend_on_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(n_entities=30)
    model = build_model(Config().model, 30, graph.n_relations)
    with torch.no_grad():
        scores = model.scorer().score_slot(Slot.TAIL, graph.test)
    true_score, log_normaliser = scores.gather(1, graph.test.tail[:, None])[:, 0], scores.logsumexp(1)
    excluded = (torch.arange(10), scores.argmax(1))
    scores[excluded] = -torch.inf

    def exclude(start: int, block_scores: Tensor) -> None:
        block_scores[select_block(excluded, start, block_scores.shape[1])] = -torch.inf

    monkeypatch.setitem(gradient_graph.CANDIDATES_PER_BLOCK, "cpu", block)
    top = top_candidates(model.prepare(), Slot.TAIL, graph.test, 4, exclude)
    assert top.ids.equal(scores.topk(4).indices)
    torch.testing.assert_close(top.scores, scores.topk(4).values)
    torch.testing.assert_close(top.log_normaliser[:, 0], log_normaliser)
    computed = score_and_log_normaliser(model, Slot.TAIL, graph.test)
    torch.testing.assert_close(computed, (true_score, log_normaliser))


def test_relations_can_be_ranked() -> None:
    graph = make_graph()

    class Oracle(PlainScorer):
        def all_scores(self, slot: Slot, queries: Triples) -> Tensor:
            return torch.nn.functional.one_hot(queries.relation, graph.n_relations).float()

    ranks = rank(Oracle(), graph.test, Slot.RELATION, graph.known_answers(Slot.RELATION))
    assert ranks.values().eq(1).all()
    assert ranks.candidates.max() <= graph.n_relations


def test_scores_that_are_not_numbers_are_refused() -> None:
    broken = TableScorer(*[torch.full((3, 12, 12), math.nan)] * 2)
    with pytest.raises(HarmoniumError, match="not numbers"):
        evaluate_scorer(broken, make_graph())


# Memory --------------------------------------------------------------------------------------------------------------


class LimitedMemory(PlainScorer):
    """A scorer that has memory for so many queries at once."""

    def __init__(self, model: GradientGraph, limit: int, error: Exception) -> None:
        self.model, self.limit, self.error = model, limit, error
        self.sizes: list[int] = []

    def n_candidates(self, slot: Slot) -> int:
        return self.model.n_candidates(slot)

    def all_scores(self, slot: Slot, queries: Triples) -> Tensor:
        self.sizes.append(len(queries))
        if len(queries) > self.limit:
            raise self.error
        return self.model.score_slot(slot, queries)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("MPS backend out of memory"),
    MemoryError(),
]
FAMILY = family()
MODEL = random_model(FAMILY)


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("limit", [1, 3])
def test_ranking_halves_the_chunk_when_memory_runs_out(error: Exception, limit: int) -> None:
    scorer, progress, known = LimitedMemory(MODEL, limit, error), [], FAMILY.known_answers(Slot.TAIL)
    ranks = rank(scorer, FAMILY.train, Slot.TAIL, known, chunk=12, progress=progress.append)
    assert torch.equal(ranks.values(), rank(MODEL, FAMILY.train, Slot.TAIL, known).values())
    assert sum(progress) == len(FAMILY.train)
    assert scorer.sizes[:3] == [12, 6, 3]
    assert max(scorer.sizes[5:]) <= max(limit, 2)
