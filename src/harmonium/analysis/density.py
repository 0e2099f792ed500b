"""Neighbourhood density: do tokens of true triplets gather with true ones, and those of false ones not?

For each labelled triplet, and each side of it, how many of the nearest triplets that differ in that side's entity are
facts, by composed vector and by token. The paper's claim is that the change, token - composed, is positive for true
triplets and negative for false ones. Both sides of a triplet, and all triplets of a relation, depend on each other,
so beside the paper's t test stand intervals that draw whole triplets or whole relations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.statistics import Mean, bootstrap, t_test
from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Slot, Triples
from harmonium.model import GradientGraph

PIECE = {"cpu": 1 << 22, "cuda": 1 << 27}  # numbers of composed vectors held at once


@dataclass(frozen=True)
class Change:
    """What becomes of the number of true neighbours, over the queries of one label."""

    queries: int
    composed: float  # mean number of facts among the nearest by composed vector
    token: float  # by token
    change: Mean
    share: float  # mean change as a share of the neighbours there were
    by_side: dict[str, float]  # mean change
    by_triplet: tuple[float, float]  # 95 % intervals of the change, drawing whole triplets
    by_relation: tuple[float, float]  # and whole relations


@dataclass(frozen=True)
class Density:
    """The changes for true and for false triplets, and how they were counted."""

    graph: str
    count: int  # nearest neighbours looked at
    typed: bool
    positives: Change
    negatives: Change

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"candidates": "typed-all" if self.typed else "full"}


def measure_density(
    model: GradientGraph,
    graph: Graph,
    triples: Triples,
    labels: Tensor,
    count: int = 5,
    typed: bool = True,
    watch: Callable[[int], None] | None = None,
) -> Density:
    """The change in density for triples with labels (n,) bool; `typed` keeps to entities seen in that slot."""
    if labels.all() or not labels.any():
        kind = "true" if labels.any() else "false"
        raise HarmoniumError(f"all {len(labels):,} labelled triples are {kind}; density compares both")
    sides = {slot: true_neighbours(model, graph, triples, slot, count, typed, watch) for slot in (Slot.HEAD, Slot.TAIL)}
    found = torch.stack(list(sides.values()))  # (2 sides, n, 3: composed, token, neighbours)
    return Density(
        graph.name, count, typed, *(_change(found[:, mask], triples.relation[mask]) for mask in (labels, ~labels))
    )


def _change(found: Tensor, relation: Tensor) -> Change:
    """The statistics of counts (2 sides, n, 3)."""
    composed, token, neighbours = found.double().unbind(-1)  # (2, n)
    change = token - composed
    triplet = torch.arange(len(relation))
    return Change(
        change.numel(),
        composed.mean().item(),
        token.mean().item(),
        t_test(change.flatten()),
        (change / neighbours.clamp(min=1)).mean().item(),
        dict(zip(("head", "tail"), change.mean(1).tolist(), strict=True)),
        bootstrap(change.flatten(), triplet.repeat(2)),
        bootstrap(change.flatten(), relation.repeat(2)),
    )


@torch.no_grad()
def true_neighbours(
    model: GradientGraph,
    graph: Graph,
    triples: Triples,
    slot: Slot,
    count: int = 5,
    typed: bool = True,
    watch: Callable[[int], None] | None = None,
) -> Tensor:
    """(n, 3): the facts among the nearest by composed vector and by token when `slot` changes, and how many nearest.

    Queries of one relation share their candidates, so each piece of work is one product of (queries x candidates)
    composed differences with S.
    """
    stretch, device = model.harmony.token_map(), model.entity.device
    known, snapshot = graph.answers(slot).to(device), model.snapshot()
    fillers = graph.fillers(slot)
    found = torch.zeros(len(triples), 3, dtype=torch.int64)
    for rows in by_relation(triples):
        others = fillers.lookup(triples.relation[rows[:1]])[1] if typed else torch.arange(graph.n_entities)
        if not len(others):
            continue
        others = others.to(device)
        size = max(1, PIECE.get(device.type, 1 << 24) // (len(others) * len(stretch)))
        for some in rows.split(size):
            queries = triples[some].to(device)
            slot_map = snapshot.slot_map(slot, queries).beside_candidates()
            here = snapshot.entities[queries[slot]][:, None]  # (q, 1, entity_dim)
            shift = slot_map.apply(snapshot.entities[others]) - slot_map.apply(here)  # (q, n, dim)
            itself = others == queries[slot][:, None]  # (q, n)
            there = (~itself).sum(1).clamp(max=count)  # (q,)
            for column, vectors in enumerate((shift, shift @ stretch)):
                distance = torch.linalg.vector_norm(vectors, dim=-1).masked_fill_(itself, torch.inf)
                nearest = distance.topk(min(count, len(others)), largest=False)  # (q, k)
                columns = {s: queries[s][:, None].expand_as(nearest.indices).flatten() for s in Slot}
                columns[slot] = others[nearest.indices].flatten()
                true = known.contain(Triples(*columns.values())).view_as(nearest.indices)
                found[some, column] = (true & nearest.values.isfinite()).sum(1).cpu()
            found[some, 2] = there.cpu()
            if watch:
                watch(len(some))
    return found


def by_relation(triples: Triples) -> Iterator[Tensor]:
    """The rows of each relation that occurs."""
    order = triples.relation.argsort(stable=True)
    yield from order.split(triples.relation[order].unique_consecutive(return_counts=True)[1].tolist())
