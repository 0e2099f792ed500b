"""Scores of candidates, by the fastest way that applies. Every way gives what `reference` defines.

`use("reference")` switches the fast paths off; `chosen()` says which way is in use and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from harmonium.kernels import fused, reference

WAYS = {"reference": reference, "fused": fused}
_way = "fused"


@contextmanager
def use(way: str) -> Iterator[None]:
    """Compute by one way inside the block."""
    global _way
    if way not in WAYS:
        raise ValueError(f"no kernels '{way}'; there are {', '.join(WAYS)}")
    before, _way = _way, way
    try:
        yield
    finally:
        _way = before


def pruning_allowed() -> bool:
    """Whether ranks may be found by bounds (kernels/pruning.py): always, but for the reference."""
    return _way != "reference"


def all_scores(form, slot_map, candidates: Tensor) -> Tensor:
    """(b, n): scores of shared candidates (n, slot_dim) for each query of the slot map."""
    return WAYS[_way].all_scores(form, slot_map, candidates)


def sampled_scores(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): scores of each query's own candidates, rows ids (b, n) of the table."""
    return WAYS[_way].sampled_scores(form, slot_map, table, ids)
