"""Compositions: how the vectors of head, relation and tail become one triplet vector.

A composition is one formula, linear (or affine) in each slot, broadcasting over leading dimensions. What the rest of
the library needs (slot maps, all-entity scores, tokens, neighbourhoods) is derived from it here. To add one:

    class Mine(Composition):
        def compose(self, head, relation, tail):
            return head * relation + relation * tail
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.graph import Slot

LARGEST = 20_000  # coordinates of a composed vector


@dataclass(frozen=True)
class SlotMap:
    """The affine map candidate -> composed vector that is left when two slots are given: x = T e + offset."""

    composition: Composition
    slot: Slot
    first: Tensor  # (..., its dim): the given vectors, in the order head, relation, tail
    second: Tensor  # (..., its dim)
    slot_dim: int
    relation_ids: Tensor | None = None  # (b,): which row of relation_table each query uses, where that is known
    relation_table: Tensor | None = None  # (n_relations, relation_dim)
    in_order: bool = False  # whether relation_ids rise

    def apply(self, candidate: Tensor) -> Tensor:
        """(..., slot_dim) -> (..., dim): the formula itself."""
        vectors = [self.first, self.second]
        vectors.insert(list(Slot).index(self.slot), candidate)
        return self.composition.compose(*vectors)

    def beside_candidates(self) -> SlotMap:
        """The same map with a candidate axis: apply then takes (n, slot_dim) or (..., n, slot_dim)."""
        return replace(self, first=self.first.unsqueeze(-2), second=self.second.unsqueeze(-2))

    def select(self, rows: Tensor | slice) -> SlotMap:
        """The maps of some queries."""
        return replace(self, first=self.first[rows], second=self.second[rows])

    def double(self) -> SlotMap:
        return replace(self, first=self.first.double(), second=self.second.double())

    @property
    def zeros(self) -> Tensor:
        shape = torch.broadcast_shapes(self.first.shape[:-1], self.second.shape[:-1])
        return self.first.new_zeros(*shape, self.slot_dim)

    @property
    def offset(self) -> Tensor:
        """(..., dim): the composed vector of the zero candidate; zero for all but affine compositions."""
        return self.apply(self.zeros)

    def transpose(self, cotangent: Tensor) -> Tensor:
        """T'v without building T. (..., dim) -> (..., slot_dim)."""
        return self.composition.transpose(self, cotangent)

    def heads(self, directions: Tensor) -> Tensor:
        """T'u for several directions u at once. (k, dim) -> (..., k, slot_dim)."""
        return self.beside_candidates().transpose(directions)

    def dense(self) -> Tensor:
        """T' itself, (..., slot_dim, dim), for small sizes and for least squares."""
        basis = torch.eye(self.slot_dim, dtype=self.first.dtype, device=self.first.device)
        return self.beside_candidates().apply(basis) - self.offset.unsqueeze(-2)


@dataclass(frozen=True)
class Product:
    """A slot map as x = weight * (known o e), where `o` multiplies coordinates, or correlates in a circle.

    Correlation is a product of spectra, conj(F known) * F e. With the candidate before what is known x comes out turned:
    corr(e, known) at k is corr(known, e) at -k.
    """

    known: Tensor  # (b, slot_dim)
    weight: Tensor | None = None  # (b, slot_dim): the relation; None is 1
    correlates: bool = False
    turned: bool = False


class Composition(ABC):
    """One formula; everything else has a default that follows from it."""

    registry: ClassVar[dict[str, type[Composition]]] = {}
    name: ClassVar[str]
    is_linear: ClassVar[bool] = False  # in each slot, not just affine: a zero candidate composes to zero; saves work
    by_relation: ClassVar[bool] = False  # whether its `product` is weighted by the relation

    def __init_subclass__(cls) -> None:
        cls.name = cls.__dict__.get("name", cls.__name__.lower())
        Composition.registry[cls.name] = cls

    @abstractmethod
    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """(..., entity_dim), (..., relation_dim), (..., entity_dim) -> (..., dim)."""

    def relation_dim(self, entity_dim: int) -> int:
        """The size of a relation vector when the user does not choose it."""
        return entity_dim

    def check(self, entity_dim: int, relation_dim: int) -> None:
        """Refuse sizes that the formula cannot use."""
        if relation_dim != entity_dim:
            raise HarmoniumError(
                f"{self.name} needs relation_dim equal to entity_dim, not {relation_dim} and {entity_dim}"
            )

    def magnitude(self, vectors: Tensor) -> Tensor:
        """The sizes of a vector's coordinates, as the N3 regulariser sees them."""
        return vectors.abs()

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        """T'v, the vector-Jacobian product of the formula; a composition may override it with a quicker formula."""
        shape = torch.broadcast_shapes(slot_map.zeros.shape[:-1], cotangent.shape[:-1])
        composed, pull = torch.func.vjp(slot_map.apply, slot_map.zeros.expand(*shape, -1))
        return pull(cotangent.expand_as(composed))[0]

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor | None:
        """(b, n): at least |Te|^2 for each query and candidate, found cheaply; None when there is no such bound.

        (|x|^2, where the composition is linear.) With one, exact ranking can leave most candidates unscored
        (kernels/pruning.py).
        """
        return None

    def product(self, slot_map: SlotMap) -> Product | None:
        """The slot map as a product with each candidate, which the fastest kernels need; None where it is not one."""
        return None

    def dim(self, entity_dim: int, relation_dim: int) -> int:
        """The size of the composed vector, found by composing."""
        self.check(entity_dim, relation_dim)
        entity = torch.zeros(entity_dim)
        return self.compose(entity, torch.zeros(relation_dim), entity).shape[-1]


def find_composition(name: str) -> Composition:
    """A registered composition by name."""
    if name not in Composition.registry:
        known = ", ".join(sorted(Composition.registry))
        raise HarmoniumError(
            f"no composition '{name}'; there are {known}. One of your own must be imported first (--plugin FILE.py)"
        )
    return Composition.registry[name]()


class DistMult(Composition):
    """x = head * relation * tail, elementwise (Yang et al. 2015)."""

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return head * relation * tail

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        return slot_map.first * slot_map.second * cotangent

    def product(self, slot_map: SlotMap) -> Product:
        return Product(slot_map.first * slot_map.second)

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        return (slot_map.first * slot_map.second).square() @ candidates.square().T


class HolE(Composition):
    """x = relation * (head correlated with tail), circular correlation by FFT (Nickel et al. 2016)."""

    is_linear = True
    by_relation = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(head).conj() * torch.fft.rfft(tail)
        return relation * torch.fft.irfft(spectrum, n=head.shape[-1])

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        """Correlation is a product of spectra, so its transposes are too: convolution for tails, correlation for heads."""
        one = torch.ones_like(cotangent)
        if slot_map.slot is Slot.RELATION:
            return cotangent * self.compose(slot_map.first, one, slot_map.second)
        if slot_map.slot is Slot.HEAD:
            return self.compose(slot_map.first * cotangent, one, slot_map.second)
        spectrum = torch.fft.rfft(slot_map.first) * torch.fft.rfft(slot_map.second * cotangent)
        return torch.fft.irfft(spectrum, n=slot_map.slot_dim)

    def product(self, slot_map: SlotMap) -> Product | None:
        if slot_map.slot is Slot.RELATION:
            return None
        is_head = slot_map.slot is Slot.HEAD
        relation, known = (slot_map.first, slot_map.second)[:: 1 if is_head else -1]
        return Product(known, relation, correlates=True, turned=is_head)

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        """|r z|^2 <= max r^2 |z|^2 for z = corr(head, tail), and |z|^2 by Parseval from the two power spectra."""
        if slot_map.slot is Slot.RELATION:
            shift = self.compose(slot_map.first, torch.ones_like(slot_map.first), slot_map.second)
            return shift.square() @ candidates.square().T
        product = self.product(slot_map)
        relation, known = product.weight, product.known
        power = torch.fft.fft(known).abs().square() / known.shape[-1]
        other = torch.fft.fft(candidates).abs().square()
        return relation.square().amax(-1, keepdim=True) * (power @ other.T)


class ComplEx(Composition):
    """The terms of Re<head * relation, conj tail>; a vector holds real parts, then imaginary (Trouillon et al. 2016)."""

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        (a, b), (c, d) = head.chunk(2, dim=-1), relation.chunk(2, dim=-1)
        return torch.cat([a * c - b * d, a * d + b * c], dim=-1) * tail

    def product(self, slot_map: SlotMap) -> Product | None:
        if slot_map.slot is not Slot.TAIL:
            return None
        return Product(self.compose(slot_map.first, slot_map.second, torch.ones_like(slot_map.first)))

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        """Exact for tails; for the others |x| <= |known| |candidate| |tail| coordinate by complex coordinate."""
        if slot_map.slot is Slot.TAIL:
            return self.compose(slot_map.first, slot_map.second, torch.ones_like(slot_map.first)).square() @ (
                candidates.square().T
            )
        known = self.magnitude(slot_map.first) * self.magnitude(slot_map.second)
        return known.square() @ self.magnitude(candidates).square().T

    def check(self, entity_dim: int, relation_dim: int) -> None:
        super().check(entity_dim, relation_dim)
        if entity_dim % 2:
            raise HarmoniumError(f"complex needs an even entity_dim (real and imaginary halves), not {entity_dim}")

    def magnitude(self, vectors: Tensor) -> Tensor:
        real, imaginary = vectors.chunk(2, dim=-1)
        return (real.square() + imaginary.square()).clamp(min=1e-20).sqrt()


class TensorProduct(Composition):
    """x = head (x) relation (x) tail, all products of three coordinates (Smolensky 1990; the paper's HTPR)."""

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        cube = head[..., :, None, None] * relation[..., None, :, None] * tail[..., None, None, :]
        return cube.flatten(start_dim=-3)

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        lengths = slot_map.first.square().sum(-1) * slot_map.second.square().sum(-1)
        return lengths[:, None] * candidates.square().sum(-1)

    def check(self, entity_dim: int, relation_dim: int) -> None:
        size = entity_dim * relation_dim * entity_dim
        if size > LARGEST:
            raise HarmoniumError(
                f"tensorproduct of entity_dim {entity_dim} and relation_dim {relation_dim} has {size:,} coordinates; "
                "choose smaller ones (the paper used 5 and 20)"
            )


class Concatenation(Composition):
    """x = [head, relation, tail]: affine in each slot. Only a quadratic form lets the three meet (the paper's appendix)."""

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(head.shape[:-1], relation.shape[:-1], tail.shape[:-1])
        return torch.cat([vector.expand(*shape, -1) for vector in (head, relation, tail)], dim=-1)

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        return candidates.square().sum(-1).expand(len(slot_map.first), -1)

    def check(self, entity_dim: int, relation_dim: int) -> None:
        """Any sizes go together."""


class RescalProduct(Composition):
    """x = head * (R tail) with R the relation as a matrix: RESCAL's score is the sum of x (Nickel et al. 2011)."""

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return head * torch.einsum("...ij,...j->...i", as_matrix(relation), tail)

    def relation_dim(self, entity_dim: int) -> int:
        return entity_dim**2

    def check(self, entity_dim: int, relation_dim: int) -> None:
        if relation_dim != entity_dim**2:
            raise HarmoniumError(
                f"{self.name} needs relation_dim {entity_dim**2:,}, a matrix of entity_dim {entity_dim} squared, "
                f"not {relation_dim:,}; leave model.relation_dim out"
            )


class Rescal(RescalProduct):
    """x = all terms head_i R_ij tail_j of RESCAL's score head' R tail (Nickel et al. 2011)."""

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (head[..., :, None] * as_matrix(relation) * tail[..., None, :]).flatten(start_dim=-2)

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        """Summed before any (queries, directions, dim) tensor exists: x has the square of an entity's size."""
        first, second = slot_map.first, slot_map.second
        if slot_map.slot is Slot.RELATION:
            return self.compose(first, cotangent, second)
        if slot_map.slot is Slot.HEAD:
            terms, formula = as_matrix(first) * second[..., None, :], "...ij,...ij->...i"
        else:
            terms, formula = first[..., :, None] * as_matrix(second), "...ij,...ij->...j"
        return torch.einsum(formula, terms, as_matrix(cotangent))

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        """Exact: the squares of the terms are the terms of the squares."""
        squares = replace(slot_map, first=slot_map.first.square(), second=slot_map.second.square())
        return self.transpose(squares, torch.ones_like(slot_map.offset)) @ candidates.square().T

    def check(self, entity_dim: int, relation_dim: int) -> None:
        super().check(entity_dim, relation_dim)
        if relation_dim > LARGEST:
            raise HarmoniumError(
                f"rescal of entity_dim {entity_dim} has {relation_dim:,} coordinates; choose at most "
                f"{math.isqrt(LARGEST)}, or rescalproduct: as many coordinates as an entity, and the same plain score"
            )


class TripleCorrelation(Composition):
    """x_k = sum_ij head_i relation_j tail_(i+j+k), by FFT: the inverse of conj(F head) conj(F relation) F tail.

    The circular correlation of all three, as the authors' code has it; its first coordinate is HolE's score. The sum
    of x says little (it is the product of three sums), so start with model.initialisation=paper.
    """

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        spectrum = (torch.fft.rfft(head) * torch.fft.rfft(relation)).conj() * torch.fft.rfft(tail)
        return torch.fft.irfft(spectrum, n=head.shape[-1])

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        """Exact, by Parseval from the three power spectra."""
        power = lambda vectors: torch.fft.fft(vectors).abs().square()  # noqa: E731
        return power(slot_map.first) * power(slot_map.second) @ power(candidates).T / candidates.shape[-1]


def as_matrix(vector: Tensor) -> Tensor:
    """(..., d^2) -> (..., d, d)."""
    side = math.isqrt(vector.shape[-1])
    return vector.unflatten(-1, (side, side))
