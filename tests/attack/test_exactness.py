"""Ranks are those of an independent float64 program, to the last tie, however they are computed.

Every entity has a twin with the same facts and the same vector, so that the true answer always ties with its twin; and
vectors of whole numbers tie with each other by arithmetic that rounding disturbs. ATTACK=n draws n times as many models.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import harmonium
from harmonium.config.settings import EvaluateConfig, ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.grammar.ensemble import Ensemble
from harmonium.kernels import dispatch
from harmonium.model import gradient_graph
from harmonium.model.build import build_model
from harmonium.model.composition import Composition, find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import Scorer
from harmonium.training.refit import local_refit
from small import make_run

SEEDS = range(int(os.environ.get("ATTACK", "1")))
N, N_RELATIONS, N_FACTS = 40, 3, 90  # entities before they are twinned
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
Order = tuple[str, int | None]
Array = np.ndarray[Any, np.dtype[np.float64]]


def twinned_graph(seed: int) -> Graph:
    """Entity i and i + N have the same facts in train; of each test fact only one version is a fact."""
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(size, (N_FACTS,), generator=generator) for size in (N, N_RELATIONS, N)]
    rows = torch.stack(columns, dim=1).unique(dim=0)
    rows = rows[torch.randperm(len(rows), generator=generator)]
    train, rest = rows[:-12], rows[-12:]
    shifts = [torch.tensor([h, 0, t]) for h, t in itertools.product((0, N), repeat=2)]
    names = (
        Vocabulary([f"e{i}" for i in range(2 * N)]),
        Vocabulary([f"r{i}" for i in range(N_RELATIONS)], kind="relation"),
    )
    splits = torch.cat([train + shift for shift in shifts]), rest[:4], rest[4:]
    return Graph(*names, *(Triples.from_rows(part) for part in splits), name="twins")


FORMS: dict[str, dict[str, Any]] = {
    "full, lambda 1": {},
    "rank 3, lambda 1": {"rank": 3},
    "full, lambda infinite": {"faithfulness": math.inf},
    "rank 2, lambda infinite": {"faithfulness": math.inf, "rank": 2},
    "plain": {"harmony": False},
    "full, lengths free": {"normalise": False},
    "rank 3, reciprocal": {"rank": 3, "reciprocal": True},
    "plain, reciprocal, lengths free": {"harmony": False, "normalise": False, "reciprocal": True},
}


def whole_numbers(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(-1, 2, shape, generator=generator).float()


VECTORS: dict[str, Callable[[torch.Size, torch.Generator], torch.Tensor]] = {
    "normal": lambda shape, generator: torch.randn(shape, generator=generator),
    "signs": lambda shape, generator: torch.randint(2, shape, generator=generator).float() * 2 - 1,
    "whole numbers, some zero": whole_numbers,
    "one-hot": lambda shape, generator: torch.eye(shape[1])[torch.randint(shape[1], shape[:1], generator=generator)],
}


def twinned_model(composition: str, form: str, vectors: str, seed: int) -> GradientGraph:
    dim = {"tensorproduct": (3, 4), "rescal": (4, 5)}.get(composition, (10, 34))[seed % 2]
    model = build_model(ModelConfig(composition, dim, **FORMS[form]), 2 * N, N_RELATIONS, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in (model.entity, model.relation):
            table.copy_(VECTORS[vectors](table.shape, generator))
        model.entity[N:] = model.entity[:N]
        if isinstance(model.form, Harmony):
            model.form.free.copy_(torch.randn(model.form.free.shape, generator=generator))
            model.form.bias.copy_(torch.randn(model.form.bias.shape, generator=generator))
    return model


# An independent program ----------------------------------------------------------------------------------------------


def composed(name: str, h: Array, r: Array, t: Array) -> Array:
    """(n, d), (n, r), (n, d) -> (n, dim), by sums over coordinates."""
    d = h.shape[1]
    if name == "distmult":
        return h * r * t
    if name == "hole":
        return np.stack([r[:, k] * (h * np.roll(t, -k, axis=1)).sum(1) for k in range(d)], axis=1)
    if name == "complex":
        product = (h[:, : d // 2] + 1j * h[:, d // 2 :]) * (r[:, : d // 2] + 1j * r[:, d // 2 :])
        return np.concatenate([product.real, product.imag], axis=1) * t
    if name == "tensorproduct":
        return np.einsum("ni,nj,nk->nijk", h, r, t).reshape(len(h), -1)
    if name == "concatenation":
        return np.concatenate([h, r, t], axis=1)
    matrix = r.reshape(len(r), d, -1)
    if name == "rescal":
        return np.einsum("ni,nij,nj->nij", h, matrix, t).reshape(len(h), -1)
    if name == "rescalproduct":
        return h * np.einsum("nij,nj->ni", matrix, t)
    if name != "triplecorrelation":  # a new one: tests/model/test_composition.py checks its formula
        return find_composition(name).compose(*map(torch.from_numpy, (h, r, t))).numpy()
    shifted = [[np.roll(t, -(j + k), axis=1) for j in range(d)] for k in range(d)]
    return np.stack([sum(r[:, j] * (h * shifted[k][j]).sum(1) for j in range(d)) for k in range(d)], axis=1)


class IndependentProgram:
    """Scores and ranks from the stored numbers, in float64, with tokens found by solving for them."""

    def __init__(self, model: GradientGraph) -> None:
        self.name, self.reciprocal, self.form = model.composition.name, model.reciprocal, model.form
        self.entities, self.relations = (
            self.unit(table.detach().double().numpy(), model.normalise) for table in (model.entity, model.relation)
        )

    @staticmethod
    def unit(table: Array, normalise: bool) -> Array:
        lengths = np.maximum(np.sqrt((table**2).sum(1, keepdims=True)), 1e-12)
        return table / lengths if normalise else table

    def score(self, x: Array) -> Array:
        if not isinstance(self.form, Harmony):
            return self.form.scale.item() * x.sum(1)
        free, bias = (p.detach().double().numpy() for p in (self.form.free, self.form.bias))
        basis = np.eye(self.form.dim) if self.form.basis is None else self.form.basis.detach().double().numpy()
        w = basis @ (free + free.T) @ basis.T / 2
        w *= self.form.cap / max(self.form.cap, np.linalg.norm(w))
        if math.isinf(self.form.faithfulness):
            return ((x @ w + bias) * x).sum(1) / 2
        strength = self.form.faithfulness
        token = np.linalg.solve(strength * np.eye(len(w)) - w, (strength * x + bias / 2).T).T
        at_zero = np.linalg.solve(strength * np.eye(len(w)) - w, bias / 2)
        h = ((token @ w + bias) * token).sum(1) / 2 - strength * ((token - x) ** 2).sum(1) / 2
        return h - (at_zero @ w @ at_zero + bias @ at_zero - strength * at_zero @ at_zero) / 2

    def scores(self, slot: Slot, h: int, r: int, t: int) -> Array:
        """Of all entities in the slot."""
        n, n_relations = len(self.entities), len(self.relations) // 2 if self.reciprocal else 0
        given = self.entities[[t if slot is Slot.HEAD else h] * n]
        relation = self.relations[[r + n_relations if slot is Slot.HEAD else r] * n]
        if slot is Slot.HEAD and not self.reciprocal:
            return self.score(composed(self.name, self.entities, relation, given))
        return self.score(composed(self.name, given, relation, self.entities))

    def ranks(self, graph: Graph, facts: Triples) -> list[tuple[int, int]]:
        """(better, tied) of each fact: heads first, as evaluation ranks them."""
        known = {tuple(row) for split in graph.splits.values() for row in split.to_rows().tolist()}
        counts = []
        for slot in (Slot.HEAD, Slot.TAIL):
            for h, r, t in facts.to_rows().tolist():
                scores = self.scores(slot, h, r, t)
                truth = h if slot is Slot.HEAD else t
                rivals = [
                    e for e in range(len(self.entities))
                    if e != truth and ((e, r, t) if slot is Slot.HEAD else (h, r, e)) not in known
                ]  # fmt: skip
                ahead = scores[rivals] - scores[truth]
                ties = np.abs(ahead) <= max(1e-11 * np.abs(scores).max(), 3e-15 * self.size(slot, h, r, t))
                counts.append((int(((ahead > 0) & ~ties).sum()), int(ties.sum())))
        return counts

    def size(self, slot: Slot, h: int, r: int, t: int) -> float:
        """The score of vectors without zeros and signs, so that nothing cancels."""
        lengths = [
            np.linalg.norm(v) * np.ones((1, len(v))) for v in (self.entities[h], self.relations[r], self.entities[t])
        ]
        return float(abs(self.score(composed(self.name, *lengths))[0]))


# Attacks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def any_order(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[[], Iterator[Order]]:
    """Devices and chunks of queries, with various blocks of candidates and threads."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))

    def orders() -> Iterator[Order]:
        choices = [(None, 1 << 13, 1), (1, 1 << 13, 1), (3, 1 << 13, 2), (None, 33, 1)]
        for device, (chunk, block, threads) in itertools.product(DEVICES, choices):
            monkeypatch.setitem(gradient_graph.CANDIDATES_PER_BLOCK, device, block)
            torch.set_num_threads(threads)
            yield device, chunk

    return orders


@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("composition", sorted(Composition.registry))
def test_ranks_are_those_of_an_independent_program(composition: str, vectors: str, any_order: Any) -> None:
    for seed, form in itertools.product(SEEDS, FORMS):
        graph, model = twinned_graph(seed), twinned_model(composition, form, vectors, seed)
        expected = IndependentProgram(model).ranks(graph, graph.test)
        for device, chunk in any_order():
            ranks = evaluate_scorer(copy.deepcopy(model).to(device), graph, chunk=chunk, device=device).ranks
            assert list(zip(ranks.better.tolist(), ranks.tied.tolist(), strict=True)) == expected, (form, chunk)
            assert ranks.metrics("pessimistic")["hits@1"] == 0, form
        with dispatch.use("reference"):
            ranks = evaluate_scorer(model, graph, chunk=5).ranks
        assert list(zip(ranks.better.tolist(), ranks.tied.tolist(), strict=True)) == expected, (form, "reference")


@pytest.mark.parametrize("composition", sorted(Composition.registry))
def test_every_command_gives_the_same_ranks_and_scores(composition: str) -> None:
    shift = sorted(Composition.registry).index(composition)
    for seed, number in itertools.product(SEEDS, range(2)):
        form, vectors = (
            list(FORMS)[(4 * number + shift + seed) % len(FORMS)],
            list(VECTORS)[(shift + seed) % len(VECTORS)],
        )
        graph, run = twinned_graph(seed), make_run(twinned_graph(seed), twinned_model(composition, form, vectors, seed))
        names = graph.names_of(graph.test)
        evaluated = [harmonium.evaluate(run, chunk=chunk).ranks.values().tolist() for chunk in (None, 1, 7)]
        assert evaluated[0] == evaluated[1] == evaluated[2]
        heads, scored = (harmonium.score(run, names, side=side) for side in ("head", "tail"))
        assert [fact.rank for fact in [*heads, *scored]] == evaluated[0], form
        alone, first = harmonium.score(run, names[:1])[0], scored[0]
        assert alone.rank == first.rank
        assert alone.score == pytest.approx(first.score, rel=1e-12, abs=1e-12)
        head, relation, _ = names[0]
        answers = harmonium.predict(run, head, relation, top=2 * N, new_only=True, typed=False, probability=False)
        facts = harmonium.score(run, [(head, relation, answer.id) for answer in answers])
        assert [answer.rank for answer in answers] == [fact.rank for fact in facts], form
        # With several threads the last bit of a Fourier transform goes with the size of the batch.
        expected = pytest.approx([fact.score for fact in facts], rel=1e-12, abs=1e-12)
        assert [answer.score for answer in answers] == expected, form
        for top in (1, 2, 7):
            best = harmonium.predict(run, head, relation, top=top, new_only=True, typed=False, probability=False)
            assert [(a.rank, a.id) for a in best] == [(a.rank, a.id) for a in answers[:top]], form


@pytest.mark.parametrize("composition", sorted(Composition.registry))
def test_a_model_after_an_update_ranks_and_scores_as_exactly(
    composition: str, any_order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts removed, and added with new entities and a new relation; twins that were not concerned still tie."""
    monkeypatch.setattr(local_refit, "REFIT_STEPS", 3)
    shift = sorted(Composition.registry).index(composition)
    for seed in SEEDS:
        form, vectors = list(FORMS)[(shift + seed) % len(FORMS)], list(VECTORS)[(shift + seed) % len(VECTORS)]
        graph = twinned_graph(seed)
        facts = [("new", "r0", "e1"), ("e2", "r new", "new"), ("e3", "r0", "newer")]
        run = make_run(graph, twinned_model(composition, form, vectors, seed))
        run = harmonium.update(run, add=facts, remove=graph.names_of(graph.train[:3]))
        with torch.no_grad():  # a vector may move by 1e-13, which the independent program takes for rounding
            for table in (run.model.entity, run.model.relation):
                table.mul_(2**20).round_().div_(2**20)
        graph, program = run.graph, IndependentProgram(run.model)
        expected = program.ranks(graph, graph.test)
        for device, chunk in any_order():
            ranks = evaluate_scorer(copy.deepcopy(run.model).to(device), graph, chunk=chunk, device=device).ranks
            assert list(zip(ranks.better.tolist(), ranks.tied.tolist(), strict=True)) == expected, (form, chunk)
        values = [harmonium.evaluate(run, chunk=chunk).ranks.values().tolist() for chunk in (None, 1, 7)]
        scored = [fact.rank for side in ("head", "tail") for fact in run.score(graph.names_of(graph.test), side=side)]
        assert [scored] * 3 == values, form


def test_products_of_experts_keep_ties(any_order: Any) -> None:
    for seed in SEEDS:
        graph = twinned_graph(seed)
        forms = zip(("hole", "complex", "rescalproduct"), list(FORMS)[seed % 3 :], strict=False)
        models = [twinned_model(composition, form, "normal", seed) for composition, form in forms]
        scorer: Scorer = Ensemble(models, [1.0, 0.3, -2.0])
        ranks = [evaluate_scorer(scorer, graph, chunk=chunk).ranks for device, chunk in any_order() if device == "cpu"]
        assert all(part.better.equal(ranks[0].better) and part.tied.equal(ranks[0].tied) for part in ranks)
        assert (ranks[0].tied > 0).all()
        assert ranks[0].metrics("pessimistic")["hits@1"] == 0


def test_twins_by_length_tie_where_lengths_do_not_count() -> None:
    """v and 3 v have the same unit vector, but float32 gives two."""
    for seed, composition in itertools.product(SEEDS, ("hole", "complex", "distmult")):
        graph, model = twinned_graph(seed), twinned_model(composition, "full, lambda 1", "normal", seed)
        with torch.no_grad():
            model.entity.mul_(1000).round_()
            model.entity[N:] = model.entity[:N]
            expected = evaluate_scorer(model, graph).ranks
            model.entity[N:] *= 3
        assert not model.entities()[N:].equal(model.entities()[:N])
        ranks = evaluate_scorer(model, graph).ranks
        assert ranks.better.equal(expected.better)
        assert ranks.tied.equal(expected.tied)


@pytest.mark.parametrize("composition", ["hole", "triplecorrelation", "distmult"])
def test_whole_numbers_that_cancel_tie(composition: str) -> None:
    """One coordinate of the relations is not zero: the composed vectors of many candidates are zero, but for rounding."""
    graph, generator = twinned_graph(0), torch.Generator().manual_seed(1)
    config = ModelConfig(composition, 7, harmony=False, normalise=False)
    model = build_model(config, graph.n_entities, graph.n_relations, seed=0)
    with torch.no_grad():
        model.entity.copy_(torch.randint(-2, 3, model.entity.shape, generator=generator))
        model.relation.copy_(torch.eye(7)[: len(model.relation)])
    evaluation = evaluate_scorer(model, graph, EvaluateConfig(split="train", filtered=False))
    entities = model.entity.detach().double().numpy()
    relations = model.relation.detach().double().numpy()
    for slot, part in ((Slot.HEAD, evaluation.ranks.is_head), (Slot.TAIL, ~evaluation.ranks.is_head)):
        ranks = evaluation.ranks[part]
        for number, (h, r, t) in enumerate(graph.train.to_rows().tolist()):
            given = np.repeat(entities[[t if slot is Slot.HEAD else h]], len(entities), axis=0)
            relation = np.repeat(relations[[r]], len(entities), axis=0)
            pair = (entities, given) if slot is Slot.HEAD else (given, entities)
            scores = np.rint(composed(composition, pair[0], relation, pair[1]).sum(1))  # of whole numbers
            truth = scores[h if slot is Slot.HEAD else t]
            assert int(ranks.better[number]) == (scores > truth).sum()
            assert int(ranks.tied[number]) == (scores == truth).sum() - 1
