"""Neighbourhood density: do tokens of true facts lie among true ones, and tokens of false ones not?

For each labelled fact and each of its two sides, count the facts among the nearest triples that differ in that side's
entity, by composed vector and by token. The paper claims that the change, token - composed, is positive for true facts
and negative for false ones. Both sides of a fact, and all facts of a relation, depend on each other, so the paper's
t test comes with bootstrap intervals over whole facts and over whole relations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.statistics import Mean, bootstrap, t_test
from harmonium.answers.classify import labelled_split
from harmonium.data.graph import Graph
from harmonium.data.tables.fact_file import read_labelled
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed, Part, Table

NUMBERS_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 27}  # of composed vectors held at once


def density(
    run: Run | str | Path,
    labelled: str | Path | None = None,
    top: int = 5,
    typed: bool = True,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int], None] | None = None,
    on_bad: OnBad | SkippedRows = "error",
    **options: Any,
) -> Density:
    """Facts among the nearest triples, by composed vector and by token, for true and for false facts.

    `labelled` is a file of head, relation, tail and label 1 or -1, read as `harmonium.score` reads facts. Default: the
    test split, and as many false facts made from it.

    >>> density("runs/demo").positives.change
    """
    run = Run.of(run)
    if labelled is not None:
        triples, labels = read_labelled(labelled, run.graph, on_bad, **options)
    else:
        triples, labels = labelled_split(run.graph, "test", torch.Generator().manual_seed(seed))
    return measure_density(run.model_on(device), run.graph, triples, labels, top, typed, progress)


@dataclass(frozen=True)
class Change:
    """The change of the number of true neighbours, over the queries of one label."""

    queries: int
    composed: float  # mean number of facts among the nearest by composed vector
    token: float  # by token
    change: Mean
    share: float  # mean change as a share of the number of neighbours
    by_side: dict[str, float]  # mean change
    by_fact: tuple[float, float]  # 95 % interval of the change, bootstrap over facts
    by_relation: tuple[float, float]  # over relations


@dataclass(frozen=True)
class Density(Displayed):
    """The changes for true and for false facts, and how they were counted."""

    graph: str
    count: int  # nearest neighbours examined
    typed: bool
    positives: Change
    negatives: Change

    def display(self) -> Iterator[Part]:
        parts = self.positives, self.negatives
        rows = [
            ["queries", *(f"{part.queries:,}" for part in parts)],
            ["by composed vector", *(f"{part.composed:.3f}" for part in parts)],
            ["by token", *(f"{part.token:.3f}" for part in parts)],
            ["change", *(f"{part.change.mean:+.3f} ± {part.change.standard_error:.3f}" for part in parts)],
            ["t, independent queries", *(f"{part.change.t:+.1f}" for part in parts)],
            ["95 % by fact", *("{:+.3f} to {:+.3f}".format(*part.by_fact) for part in parts)],
            ["95 % by relation", *("{:+.3f} to {:+.3f}".format(*part.by_relation) for part in parts)],
        ]
        candidates = "entities seen in that slot of the relation in any split" if self.typed else "all entities"
        caption = f"heads and tails; candidates: {candidates}; ± standard error;\n"
        caption += "  bootstrap intervals of the change, resampling facts or relations"
        title = f"Facts among the {self.count} nearest on {self.graph}"
        yield Table(title, ["", "true facts", "false facts"], rows, caption)

    def records(self) -> list[dict[str, Any]]:
        """One row for true and one for false facts."""
        rows = []
        for name, part in (("true", self.positives), ("false", self.negatives)):
            counts = {"facts": name, "queries": part.queries, "composed": part.composed, "token": part.token}
            change = {"change": part.change.mean, "standard_error": part.change.standard_error, "t": part.change.t}
            rows.append(counts | change | {"by_fact": part.by_fact, "by_relation": part.by_relation})
        return rows

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"candidates": "typed-all" if self.typed else "full"}


def measure_density(
    model: GradientGraph,
    graph: Graph,
    triples: Triples,
    labels: Tensor,
    count: int = 5,
    typed: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Density:
    """The density of triples with labels (n,) bool; `typed`: neighbours are entities seen in that slot."""
    if labels.all() or not labels.any():
        kind = "true" if labels.any() else "false"
        raise HarmoniumError(f"all {len(labels):,} labelled triples are {kind}; density compares both kinds")
    sides = [true_neighbours(model, graph, triples, slot, count, typed, progress) for slot in (Slot.HEAD, Slot.TAIL)]
    counts = torch.stack(sides)  # (2 sides, n, 3: composed, token, neighbours)
    positives, negatives = (_change(counts[:, mask], triples.relation[mask]) for mask in (labels, ~labels))
    return Density(graph.name, count, typed, positives, negatives)


def _change(counts: Tensor, relation: Tensor) -> Change:
    """The statistics of counts (2 sides, n, 3)."""
    composed, token, neighbours = counts.double().unbind(-1)  # (2, n)
    change = token - composed
    share, head_and_tail = (change / neighbours.clamp(min=1)).mean().item(), change.mean(1).tolist()
    return Change(
        change.numel(),
        composed.mean().item(),
        token.mean().item(),
        t_test(change.flatten()),
        share,
        dict(zip(("head", "tail"), head_and_tail, strict=True)),
        bootstrap(change.flatten(), torch.arange(len(relation)).repeat(2)),
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
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """(n, 3): facts among the nearest by composed vector and by token when `slot` changes, and the number of nearest.

    Queries of one relation share their candidates: each piece of work is one product of (queries x candidates) differences
    of composed vectors with S.
    """
    token_map, device = model.harmony.token_map(), model.entity.device
    known, scorer = graph.known_answers(slot).to(device), model.scorer()
    seen = graph.slot_candidates(slot)
    counts = torch.zeros(len(triples), 3, dtype=torch.int64)
    order = triples.relation.argsort(stable=True)
    n_of_relation = triples.relation[order].unique_consecutive(return_counts=True)[1].tolist()
    for rows in torch.split(order, n_of_relation):
        candidates = seen.lookup(triples.relation[rows[:1]])[1] if typed else torch.arange(graph.n_entities)
        if not len(candidates):
            continue
        candidates = candidates.to(device)
        size = max(1, NUMBERS_AT_ONCE.get(device.type, 1 << 24) // (len(candidates) * len(token_map)))
        for chunk in torch.split(rows, size):
            queries = triples[chunk].to(device)
            entity = queries[slot][:, None]  # (q, 1)
            slot_map = scorer.slot_map(slot, queries).beside_candidates()
            shift = slot_map.apply(scorer.entities[candidates]) - slot_map.apply(scorer.entities[entity])  # (q, n, dim)
            is_entity = candidates == entity  # (q, n)
            for column, vectors in enumerate((shift, shift @ token_map)):
                distance = torch.linalg.vector_norm(vectors, dim=-1).masked_fill_(is_entity, torch.inf)
                nearest = distance.topk(min(count, len(candidates)), largest=False)  # (q, k)
                columns = {s: queries[s][:, None].expand_as(nearest.indices).flatten() for s in Slot}
                columns[slot] = candidates[nearest.indices].flatten()
                is_fact = known.contain(Triples(*columns.values())).view_as(nearest.indices)
                counts[chunk, column] = (is_fact & nearest.values.isfinite()).sum(1).cpu()
            counts[chunk, 2] = (~is_entity).sum(1).clamp(max=count).cpu()
            if progress:
                progress(len(chunk))
    return counts
