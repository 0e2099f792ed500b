"""W and b fitted to validation facts after training: what is found, what is kept, and what it compares with."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.evaluation.ranking import rank
from harmonium.model.build import build_model
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum
from harmonium.training import harmony_fit
from harmonium.training.harmony_fit import fit_harmony
from harmonium.training.quadratic_regression import QuadraticPart, gather_queries
from small import make_graph

N_ENTITIES, N_RELATIONS, DIM = 60, 4, 8
PLAIN = ModelConfig("distmult", DIM, harmony=False, normalise=False)


def settings(**model: object) -> Config:
    return Config(model=dataclasses.replace(PLAIN, harmony=True, **model))


def make_model() -> GradientGraph:
    """A plain model whose vectors have coordinates of random sign and of similar size."""
    model, generator = build_model(PLAIN, N_ENTITIES, N_RELATIONS, seed=5), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for table in (model.entity, model.relation):
            table.copy_(table.sign() * (0.5 + torch.rand(table.shape, generator=generator) / 2))
    return model


def graph_of_answers(model: GradientGraph, matrix: Tensor | None = None, count: int = 900, scale: float = 1.0) -> Graph:
    """Validation and test facts drawn with probabilities in proportion to exp(scale * sum(x) + x' matrix x)."""
    cells = torch.cartesian_prod(torch.arange(N_ENTITIES), torch.arange(N_RELATIONS), torch.arange(N_ENTITIES))
    with torch.no_grad():
        composed = model.compose(Triples.from_rows(cells))
        scores = scale * composed.sum(-1)
        if matrix is not None:
            scores = scores + ((composed @ matrix) * composed).sum(-1)
    drawn = torch.multinomial(scores.softmax(0), count, generator=torch.Generator().manual_seed(0))
    rows = cells[drawn]
    graph, half = make_graph(N_ENTITIES, N_RELATIONS, sizes=(4, 0, 0)), count // 2
    return dataclasses.replace(graph, valid=Triples.from_rows(rows[:half]), test=Triples.from_rows(rows[half:]))


def planted_direction() -> Tensor:
    direction = torch.tensor([1.0, -1, 1, -1, 1, 1, -1, -1])  # sums to zero, so that the sum of x says nothing of it
    return direction / direction.norm()


def mrr(model: GradientGraph, graph: Graph) -> float:
    return evaluate_scorer(model, graph).metrics["mrr"]


def test_a_quadratic_part_in_the_facts_is_found_and_better() -> None:
    model, direction = make_model(), planted_direction()
    graph = graph_of_answers(model, 2 * torch.outer(direction, direction))
    fitted = fit_harmony(model, graph, settings(rank=1))
    assert fitted.preferred
    assert fitted.is_better
    assert fitted.log_likelihood.change > 3 * fitted.log_likelihood.standard_error
    assert (fitted.form.basis[:, 0] @ direction).abs() > 0.9
    assert fitted.form.fold().spectrum().item() == pytest.approx(2, rel=0.2)
    before = mrr(model, graph)
    model.form = fitted.form
    assert mrr(model, graph) > before + 0.02


@pytest.mark.parametrize(
    "options",
    [{}, {"rank": 2, "constraint": "spectral"}, {"faithfulness": 2.0}, {"faithfulness": math.inf}, {"cap": 0.1}],
    ids=str,
)
def test_the_form_is_that_of_its_settings_and_has_the_fitted_linear_part(options: dict[str, object]) -> None:
    """lambda and the cap are kept where they are set; otherwise W is within 0.75 lambda, and reaches it."""
    model, direction = make_model(), planted_direction()
    graph = graph_of_answers(model, 2 * torch.outer(direction, direction))
    fitted = fit_harmony(model, graph, settings(**options))
    form, chosen = fitted.form, not options.keys() & {"faithfulness", "cap"}
    assert form.norm() <= form.cap * (1 + 1e-5)
    if chosen:
        assert form.cap == pytest.approx(0.75 * form.faithfulness)
        assert form.norm() == pytest.approx(form.cap, rel=1e-4)
    else:
        assert form.faithfulness == options.get("faithfulness", 1.0)
    torch.testing.assert_close(form.fold().vector, torch.full((DIM,), fitted.scale), rtol=1e-4, atol=1e-5)
    rebuilt = build_model(fitted.settings, N_ENTITIES, N_RELATIONS, seed=None)
    model.form = form
    rebuilt.load_state_dict(model.state_dict())
    torch.testing.assert_close(rebuilt.score(graph.valid), model.score(graph.valid))


def test_a_harmful_w_is_made_smaller_until_ranks_are_kept(monkeypatch) -> None:
    """As if the fit had gone wrong: whatever it returns, ranks stay within a thousandth where held out."""

    def harmful(queries: object, rank: int, spreads: tuple[float, ...], generator: object) -> list[QuadraticPart]:
        return [QuadraticPart(1.0, -9.0 * bool(spread) * torch.eye(rank), torch.eye(DIM, rank)) for spread in spreads]

    model = make_model()
    graph = graph_of_answers(model, count=200)
    monkeypatch.setattr(harmony_fit, "fit_quadratic_parts", harmful)
    fitted = fit_harmony(model, graph, settings())
    assert fitted.factor < 1
    assert "scaled by" in fitted.summary
    assert fitted.form.norm() > 0
    validation = dataclasses.replace(graph, test=graph.valid, valid=graph.valid[:0])
    before = mrr(model, validation)
    model.form = fitted.form
    assert mrr(model, validation) >= before - 0.001


# Queries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_the_likelihood_is_that_of_the_filtered_softmax(slot: Slot) -> None:
    """On a small graph every entity is a candidate; known answers other than the true one do not compete."""
    model = make_model()
    graph = make_graph(N_ENTITIES, N_RELATIONS, sizes=(900, 60, 10))
    known = graph.known_answers(slot, ("train", "valid"))
    queries = gather_queries(model.scorer(), slot, graph.valid, known, torch.Generator().manual_seed(0))
    facts = {tuple(row) for split in (graph.train, graph.valid) for row in split.to_rows().tolist()}
    scores = model.score_slot(slot, graph.valid)
    expected = []
    for number, row in enumerate(graph.valid.to_rows().tolist()):
        position = list(Slot).index(slot)
        filled = [[*row[:position], entity, *row[position + 1 :]] for entity in range(N_ENTITIES)]
        competes = torch.tensor([triple == row or tuple(triple) not in facts for triple in filled])
        expected.append(scores[number].masked_fill(~competes, -torch.inf).log_softmax(0)[row[position]])
    torch.testing.assert_close(queries.log_likelihood(queries.linear), torch.stack(expected).detach())


def test_held_out_answers_have_no_fact_among_those_fitted() -> None:
    facts = make_graph(40, 3, sizes=(200, 0, 0)).train
    folds = harmony_fit.Folds.draw(facts, 40, seed=0)
    times_held_out = torch.zeros(2, len(facts), dtype=torch.int64)
    for fold in range(harmony_fit.FOLDS):
        fitted = facts[folds.fitted(fold)]
        seen = set(fitted.head.tolist()) | set(fitted.tail.tolist())
        answers = folds.answers(fold)
        held_out = set(facts.head[answers[0]].tolist()) | set(facts.tail[answers[1]].tolist())
        assert len(fitted) > 60
        assert not seen & held_out
        times_held_out += answers
    assert (times_held_out == 1).all()


@pytest.mark.parametrize("name", ["complex", "concatenation"])
def test_held_out_ranks_are_those_of_the_evaluation(name: str) -> None:
    """The ranks with a factor are those of a model with that much of the quadratic part, known answers filtered."""
    composition = find_composition(name)
    dim = composition.dim(4, 4)
    model = GradientGraph(composition, N_ENTITIES, N_RELATIONS, 4, Sum(dim), normalise=False)
    model.initialise(generator=torch.Generator().manual_seed(0))
    graph = make_graph(N_ENTITIES, N_RELATIONS, sizes=(500, 80, 0))
    basis = torch.linalg.qr(torch.randn(dim, 2, generator=torch.Generator().manual_seed(1)))[0]
    part = QuadraticPart(1.5, torch.tensor([[3.0, 1.0], [1.0, -2.0]]), basis)
    folds = harmony_fit.Folds.draw(graph.valid, N_ENTITIES, seed=0)
    fits = harmony_fit._CrossValidation(None, folds, [{0.1: part}] * harmony_fit.FOLDS)  # the same in every fold
    ranks = harmony_fit._reciprocal_ranks(model, graph, graph.valid, fits, 0.1)
    scorer = model.scorer()
    for number, factor in enumerate((0.0, *harmony_fit.FACTORS)):
        expected = dataclasses.replace(scorer, form=part.times(factor).form(scorer.form.vector))
        sides = [
            1 / rank(expected, graph.valid, slot, graph.known_answers(slot)).values() for slot in (Slot.HEAD, Slot.TAIL)
        ]
        torch.testing.assert_close(ranks[number], torch.stack(sides).mean(0))
