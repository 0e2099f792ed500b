"""The specification: scores of candidates by composing every one of them. Slow, plain, right."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def all_scores(form, slot_map, candidates: Tensor) -> Tensor:
    """(b, n): form(compose(...)) of each query with each of the shared candidates (n, slot_dim)."""
    return form(slot_map.beside_candidates().apply(candidates))


def sampled_scores(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): the same with candidates of each query's own, rows ids (b, n) of the table."""
    return form(slot_map.beside_candidates().apply(F.embedding(ids, table)))
