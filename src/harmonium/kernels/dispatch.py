"""Scores of candidates by the fastest backend that applies. All backends compute what `reference` defines.

`use("reference")` or `use("torch")` switches faster backends off; `select_backend(...)` tells which backend applies and why
no faster one does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from harmonium.kernels import reference, torch_backend, triton_backend
from harmonium.kernels.cross_entropy import Shard
from harmonium.kernels.interfaces import Loss, SlotMapLike
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.kernels.unit_rows import unit_rows

BACKENDS = ("reference", "torch", "triton")  # each faster than the one before, where it applies
_fastest = "triton"


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Use this backend or slower ones inside the block, for comparison and debugging."""
    global _fastest
    if backend not in BACKENDS:
        raise ValueError(f"no backend '{backend}'; there are {', '.join(BACKENDS)}")
    before, _fastest = _fastest, backend
    try:
        yield
    finally:
        _fastest = before


def select_backend(form: QuadraticForm, slot_map: SlotMapLike, table: Tensor) -> tuple[str, str]:
    """The backend that computes sampled scores, and the reason why no faster one does."""
    if _fastest != "triton":
        return _fastest, "faster backends are switched off"
    obstacle = triton_backend.obstacle(form, slot_map, table)
    return ("triton", "") if obstacle is None else ("torch", obstacle)


def pruning_allowed() -> bool:
    """Whether ranks may be computed by bounds (kernels/pruning.py): always, except by the reference."""
    return _fastest != "reference"


def all_scores(form: QuadraticForm, slot_map: SlotMapLike, candidates: Tensor) -> Tensor:
    """(b, n): scores of shared candidates (n, slot_dim) for each query of the slot map."""
    if _fastest == "reference":
        return reference.all_scores(form, slot_map, candidates)
    return torch_backend.all_scores(form, slot_map, candidates)


def cross_entropy(
    form: QuadraticForm,
    slot_maps: Sequence[SlotMapLike],
    candidates: Tensor,
    target: Tensor,
    smoothing: float = 0.0,
    weights: Tensor | None = None,
    query_of: Tensor | None = None,
    shard: Shard | None = None,
) -> Tensor:
    """The mean cross-entropy of answers, target (m,), to the queries of all slot maps against all candidates.

    `smoothing` is the share of the target probability that is spread evenly over all candidates. The loss of an answer is
    multiplied by its weight (m,), if there are weights. `query_of` (m,), ascending, is the query of each answer;
    by default each query has one. With a `shard`, candidates and result are the part of one process.
    """
    compute = reference.cross_entropy if _fastest == "reference" else torch_backend.cross_entropy
    return compute(form, slot_maps, candidates, target, smoothing, weights, query_of, shard)


def sampled_scores(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor], normalise: bool
) -> list[Tensor]:
    """(b, n) for each slot map: scores of the candidates of each query, rows ids (b, n) of the table.

    With `normalise` the candidates are the rows divided by their lengths.
    """
    backend, table, normalise = _prepare(form, slot_maps, table, normalise)
    if backend == "torch":
        return torch_backend.sampled_scores(form, slot_maps, table, ids, normalise)
    if backend == "triton":
        return triton_backend.sampled_scores(form, slot_maps, table, ids)
    return reference.sampled_scores(form, slot_maps, table, ids)


def sampled_loss(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor], normalise: bool, loss: Loss
) -> Tensor:
    """The loss of `sampled_scores`, slot map by slot map; `loss(scores, part)` is the mean over the queries of a slice.

    Where gradients can be computed block by block, the loss is called once per block.
    """
    backend, table, normalise = _prepare(form, slot_maps, table, normalise)
    if backend == "torch":
        value = torch_backend.sampled_loss(form, slot_maps, table, ids, normalise, loss)
        if value is not None:
            return value
    scores = torch.cat(sampled_scores(form, slot_maps, table, ids, normalise))
    return loss(scores, slice(0, len(scores)))


def shared_scores(form: QuadraticForm, slot_map: SlotMapLike, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): scores of candidates, rows ids (g, n) of the table, each row of ids shared by b / g consecutive queries."""
    if _fastest == "reference" or not torch_backend.can_share(form, slot_map):
        repeated = ids.repeat_interleave(len(slot_map) // len(ids), dim=0)
        return sampled_scores(form, [slot_map], table, [repeated], normalise=False)[0]
    return torch_backend.shared_scores(form, slot_map, table, ids)


def _prepare(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, normalise: bool
) -> tuple[str, Tensor, bool]:
    """The backend for all slot maps, the table to pass to it, and whether it must still normalise the rows."""
    backend = min((select_backend(form, slot_map, table)[0] for slot_map in slot_maps), key=BACKENDS.index)
    if normalise and (backend != "torch" or form.core is not None):
        table, normalise = unit_rows(table), False
    return backend, table, normalise
