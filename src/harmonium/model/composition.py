"""Compositions: how the vectors of head, relation and tail become one vector.

A composition is one formula, affine in each slot, broadcasting over leading dimensions: with the vectors of two slots
given, it is a linear map of the third plus a constant. What the rest of the library needs (slot maps, all-entity scores,
tokens, neighbourhoods) is derived from it, so a formula that is not affine in each slot is refused when a model is built
(composition_check.py). To add one:

    class Mine(Composition):
        def compose(self, head, relation, tail):
            return head * relation + relation * tail
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import ClassVar

import torch
from numpy import broadcast_shapes  # torch.broadcast_shapes imports sympy, half a second
from torch import Tensor

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.kernels.complex_product import complex_product
from harmonium.kernels.interfaces import CorrelationProduct, ElementwiseProduct, Product

MAX_DIM = 20_000  # coordinates of a composed vector


class Composition(ABC):
    """One formula, affine in each slot; everything else has a default that follows from it."""

    registry: ClassVar[dict[str, type[Composition]]] = {}
    name: ClassVar[str]
    is_linear: ClassVar[bool] = False  # in each slot, not just affine: a zero candidate composes to zero; saves work
    by_relation: ClassVar[bool] = False  # whether its `product` is weighted by the relation
    parts: ClassVar[int] = 1  # numbers per coordinate: 2 (d / 2 apart) for complex vectors

    def __init_subclass__(cls) -> None:
        cls.name = cls.__dict__.get("name", cls.__name__).lower()
        Composition.registry[cls.name] = cls

    @abstractmethod
    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """(..., entity_dim), (..., relation_dim), (..., entity_dim) -> (..., dim), affine in each of the three.

        With two of the vectors given, compose(w u + (1 - w) v) = w compose(u) + (1 - w) compose(v) in the third.
        """

    def relation_dim(self, entity_dim: int) -> int:
        """The default size of a relation vector."""
        return entity_dim

    def check(self, entity_dim: int, relation_dim: int) -> None:
        """Refuse sizes that the formula cannot use."""
        if relation_dim != entity_dim:
            raise HarmoniumError(
                f"{self.name} needs relation_dim equal to entity_dim, not {relation_dim} and {entity_dim}"
            )

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        """T'v, the vector-Jacobian product of the formula; override it with a faster formula."""
        shape = broadcast_shapes(slot_map.zeros.shape[:-1], cotangent.shape[:-1])
        composed, pull_back = torch.func.vjp(slot_map.apply, slot_map.zeros.expand(*shape, -1))[:2]
        pulled: Tensor = pull_back(cotangent.expand_as(composed))[0]
        return pulled

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor | None:
        """(b, n): a cheap upper bound on |Te|^2 of each query and candidate (|x|^2 of a linear composition), if any.

        With one, exact ranking needs the full scores of few candidates (kernels/pruning.py).
        """
        product = self.product(slot_map)
        return product.known.square() @ candidates.square().T if isinstance(product, ElementwiseProduct) else None

    def product(self, slot_map: SlotMap) -> Product | None:
        """The slot map as a product with each candidate, which the fastest kernels need; None if it is not one."""
        return None

    def dim(self, entity_dim: int, relation_dim: int) -> int:
        """The size of the composed vector."""
        from harmonium.model.composition_check import compose

        self.check(entity_dim, relation_dim)
        with torch.device("cpu"):  # also if the model is on the device "meta", for counting parameters
            entity = torch.zeros(entity_dim)
            return compose(self, entity, torch.zeros(relation_dim), entity).shape[-1]


@dataclass(frozen=True)
class SlotMap:
    """A composition with two of the three vectors given: the affine map candidate -> composed vector, x = T e + offset."""

    composition: Composition
    slot: Slot
    first: Tensor  # (..., dim of its slot): the given vectors, in the order head, relation, tail
    second: Tensor  # (..., dim of its slot)
    slot_dim: int
    relation_ids: Tensor | None = None  # (b,): the row of relation_table that each query uses, if known
    relation_table: Tensor | None = None  # (n_relations, relation_dim)
    sorted_by_relation: bool = False
    mask: Tensor | None = None  # (..., dim): factors of the composed vector's coordinates (dropout)

    def __len__(self) -> int:
        return len(self.first)

    def apply(self, candidate: Tensor) -> Tensor:
        """(..., slot_dim) -> (..., dim): the formula itself."""
        vectors = [self.first, self.second]
        vectors.insert(list(Slot).index(self.slot), candidate)
        composed = self.composition.compose(*vectors)
        return composed if self.mask is None else composed * self.mask

    def beside_candidates(self) -> SlotMap:
        """This map with a candidate axis inserted: `apply` then takes (n, slot_dim) or (..., n, slot_dim)."""
        mask = None if self.mask is None else self.mask.unsqueeze(-2)
        return replace(self, first=self.first.unsqueeze(-2), second=self.second.unsqueeze(-2), mask=mask)

    def select(self, rows: Tensor | slice) -> SlotMap:
        """The maps of these queries."""
        relation_ids = None if self.relation_ids is None else self.relation_ids[rows]
        mask = None if self.mask is None else self.mask[rows]
        return replace(self, first=self.first[rows], second=self.second[rows], relation_ids=relation_ids, mask=mask)

    def to(self, dtype: torch.dtype) -> SlotMap:
        mask = None if self.mask is None else self.mask.to(dtype)
        return replace(self, first=self.first.to(dtype), second=self.second.to(dtype), mask=mask)

    def double(self) -> SlotMap:
        return self.to(torch.float64)

    @property
    def zeros(self) -> Tensor:
        """(..., slot_dim): the zero candidate of each query."""
        shape = broadcast_shapes(self.first.shape[:-1], self.second.shape[:-1])
        return self.first.new_zeros(*shape, self.slot_dim)

    @property
    def offset(self) -> Tensor:
        """(..., dim): the composed vector of the zero candidate; zero for all but affine compositions."""
        return self.apply(self.zeros)

    def transpose(self, cotangent: Tensor) -> Tensor:
        """T'v without building T. (..., dim) -> (..., slot_dim)."""
        if self.mask is None:
            return self.composition.transpose(self, cotangent)
        return self.composition.transpose(replace(self, mask=None), cotangent * self.mask)

    def pull_back(self, directions: Tensor) -> Tensor:
        """T'u for several directions u at once. (k, dim) -> (..., k, slot_dim)."""
        return self.beside_candidates().transpose(directions)

    def dense(self) -> Tensor:
        """T' itself, (..., slot_dim, dim), for small sizes and for least squares."""
        basis = torch.eye(self.slot_dim, dtype=self.first.dtype, device=self.first.device)
        return self.beside_candidates().apply(basis) - self.offset.unsqueeze(-2)

    @property
    def is_linear(self) -> bool:
        return self.composition.is_linear

    def norm_bound(self, candidates: Tensor) -> Tensor | None:
        return self.composition.norm_bound(self, candidates) if self.mask is None else None

    def product(self) -> Product | None:
        product = self.composition.product(self)
        if self.mask is None or product is None:
            return product
        if isinstance(product, ElementwiseProduct):
            return ElementwiseProduct(product.known * self.mask)
        return replace(product, weight=product.weight * self.mask)


def find_composition(name: str) -> Composition:
    """The registered composition of this name, regardless of case."""
    if name.lower() not in Composition.registry:
        near = get_close_matches(name.lower(), Composition.registry, n=1)
        hint = f", did you mean {near[0]}?" if near else ";"
        raise HarmoniumError(
            f"no composition '{name}'{hint} there are {', '.join(sorted(Composition.registry))}. Import your own, a formula "
            "that is affine in each slot, first (--plugin FILE.py)"
        )
    return Composition.registry[name.lower()]()


class DistMult(Composition):
    """x = head * relation * tail, elementwise (Yang et al. 2015)."""

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return head * relation * tail

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        return slot_map.first * slot_map.second * cotangent

    def product(self, slot_map: SlotMap) -> ElementwiseProduct:
        return ElementwiseProduct(slot_map.first * slot_map.second)


class HolE(Composition):
    """x = relation * (head correlated with tail), circular correlation by FFT (Nickel et al. 2016)."""

    is_linear = True
    by_relation = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(head).conj() * torch.fft.rfft(tail)
        correlated: Tensor = torch.fft.irfft(spectrum, n=head.shape[-1])
        return relation * correlated

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        """Correlation is a product of spectra, so its transposes are too: convolution for tails, correlation for heads."""
        one = torch.ones_like(cotangent)
        if slot_map.slot is Slot.RELATION:
            return cotangent * self.compose(slot_map.first, one, slot_map.second)
        if slot_map.slot is Slot.HEAD:
            return self.compose(slot_map.first * cotangent, one, slot_map.second)
        spectrum = torch.fft.rfft(slot_map.first) * torch.fft.rfft(slot_map.second * cotangent)
        convolved: Tensor = torch.fft.irfft(spectrum, n=slot_map.slot_dim)
        return convolved

    def product(self, slot_map: SlotMap) -> CorrelationProduct | None:
        if slot_map.slot is Slot.RELATION:
            return None
        if slot_map.slot is Slot.HEAD:
            return CorrelationProduct(slot_map.second, slot_map.first, candidate_first=True)
        return CorrelationProduct(slot_map.first, slot_map.second)

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        """|r z|^2 <= max r^2 |z|^2 for z = corr(head, tail), and |z|^2 by Parseval from the two power spectra."""
        product = self.product(slot_map)
        if product is None:
            correlated = self.compose(slot_map.first, torch.ones_like(slot_map.first), slot_map.second)
            return correlated.square() @ candidates.square().T
        norms = power_spectrum(product.known) / candidates.shape[-1] @ power_spectrum(candidates).T
        return product.weight.square().amax(-1, keepdim=True) * norms


class ComplEx(Composition):
    """The terms of Re<head * relation, conj tail>; a vector holds real parts, then imaginary (Trouillon et al. 2016)."""

    is_linear = True
    parts = 2

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return complex_product(head, relation) * tail

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        """For tails head * relation; for the others the product of the tail with the conjugate of the known vector."""
        if slot_map.slot is Slot.TAIL:
            return self.compose(slot_map.first, slot_map.second, cotangent)
        return complex_product(slot_map.first, slot_map.second * cotangent, conjugate=True)

    def product(self, slot_map: SlotMap) -> ElementwiseProduct | None:
        if slot_map.slot is not Slot.TAIL:
            return None
        return ElementwiseProduct(complex_product(slot_map.first, slot_map.second))

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor | None:
        """Exact for tails; for the others |x| <= |known| |candidate| |tail| coordinate by complex coordinate."""
        if slot_map.slot is Slot.TAIL:
            return super().norm_bound(slot_map, candidates)
        known = squared_magnitude(slot_map.first) * squared_magnitude(slot_map.second)
        return known @ squared_magnitude(candidates).T

    def check(self, entity_dim: int, relation_dim: int) -> None:
        super().check(entity_dim, relation_dim)
        if entity_dim % 2:
            raise HarmoniumError(f"complex needs an even entity_dim (real and imaginary halves), not {entity_dim}")


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
        if size > MAX_DIM:
            raise HarmoniumError(
                f"tensorproduct of entity_dim {entity_dim} and relation_dim {relation_dim} has {size:,} coordinates; "
                "choose smaller ones (the paper used 5 and 20)"
            )


class Concatenation(Composition):
    """x = [head, relation, tail]: affine in each slot. Only a quadratic form lets the three meet (the paper's appendix)."""

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        shape = broadcast_shapes(head.shape[:-1], relation.shape[:-1], tail.shape[:-1])
        return torch.cat([vector.expand(*shape, -1) for vector in (head, relation, tail)], dim=-1)

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        return candidates.square().sum(-1).expand(len(slot_map.first), -1)

    def check(self, entity_dim: int, relation_dim: int) -> None:
        """Any combination of sizes is allowed."""


class RescalProduct(Composition):
    """x = head * (R tail) with R the relation as a matrix: RESCAL's score is the sum of x (Nickel et al. 2011)."""

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return head * torch.einsum("...ij,...j->...i", as_matrix(relation), tail)

    def transpose(self, slot_map: SlotMap, cotangent: Tensor) -> Tensor:
        first, second = slot_map.first, slot_map.second
        if slot_map.slot is Slot.HEAD:
            return self.compose(cotangent, first, second)
        if slot_map.slot is Slot.TAIL:
            return torch.einsum("...ij,...i->...j", as_matrix(second), first * cotangent)
        return ((first * cotangent)[..., :, None] * second[..., None, :]).flatten(start_dim=-2)

    def relation_dim(self, entity_dim: int) -> int:
        return entity_dim**2

    def check(self, entity_dim: int, relation_dim: int) -> None:
        if relation_dim != entity_dim**2:
            raise HarmoniumError(
                f"{self.name} needs relation_dim {entity_dim**2:,}, a matrix of entity_dim {entity_dim} squared, "
                f"not {relation_dim:,}; remove model.relation_dim"
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
        if relation_dim > MAX_DIM:
            raise HarmoniumError(
                f"rescal of entity_dim {entity_dim} has {relation_dim:,} coordinates; choose at most "
                f"{math.isqrt(MAX_DIM)}, or rescalproduct: as many coordinates as an entity, and the same plain score"
            )


class TripleCorrelation(Composition):
    """x_k = sum_ij head_i relation_j tail_(i+j+k), by FFT: the inverse of conj(F head) conj(F relation) F tail.

    The circular correlation of all three, as in the authors' code; its first coordinate is HolE's score. The sum
    of x is the product of three sums and ranks poorly, so start with model.initialisation=paper.
    """

    is_linear = True

    def compose(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        spectrum = (torch.fft.rfft(head) * torch.fft.rfft(relation)).conj() * torch.fft.rfft(tail)
        composed: Tensor = torch.fft.irfft(spectrum, n=head.shape[-1])
        return composed

    def norm_bound(self, slot_map: SlotMap, candidates: Tensor) -> Tensor:
        """Exact, by Parseval from the three power spectra."""
        given = power_spectrum(slot_map.first) * power_spectrum(slot_map.second)
        return given @ power_spectrum(candidates).T / candidates.shape[-1]


def as_matrix(vector: Tensor) -> Tensor:
    """(..., d^2) -> (..., d, d)."""
    side = math.isqrt(vector.shape[-1])
    return vector.view(*vector.shape[:-1], side, side)


def squared_magnitude(vectors: Tensor) -> Tensor:
    """(..., d) -> (..., d / 2) of complex coordinates, real parts first."""
    real, imaginary = vectors.chunk(2, dim=-1)
    return real.square() + imaginary.square()


def power_spectrum(vectors: Tensor) -> Tensor:
    """(..., d) -> (..., d): squared magnitudes of the discrete Fourier transform."""
    spectrum: Tensor = torch.fft.fft(vectors)
    return spectrum.abs().square()
