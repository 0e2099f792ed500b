"""Check that a composition is affine in each slot, and that its declared properties hold.

All scores except those of single triples are derived from these assumptions, and would be silently wrong without them.
The checks use random vectors of several lengths; a formula that is not affine does not pass by chance.
"""

from __future__ import annotations

import torch
from numpy import broadcast_shapes  # torch.broadcast_shapes imports sympy, half a second
from torch import Tensor

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.kernels.interfaces import ElementwiseProduct, Product
from harmonium.model.composition import Composition, SlotMap

SPREADS = (1.0, 1e-3, 1e3)  # of the random coordinates
MIXING_WEIGHTS = (0.3, -1.7)  # u and v are mixed as w u + (1 - w) v
AFFINE_TOLERANCE = 1e-6  # relative; far above rounding errors, far below those of formulas that are not affine
N_TRIPLES = 3  # composed together
ADVICE = "write a formula that is affine in each slot (CONTRIBUTING.md, Add a composition)"


def check_own_composition(composition: Composition, entity_dim: int, relation_dim: int) -> None:
    """Check a composition unless it is built in, as those have tests. Takes some hundredths of a second."""
    if not type(composition).__module__.startswith("harmonium."):
        with torch.device("cpu"):
            check_composition(composition, entity_dim, relation_dim)


@torch.no_grad()
def check_composition(composition: Composition, entity_dim: int, relation_dim: int) -> None:
    """Raise an error for a composition that is not affine in each slot, or whose declared properties do not hold."""
    generator = torch.Generator().manual_seed(0)
    sizes = {Slot.HEAD: entity_dim, Slot.RELATION: relation_dim, Slot.TAIL: entity_dim}
    for length in SPREADS:
        vectors = {slot: _random(generator, length, N_TRIPLES, size) for slot, size in sizes.items()}
        if length == 1:
            _check_shapes(composition, vectors)
        for slot in Slot:
            first, second = (vectors[other] for other in Slot if other is not slot)
            slot_map = SlotMap(composition, slot, first, second, sizes[slot])
            _check_affine(slot_map, vectors[slot], _random(generator, length, N_TRIPLES, sizes[slot]))
            _check_declarations(slot_map, vectors[slot], generator)


def _random(generator: torch.Generator, length: float, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * length


def _check_shapes(composition: Composition, vectors: dict[Slot, Tensor]) -> None:
    """Check that each triple gets one vector, for any leading dimensions and regardless of the rest of the batch."""
    together = compose(composition, *vectors.values())
    alone = [compose(composition, *(vector[row] for vector in vectors.values())) for row in range(N_TRIPLES)]
    head, relation, tail = vectors.values()
    crossed = compose(composition, head[:, None], relation[:, None], tail)  # (N_TRIPLES, N_TRIPLES, dim)
    if crossed.shape != (N_TRIPLES, *together.shape):
        raise HarmoniumError(
            f"composition '{composition.name}': compose returns vectors of {together.shape[-1]} coordinates for one batch "
            f"and of {crossed.shape[-1]} for another; write it for any leading dimensions, with ... and dim=-1"
        )
    diagonal = crossed[torch.arange(N_TRIPLES), torch.arange(N_TRIPLES)]
    for vector in (torch.stack(alone), diagonal):
        if _relative_difference(vector, together) > AFFINE_TOLERANCE:
            raise HarmoniumError(
                f"composition '{composition.name}': the composed vector of a triple depends on the others of its batch, "
                "or on chance; write a formula of one triple, for any leading dimensions, with ... and dim=-1"
            )


def compose(composition: Composition, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    """The composed vectors (..., dim); an error if the formula fails or returns anything else."""
    subject = f"composition '{composition.name}': compose"
    try:
        composed = composition.compose(head, relation, tail)
    except Exception as error:  # code of a user
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        shapes = ", ".join(str(tuple(vectors.shape)) for vectors in (head, relation, tail))
        raise HarmoniumError(
            f"{subject} fails on {head.dtype} vectors of shapes {shapes} ({reason}); write it for any leading dimensions, "
            "with ... and dim=-1"
        ) from error
    if not isinstance(composed, Tensor):
        raise HarmoniumError(f"{subject} returns a {type(composed).__name__}, not a tensor (..., dim)")
    leading = broadcast_shapes(head.shape[:-1], relation.shape[:-1], tail.shape[:-1])
    if composed.shape[:-1] != leading or composed.dim() != len(leading) + 1 or not composed.shape[-1]:
        raise HarmoniumError(
            f"{subject} returns the shape {tuple(composed.shape)} for triples {(*leading,)}, not {(*leading, 'dim')}: "
            "one vector for each triple. Return the composed vector, not its score, which the form computes from it"
        )
    if composed.dtype != head.dtype:
        raise HarmoniumError(f"{subject} returns {composed.dtype} for {head.dtype}; keep the dtype of the vectors")
    if composed.device != head.device:
        raise HarmoniumError(f"{subject} returns a tensor on {composed.device} for {head.device}; keep the device")
    if not composed.isfinite().all():
        raise HarmoniumError(f"{subject} returns numbers that are not finite for finite vectors; {ADVICE}")
    return composed


def _check_affine(slot_map: SlotMap, one: Tensor, two: Tensor) -> None:
    composed = [_apply(slot_map, vector) for vector in (one, two)]
    for weight in MIXING_WEIGHTS:
        mixed = _apply(slot_map, weight * one + (1 - weight) * two)
        expected = weight * composed[0] + (1 - weight) * composed[1]
        difference = _relative_difference(mixed, expected, *composed)
        if difference > AFFINE_TOLERANCE:
            slot, given = slot_map.slot.value, slot_map.composition.name
            raise HarmoniumError(
                f"composition '{given}' is not affine in its {slot}: with {weight} u + {1 - weight:g} v as the {slot} the "
                f"composed vector differs, by {difference:.2g} of its size, from that mixture of those of u and v. Scores "
                f"of all candidates, gradients and ranks would be wrong; {ADVICE}: no abs, norm, power or nonlinearity"
            )


def _check_declarations(slot_map: SlotMap, candidate: Tensor, generator: torch.Generator) -> None:
    """Check `is_linear`, and the formulas that a composition may override for speed."""
    composition, slot = slot_map.composition, slot_map.slot.value
    composed, offset = _apply(slot_map, candidate), _apply(slot_map, torch.zeros_like(candidate))
    if composition.is_linear and _relative_difference(composed + offset, composed, offset) > AFFINE_TOLERANCE:
        raise HarmoniumError(
            f"composition '{composition.name}' declares is_linear, but a zero {slot} does not compose to zero: "
            "it is affine in each slot, not linear; remove is_linear"
        )
    cotangent = _random(generator, 1.0, *composed.shape)
    try:
        wrong = _find_wrong_formula(slot_map, candidate, composed, offset, cotangent)
    except Exception as error:  # code of a user
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HarmoniumError(
            f"composition '{composition.name}': transpose, norm_bound or product fails with the {slot} open ({reason}); "
            "correct or remove it"
        ) from error
    if wrong:
        raise HarmoniumError(
            f"composition '{composition.name}': {wrong[0]} with the {slot} open is not {wrong[1]}; correct or remove it"
        )


def _find_wrong_formula(
    slot_map: SlotMap, candidate: Tensor, composed: Tensor, offset: Tensor, cotangent: Tensor
) -> tuple[str, str] | None:
    """The first overridden method whose result is wrong, and what it should return; None if all are right."""
    change, pulled = composed - offset, slot_map.transpose(cotangent)
    products = (change * cotangent).sum(-1), (candidate * pulled).sum(-1)  # (T e).v and e.(T'v)
    size = change.norm(dim=-1) * cotangent.norm(dim=-1)
    if pulled.shape != candidate.shape or not ((products[0] - products[1]).abs() <= AFFINE_TOLERANCE * size).all():
        return "transpose", "the transpose of compose"
    product = slot_map.product()
    if product is not None and not _relative_difference(_multiply(product, candidate), composed) <= AFFINE_TOLERANCE:
        return "product", "a product with the candidate that compose makes"
    bound, lengths = slot_map.norm_bound(candidate), change.square().sum(-1)
    if bound is not None and not (
        bound.shape == (N_TRIPLES, N_TRIPLES) and (bound.diagonal() >= lengths * (1 - AFFINE_TOLERANCE)).all()
    ):
        return "norm_bound", "at least the squared length of T e"
    return None


def _multiply(product: Product, candidate: Tensor) -> Tensor:
    """The composed vectors, computed from the definition of a product."""
    if isinstance(product, ElementwiseProduct):
        return product.known * candidate
    first, second = (candidate, product.known) if product.candidate_first else (product.known, candidate)
    shifted = [second.roll(-k, dims=-1) for k in range(second.shape[-1])]
    return product.weight * torch.stack([(first * each).sum(-1) for each in shifted], dim=-1)


def _apply(slot_map: SlotMap, candidate: Tensor) -> Tensor:
    vectors = [slot_map.first, slot_map.second]
    vectors.insert(list(Slot).index(slot_map.slot), candidate)
    return compose(slot_map.composition, *vectors)


def _relative_difference(one: Tensor, two: Tensor, *others: Tensor) -> float:
    """The largest difference of two tensors, relative to the largest number in them and in `others`."""
    size = max(float(tensor.abs().max()) for tensor in (one, two, *others))
    return float((one - two).abs().max()) / size if size else 0.0
