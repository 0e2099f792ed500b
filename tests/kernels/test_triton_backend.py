"""The Triton backend against the reference: on a GPU for real, else in Triton's interpreter, at tiny sizes."""

from __future__ import annotations

import math

import pytest
import torch

from harmonium.data.triples import Slot, Triples
from harmonium.kernels import dispatch, reference, triton_backend
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.training.step import distinct_relations
from kernels.test_triton_kernels import DEVICE  # decides how Triton runs, and skips where there is none


@pytest.mark.parametrize("name", ["distmult", "hole", "complex"])
@pytest.mark.parametrize("dim", [6, 7, 16])
@pytest.mark.parametrize("faithfulness", [1.0, math.inf])
@pytest.mark.parametrize("sorted_by_relation", [False, True])
def test_scores_and_gradients_equal_the_reference(name, dim, faithfulness, sorted_by_relation) -> None:
    dim += dim % 2 if name == "complex" else 0
    model = GradientGraph(find_composition(name), 13, 5, dim, Harmony(dim, faithfulness), reciprocal=name == "complex")
    model.initialise("calibrated", torch.Generator().manual_seed(0)).to(DEVICE)
    with torch.no_grad():
        model.form.free.add_(torch.randn(dim, dim, generator=torch.Generator().manual_seed(1)).to(DEVICE))
    queries = Triples.from_rows([[0, 4, 3], [5, 1, 5], [7, 4, 12], [2, 0, 1]]).to(DEVICE)
    generator, relations = torch.Generator().manual_seed(2), None
    ids = {slot: torch.randint(13, (4, 9), generator=generator).to(DEVICE) for slot in (Slot.HEAD, Slot.TAIL)}
    if sorted_by_relation:
        relations, queries = distinct_relations(queries[queries.relation.argsort(stable=True)], 4)
    results = []
    for sampled_scores in (reference.sampled_scores, triton_backend.sampled_scores):
        scorer = model.scorer(None, relations)
        maps = [scorer.slot_map(slot, queries) for slot in ids]
        scores = torch.cat(sampled_scores(scorer.form, maps, scorer.entities, list(ids.values())))
        gradients = torch.autograd.grad(scores.sin().sum(), list(model.parameters()), allow_unused=True)
        results.append([scores, *gradients])
    torch.testing.assert_close(*results, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    "name, rank, obstacle", [("tensorproduct", None, "not a product"), ("hole", 2, "no full matrix")]
)
def test_selection_gives_the_reason(name, rank, obstacle) -> None:
    composition = find_composition(name)
    model = GradientGraph(composition, 13, 5, 4, Harmony(composition.dim(4, 4), rank=rank)).initialise()
    scorer = model.to(DEVICE).scorer()
    slot_map = scorer.slot_map(Slot.TAIL, Triples.from_rows([[0, 0, 0]]).to(DEVICE))
    backend, reason = dispatch.select_backend(scorer.form, slot_map, scorer.entities)
    assert backend == "torch"
    assert (obstacle if DEVICE == "cuda" else "not on a GPU") in reason
