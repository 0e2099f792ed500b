"""Figures: what people would rather look at than read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.neighbours import candidates, with_others
from harmonium.graph import Graph, Slot, Triples
from harmonium.model import GradientGraph

TRUE, OTHER, SELF = "#1b7f5c", "#b9c0c8", "#d1495b"


@torch.no_grad()
def guises_figure(
    model: GradientGraph, graph: Graph, triples: Sequence[Triples], path: Path, slot: Slot = Slot.HEAD, count: int = 5
) -> Path:
    """One entity in several facts: a map of composed vectors above, of tokens below, true fillers coloured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(triples), 8.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(triples), squeeze=False)
    spread = model.harmony.token_map()
    for column, triple in enumerate(triples):
        others = candidates(graph, triple, slot)
        composed = model.compose(with_others(triple, slot, others))
        truth = graph.answers(slot).contain(with_others(triple, slot, others))
        rows = {"composed": composed, "token": composed @ spread}
        for row, (kind, vectors) in enumerate(rows.items()):
            _map(axes[row, column], vectors, others, truth, triple[slot], graph, count)
            axes[row, column].set_ylabel(f"nearest by {kind} vector" if column == 0 else "")
        axes[0, column].set_title(", ".join(graph.spell(triple)[0]), fontsize=10)
    figure.suptitle(
        f"The guises of {graph.entities.name(int(triples[0][slot]))}: "
        f"green triplets are true facts; the {count} nearest are numbered (principal axes)"
    )
    figure.savefig(path, dpi=110)
    return path


def _map(axes: Any, vectors: Tensor, others: Tensor, truth: Tensor, entity: Tensor, graph: Graph, count: int) -> None:
    """A 2-D map by principal axes, centred on the entity, its nearest named."""
    here = others == entity
    shift = vectors - vectors[here]
    plane = shift @ torch.pca_lowrank(vectors.double(), q=2, niter=8)[2].to(vectors.dtype)
    near = shift.norm(dim=-1).topk(min(count + 1, len(others)), largest=False).indices.tolist()
    for mask, colour, size in ((~truth & ~here, OTHER, 14), (truth & ~here, TRUE, 26), (here, SELF, 60)):
        axes.scatter(*plane[mask].T.tolist(), s=size, color=colour, linewidths=0, zorder=2)
    for place, index in enumerate(near):
        name, (x, y) = graph.entities.name(int(others[index])), plane[index].tolist()
        colour = SELF if here[index] else TRUE if truth[index] else "#555555"
        label = name if here[index] else str(place)
        axes.annotate(label, (x, y), (5, 3), textcoords="offset points", fontsize=9, color=colour, weight="bold")
        if not here[index]:
            at = (0.5 * ((place - 1) % 2), -0.05 - 0.055 * ((place - 1) // 2))
            axes.text(*at, f"{place}  {name}", transform=axes.transAxes, fontsize=9, color=colour)
    axes.margins(x=0.2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)
