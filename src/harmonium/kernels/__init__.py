"""Scores of candidates, by the fastest way that applies. Every way gives what `reference` defines.

`use("reference")` or `use("fused")` switches the faster ways off; `chosen(...)` says which way applies and why not a
faster one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from harmonium.kernels import fused, gpu, reference

WAYS = ("reference", "fused", "gpu")  # each faster than the one before, where it applies
_fastest = "gpu"


@contextmanager
def use(way: str) -> Iterator[None]:
    """Nothing faster than this way inside the block."""
    global _fastest
    if way not in WAYS:
        raise ValueError(f"no kernels '{way}'; there are {', '.join(WAYS)}")
    before, _fastest = _fastest, way
    try:
        yield
    finally:
        _fastest = before


def chosen(form, slot_map, table: Tensor) -> tuple[str, str]:
    """The way sampled scores take, and why no faster one."""
    if _fastest != "gpu":
        return _fastest, "the faster ways are switched off"
    reason = gpu.obstacle(form, slot_map, table)
    return ("gpu", "") if reason is None else ("fused", reason)


def pruning_allowed() -> bool:
    """Whether ranks may be found by bounds (kernels/pruning.py): always, but for the reference."""
    return _fastest != "reference"


def all_scores(form, slot_map, candidates: Tensor) -> Tensor:
    """(b, n): scores of shared candidates (n, slot_dim) for each query of the slot map."""
    way = reference if _fastest == "reference" else fused
    return way.all_scores(form, slot_map, candidates)


def sampled_scores(form, slot_maps: Sequence, table: Tensor, ids: Sequence[Tensor], raw: bool = False) -> list[Tensor]:
    """(b, n) for each slot map: scores of each query's own candidates, rows ids (b, n) of the table.

    The rows of a `raw` table are candidates when they are divided by their lengths.
    """
    way, table, raw = _way_to(form, slot_maps, table, raw)
    return way.sampled_scores(form, slot_maps, table, ids, *([True] * raw))


def sampled_loss(form, slot_maps: Sequence, table: Tensor, ids: Sequence[Tensor], of, raw: bool = False) -> Tensor:
    """`of(scores, which)` of those scores, the first slot map's before the second's: a mean over the queries in a slice.

    Where gradients can be found block by block, `of` is asked for some queries at a time.
    """
    found, (way, table, raw) = None, _way_to(form, slot_maps, table, raw)
    if way is fused:
        found = fused.sampled_loss(form, slot_maps, table, ids, of, raw)
    if found is None:
        scores = torch.cat(sampled_scores(form, slot_maps, table, ids, raw))
        found = of(scores, slice(0, len(scores)))
    return found


def _way_to(form, slot_maps: Sequence, table: Tensor, raw: bool) -> tuple[ModuleType, Tensor, bool]:
    """The kernels to use, the table as they want it, and whether it is raw still."""
    ways = {chosen(form, slot_map, table)[0] for slot_map in slot_maps}
    way = gpu if ways == {"gpu"} else reference if "reference" in ways else fused
    if raw and (way is not fused or form.core is not None):
        table, raw = fused.unit_rows(table), False
    return way, table, raw


def shared_scores(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): scores of candidates, rows ids (g, n) of the table, each row of ids shared by b / g queries in a row."""
    if _fastest == "reference" or not fused.can_share(form, slot_map):
        own = ids.repeat_interleave(len(slot_map.first) // len(ids), dim=0)
        return sampled_scores(form, [slot_map], table, [own])[0]
    return fused.shared_scores(form, slot_map, table, ids)
