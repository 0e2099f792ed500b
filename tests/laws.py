"""Laws that every composition obeys; use them on your own:

from laws import check_composition
def test_mine(): check_composition(Mine())
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from harmonium.data.triples import Slot, Triples
from harmonium.kernels import dispatch
from harmonium.model.composition import Composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony, Sum

N_ENTITIES, N_RELATIONS, N_QUERIES = 11, 3, 5
BACKENDS = ("reference", "torch")  # those of a CPU


def check_composition(composition: Composition, entity_dim: int = 6, relation_dim: int | None = None) -> None:
    """All laws, for plain, harmonic (full, low rank, either constraint) and reciprocal models, in float64."""
    for model in models(composition, entity_dim, relation_dim):
        queries = random_triples(model)
        affine_in_each_slot(model, queries)
        all_entity_scores_equal_definition(model, queries)
        sampled_loss_equals_definition(model, queries)
        if isinstance(model.form, Harmony):
            harmony_at_the_optimum_is_the_score(model, queries)


def models(composition: Composition, entity_dim: int, relation_dim: int | None = None) -> Iterator[GradientGraph]:
    relation_dim = relation_dim or composition.relation_dim(entity_dim)
    dim = composition.dim(entity_dim, relation_dim)
    forms = [
        Sum(dim),
        Harmony(dim, 1.0),
        Harmony(dim, 3.0, "spectral"),
        Harmony(dim, math.inf),
        Harmony(dim, 2.0, rank=min(dim, 3)),
        Harmony(dim, 2.0, "spectral", rank=min(dim, 2)),
    ]
    for number, form in enumerate(forms):
        sizes = (N_ENTITIES, N_RELATIONS, entity_dim)
        model = GradientGraph(composition, *sizes, form, relation_dim, reciprocal=number % 2 == 1).double()
        model.initialise(("calibrated", "paper")[number // 2 % 2], torch.Generator().manual_seed(number))
        if isinstance(form, Harmony):  # away from the special start, and outside the cap
            with torch.no_grad():
                form.free.add_(torch.randn(form.free.shape, generator=torch.Generator().manual_seed(number)))
        yield model


def random_triples(model: GradientGraph, seed: int = 0, count: int = N_QUERIES) -> Triples:
    generator = torch.Generator().manual_seed(seed)
    sizes = (model.n_entities, model.n_relations, model.n_entities)
    return Triples(*(torch.randint(size, (count,), generator=generator) for size in sizes))


def close(left: Tensor | list[Tensor], right: Tensor | list[Tensor], what: str) -> None:
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9, msg=lambda text: f"{what}: {text}")


def affine_in_each_slot(model: GradientGraph, queries: Triples) -> None:
    """x = T e + offset, and T' is the transpose of T."""
    for slot in Slot:
        slot_map = model.scorer().slot_map(slot, queries)
        one, two = (torch.randn(N_QUERIES, slot_map.slot_dim, dtype=torch.float64) for _ in range(2))
        mixed = slot_map.apply(0.3 * one + 0.7 * two)
        close(mixed, 0.3 * slot_map.apply(one) + 0.7 * slot_map.apply(two), f"affine in {slot}")
        dense = slot_map.dense()  # (b, slot_dim, dim)
        close(slot_map.apply(one), (one[:, None] @ dense)[:, 0] + slot_map.offset, "dense map")
        cotangent = torch.randn_like(mixed)
        close(slot_map.transpose(cotangent), (dense @ cotangent[..., None])[..., 0], "transpose")


def all_entity_scores_equal_definition(model: GradientGraph, queries: Triples) -> None:
    """Scores of all and of sampled candidates, by every backend, equal form(compose(...)); so do their gradients."""
    for slot in Slot:
        expected = definition(model, slot, queries)
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(expected.shape[1], (N_QUERIES, 4), generator=generator)
        picked = expected.gather(1, ids)
        weight, picked_weight = (
            torch.randn(scores.shape, generator=generator, dtype=torch.float64) for scores in (expected, picked)
        )
        wanted = gradients(model, (expected * weight).sum(), retain_graph=True)
        picked_wanted = gradients(model, (picked * picked_weight).sum())
        for backend in BACKENDS:
            with dispatch.use(backend):
                scores = model.score_slot(slot, queries)
                sampled = model.scorer().for_batch(queries).score_sampled({slot: ids})[slot]
                sampled = sampled + model.form.fold().constant
                with torch.no_grad():
                    close(model.score_slot(slot, queries), expected, f"score_slot {slot} by {backend}, no gradients")
            close(scores, expected, f"score_slot {slot} by {backend}")
            close(gradients(model, (scores * weight).sum()), wanted, f"gradient of score_slot {slot} by {backend}")
            close(sampled, picked, f"score_sampled {slot} by {backend}")
            sampled_gradients = gradients(model, (sampled * picked_weight).sum())
            close(sampled_gradients, picked_wanted, f"gradient of score_sampled {slot} by {backend}")
        if not (model.reciprocal and slot is Slot.HEAD):
            close(model.score(queries), expected.detach().gather(1, queries[slot][:, None])[:, 0], "score")


def sampled_loss_equals_definition(model: GradientGraph, queries: Triples) -> None:
    """The loss of both sides' candidates and its gradients, by every backend, equal those of scores written out."""
    generator = torch.Generator().manual_seed(4)
    ids = {slot: torch.randint(N_ENTITIES, (N_QUERIES, 4), generator=generator) for slot in (Slot.HEAD, Slot.TAIL)}
    weight = torch.randn(2 * N_QUERIES, 4, generator=generator, dtype=torch.float64)

    def loss_of(scores: Tensor, part: slice) -> Tensor:
        return (scores.sin() * weight[part]).sum(1).mean()

    constant = model.form.fold().constant  # which a scorer leaves out
    written_out = torch.cat([definition(model, slot, queries).gather(1, ids[slot]) for slot in ids]) - constant
    expected = 3 * loss_of(written_out, slice(None))
    wanted = gradients(model, expected)
    for backend in BACKENDS:
        with dispatch.use(backend):
            loss = 3 * model.scorer().for_batch(queries).sampled_loss(ids, loss_of)
            close(loss, expected, f"sampled_loss by {backend}")
            close(gradients(model, loss), wanted, f"gradient of sampled_loss by {backend}")


def definition(model: GradientGraph, slot: Slot, queries: Triples) -> Tensor:
    """(n, n_candidates): every triple written out, composed and scored, straight from the formula."""
    n_candidates = model.n_relations if slot is Slot.RELATION else model.n_entities
    triples = [
        [candidate if position == slot else given for position, given in zip(Slot, row, strict=True)]
        for row in queries.to_rows().tolist()
        for candidate in range(n_candidates)
    ]
    head, relation, tail = torch.tensor(triples).T
    if slot is Slot.HEAD and model.reciprocal:
        head, relation, tail = tail, relation + model.n_relations, head
    composed = model.composition.compose(model.entities(head), model.relations(relation), model.entities(tail))
    return model.form.fold()(composed).view(-1, n_candidates)


def gradients(model: GradientGraph, loss: Tensor, retain_graph: bool = False) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [*model.parameters()], retain_graph=retain_graph, materialize_grads=True))


def harmony_at_the_optimum_is_the_score(model: GradientGraph, queries: Triples) -> None:
    """H(mu(x), x) = folded score; mu beats perturbations; the dynamics end there and harmony never falls."""
    harmony = model.harmony
    composed, tokens = model.compose(queries), model.tokens(queries)
    close(harmony(tokens, composed), model.score(queries), "H(mu(x), x)")
    for size in (1e-3, 0.1, 1.0):
        near = tokens + size * torch.randn_like(tokens)
        assert (harmony(near, composed) <= harmony(tokens, composed)).all(), "a perturbed state has more harmony"
    path = harmony.relax(composed, steps=500)
    torch.testing.assert_close(path.hidden[-1], tokens, rtol=1e-6, atol=1e-6)
    assert (path.harmony.diff(dim=0) >= -1e-9).all(), "harmony fell along the dynamics"
    norm = torch.linalg.matrix_norm(harmony.matrix(), "fro" if harmony.constraint == "frobenius" else 2)
    assert norm <= harmony.cap * (1 + 1e-9), "W is outside its cap"
