"""The specification: scores of candidates by composing every one of them. Slow, plain, right."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def all_scores(form, slot_map, candidates: Tensor) -> Tensor:
    """(b, n): form(compose(...)) of each query with each of the shared candidates (n, slot_dim)."""
    return form(slot_map.beside_candidates().apply(candidates))


def sampled_scores(form, slot_maps, table: Tensor, ids) -> list[Tensor]:
    """(b, n) for each slot map: the same with candidates of each query's own, rows ids (b, n) of the table."""
    pairs = zip(slot_maps, ids, strict=True)
    return [form(slot_map.beside_candidates().apply(F.embedding(some, table))) for slot_map, some in pairs]
