"""Check a composition before it is used: one vector for each triple, affine in each slot, and what it says of itself true.

All scores but those of single triples are derived from these assumptions, and would be silently wrong without them.
Random vectors of several lengths settle it: a formula that is not affine does not pass by chance.
"""

from __future__ import annotations

import torch
from numpy import broadcast_shapes  # torch.broadcast_shapes imports sympy, half a second
from torch import Tensor

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.kernels.interfaces import ElementwiseProduct, Product
from harmonium.model.composition import Composition, SlotMap

LENGTHS = (1.0, 1e-3, 1e3)  # spread of the random coordinates
MIXING_WEIGHTS = (0.3, -1.7)  # u and v are mixed as w u + (1 - w) v
AFFINE_TOLERANCE = (
    1e-6  # of the sizes of the vectors compared: far above rounding, far below any formula that is not affine
)
TRIPLES = 3
NEXT = "write a formula that is affine in each slot (CONTRIBUTING.md, Add a composition)"


def check_own_composition(composition: Composition, entity_dim: int, relation_dim: int) -> None:
    """Check a composition from outside the package; those in it are tested (it takes some hundredths of a second)."""
    if not type(composition).__module__.startswith("harmonium."):
        with torch.device("cpu"):
            check_composition(composition, entity_dim, relation_dim)


@torch.no_grad()
def check_composition(composition: Composition, entity_dim: int, relation_dim: int) -> None:
    """Refuse a composition that is not affine in each slot, or not what it says."""
    generator = torch.Generator().manual_seed(0)
    sizes = {Slot.HEAD: entity_dim, Slot.RELATION: relation_dim, Slot.TAIL: entity_dim}
    for length in LENGTHS:
        vectors = {slot: _random(generator, length, TRIPLES, size) for slot, size in sizes.items()}
        if length == 1:
            _check_shapes(composition, vectors)
        for slot in Slot:
            first, second = (vectors[other] for other in Slot if other is not slot)
            slot_map = SlotMap(composition, slot, first, second, sizes[slot])
            _check_affine(slot_map, vectors[slot], _random(generator, length, TRIPLES, sizes[slot]))
            _check_statements(slot_map, vectors[slot], generator)


def _random(generator: torch.Generator, length: float, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * length


def _check_shapes(composition: Composition, vectors: dict[Slot, Tensor]) -> None:
    """One vector for each triple, whatever the leading dimensions, and the same one in every batch."""
    together = compose(composition, *vectors.values())
    alone = [compose(composition, *(vector[row] for vector in vectors.values())) for row in range(TRIPLES)]
    head, relation, tail = vectors.values()
    crossed = compose(composition, head[:, None], relation[:, None], tail)  # (TRIPLES, TRIPLES, dim)
    if crossed.shape != (TRIPLES, *together.shape):
        raise HarmoniumError(
            f"composition '{composition.name}': compose returns vectors of {together.shape[-1]} coordinates for one batch "
            f"and of {crossed.shape[-1]} for another; write it for any leading dimensions, with ... and dim=-1"
        )
    diagonal = crossed[torch.arange(TRIPLES), torch.arange(TRIPLES)]
    for vector in (torch.stack(alone), diagonal):
        if _relative_difference(vector, together) > AFFINE_TOLERANCE:
            raise HarmoniumError(
                f"composition '{composition.name}': the composed vector of a triple depends on the others of its batch, "
                "or on chance; write a formula of one triple, for any leading dimensions, with ... and dim=-1"
            )


def compose(composition: Composition, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    """The composed vectors (..., dim); an error where the formula fails or returns anything else."""
    title = f"composition '{composition.name}': compose"
    try:
        composed = composition.compose(head, relation, tail)
    except Exception as error:  # code of a user
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        shapes = ", ".join(str(tuple(vectors.shape)) for vectors in (head, relation, tail))
        raise HarmoniumError(
            f"{title} fails on {head.dtype} vectors of the shapes {shapes} ({reason}); write it for any leading dimensions, "
            "with ... and dim=-1"
        ) from error
    if not isinstance(composed, Tensor):
        raise HarmoniumError(f"{title} returns a {type(composed).__name__}, not a tensor (..., dim)")
    leading = broadcast_shapes(head.shape[:-1], relation.shape[:-1], tail.shape[:-1])
    if composed.shape[:-1] != leading or composed.dim() != len(leading) + 1 or not composed.shape[-1]:
        raise HarmoniumError(
            f"{title} returns the shape {tuple(composed.shape)} for triples {(*leading,)}, not {(*leading, 'dim')}: "
            "one vector for each triple. A score is not a composed vector: the form makes it, from the coordinates"
        )
    if composed.dtype != head.dtype:
        raise HarmoniumError(f"{title} returns {composed.dtype} for {head.dtype}; keep the dtype of the vectors")
    if composed.device != head.device:
        raise HarmoniumError(f"{title} returns a tensor on {composed.device} for {head.device}; keep the device")
    if not composed.isfinite().all():
        raise HarmoniumError(f"{title} returns numbers that are not finite for finite vectors; {NEXT}")
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
                f"of all candidates, gradients and ranks would be wrong; {NEXT}: no abs, norm, power or nonlinearity"
            )


def _check_statements(slot_map: SlotMap, candidate: Tensor, generator: torch.Generator) -> None:
    """`is_linear`, and the formulas that a composition may add for speed."""
    composition, slot = slot_map.composition, slot_map.slot.value
    composed, offset = _apply(slot_map, candidate), _apply(slot_map, torch.zeros_like(candidate))
    if composition.is_linear and _relative_difference(composed + offset, composed, offset) > AFFINE_TOLERANCE:
        raise HarmoniumError(
            f"composition '{composition.name}' says is_linear, but a zero {slot} does not compose to zero: it is affine in "
            "each slot, not linear; remove is_linear"
        )
    cotangent = _random(generator, 1.0, *composed.shape)
    try:
        wrong = _find_false_statement(slot_map, candidate, composed, offset, cotangent)
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


def _find_false_statement(
    slot_map: SlotMap, candidate: Tensor, composed: Tensor, offset: Tensor, cotangent: Tensor
) -> tuple[str, str] | None:
    """The name of a method that does not return what it should, and what that is."""
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
        bound.shape == (TRIPLES, TRIPLES) and (bound.diagonal() >= lengths * (1 - AFFINE_TOLERANCE)).all()
    ):
        return "norm_bound", "at least the squared length of T e"
    return None


def _multiply(product: Product, candidate: Tensor) -> Tensor:
    """The composed vectors by a product, from its definition."""
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
    """The largest difference of two tensors relative to the largest number in these and others."""
    size = max(float(tensor.abs().max()) for tensor in (one, two, *others))
    return float((one - two).abs().max()) / size if size else 0.0
