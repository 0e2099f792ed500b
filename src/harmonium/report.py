"""Figures: what people would rather look at than read."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.dynamics import Dynamics
from harmonium.analysis.gain import Gain
from harmonium.analysis.neighbours import Guise
from harmonium.classification import Classification
from harmonium.graph import Graph, Slot, Triples
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph

TRUE, OTHER, SELF, TEXT = "#1b7f5c", "#b9c0c8", "#d1495b", "#555555"


def new_figure(width: float, height: float) -> Any:
    """A figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@torch.no_grad()
def guises_figure(
    model: GradientGraph,
    graph: Graph,
    triples: Sequence[Triples],
    path: Path,
    slot: Slot = Slot.HEAD,
    count: int = 5,
    typed: bool = True,
) -> Path:
    """One entity in several facts, or several in one: composed vectors above, tokens below, true fillers coloured."""
    figure = new_figure(4.2 * len(triples), 8.6 if isinstance(model.form, Harmony) else 4.6)
    spaces = (
        {"composed": None, "token": model.form.token_map()} if isinstance(model.form, Harmony) else {"composed": None}
    )
    axes = figure.subplots(len(spaces), len(triples), squeeze=False)
    for column, triple in enumerate(triples):
        guise = Guise(model, graph, triple, slot, typed)
        for row, (kind, spread) in enumerate(spaces.items()):
            _map(axes[row, column], guise, guise.composed if spread is None else guise.composed @ spread, count)
            axes[row, column].set_ylabel(f"nearest by {kind} vector" if column == 0 else "")
        axes[0, column].set_title("\n".join(textwrap.wrap(", ".join(guise.title), 52)), fontsize=10)
    names = list(dict.fromkeys(graph.entities.name(int(triple[slot])) for triple in triples))
    legend = f"green triplets are true facts; the {count} nearest are numbered (rank as an answer)"
    figure.suptitle("\n".join(textwrap.wrap(f"The guises of {', '.join(names)}: {legend}", 40 * len(triples) + 10)))
    figure.savefig(path, dpi=110)
    return path


def _map(axes: Any, guise: Guise, vectors: Tensor, count: int) -> None:
    """A 2-D map by principal axes, centred on the entity, its nearest numbered and named with their ranks."""
    here, truth, names = guise.here, guise.truth, guise.graph.entities
    shift = vectors - vectors[here]
    plane = shift @ torch.pca_lowrank(vectors.double(), q=min(2, *vectors.shape), niter=8)[2].to(vectors.dtype)
    plane = torch.nn.functional.pad(plane, (0, 2 - plane.shape[1]))
    near = shift.norm(dim=-1).topk(min(count + 1, len(here)), largest=False).indices
    near = near[~here[near]][:count]
    for mask, colour, size in ((~truth & ~here, OTHER, 14), (truth & ~here, TRUE, 26), (here, SELF, 60)):
        axes.scatter(*plane[mask].T.tolist(), s=size, color=colour, linewidths=0, zorder=2)
    offset = {"textcoords": "offset points", "fontsize": 9, "weight": "bold"}
    axes.annotate(names.name(int(guise.triple[guise.slot])), (0, 0), (5, 3), color=SELF, **offset)
    ranks = guise.ranks(guise.others[near]) if len(near) else []
    for place, (index, rank) in enumerate(zip(near.tolist(), ranks, strict=True)):
        colour = TRUE if truth[index] else TEXT
        axes.annotate(str(place + 1), plane[index].tolist(), (5, 3), color=colour, **offset)
        at, name = (0.5 * (place % 2), -0.05 - 0.055 * (place // 2)), names.name(int(guise.others[index]))
        line = f"{place + 1}  {textwrap.shorten(name, 24, placeholder='…')} ({rank:,g})"
        axes.text(*at, line, transform=axes.transAxes, fontsize=9, color=colour)
    axes.margins(x=0.2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)


def gain_figure(found: Gain, path: Path, bins: int = 10) -> Path:
    """The mean change of reciprocal rank over the quantiles of harmony gain, for each kind of candidates."""
    figure = new_figure(5 * len(found.changes), 4.4)
    for axes, (name, change) in zip(
        figure.subplots(1, len(found.changes), squeeze=False)[0], found.changes.items(), strict=True
    ):
        moved = change.raw != 0
        for label, mask, colour in (("all queries", moved | ~moved, TEXT), ("those whose rank changed", moved, TRUE)):
            order = found.gain[mask].argsort()
            parts = [part for part in order.tensor_split(bins) if len(part)]
            middle = [found.gain[mask][part].median().item() for part in parts]
            mean = [change.reciprocal[mask][part].mean().item() for part in parts]
            error = [2 * change.reciprocal[mask][part].std(correction=0).item() / len(part) ** 0.5 for part in parts]
            axes.errorbar(middle, mean, error, fmt="o-", ms=4, lw=1, color=colour, label=f"{label} ({len(order):,})")
        axes.axhline(0, color=OTHER, lw=1, zorder=0)
        rho = change.correlations(found.gain)
        axes.set_title(
            f"{name} candidates\nSpearman: rank {rho['rank'].rho:+.3f}, 1/rank {rho['reciprocal_rank'].rho:+.3f}, "
            f"changed {rho['reciprocal_rank_changed'].rho:+.3f}",
            fontsize=10,
        )
        axes.set_xlabel("harmony gain of the true triplet")
        axes.set_ylabel("mean change of reciprocal rank")
        axes.legend(frameon=False, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Does gaining harmony gain rank? {found.graph} {found.protocol.split}")
    figure.savefig(path, dpi=110)
    return path


def dynamics_figure(found: Dynamics, path: Path) -> Path:
    """Harmony rising along the way to the token, the distance left, and the way among samples of p(h|x)."""
    figure = new_figure(11, 4.6)
    rise, around = figure.subplots(1, 2)
    rise.plot(found.harmony.tolist(), color=TRUE)
    rise.axhline(found.optimum, color=TRUE, lw=1, ls=":")
    rise.set_xlabel("step")
    rise.set_ylabel("harmony (dotted: the closed form)", color=TRUE)
    left = rise.twinx()
    left.semilogy(found.distance.clamp(min=1e-300).tolist(), color=SELF)
    left.set_ylabel("distance to the closed form", color=SELF)
    spots, way = (((states - found.token) @ found.plane).T.tolist() for states in (found.samples, found.hidden))
    around.scatter(*spots, s=8, color=OTHER, linewidths=0, label=f"{len(found.samples)} samples of p(h|x)")
    around.plot(*way, "o-", ms=3, color=TRUE, label="the way of h")
    for name, x in (("composed x", way[0][0]), ("token", 0)):
        around.scatter([x], [0], s=50, color=SELF, zorder=3)
        around.annotate(name, (x, 0), (5, 6), textcoords="offset points", color=SELF, weight="bold")
    around.set_xlabel("along the way")
    around.set_ylabel("the widest direction across it")
    around.legend(frameon=False, fontsize=9)
    around.spines[["top", "right"]].set_visible(False)
    figure.suptitle(", ".join(found.triple))
    figure.savefig(path, dpi=110)
    return path


def classification_figure(found: Classification, path: Path) -> Path:
    """Whether facts are true as often as their probability says, and the margins of true and of false facts."""
    figure = new_figure(11, 4.6)
    curve, spread = figure.subplots(1, 2)
    parts = [part for part in found.reliability() if part["facts"]]
    said, true, facts = ([part[key] for part in parts] for key in ("probability", "true", "facts"))
    curve.plot([0, 1], [0, 1], color=OTHER, lw=1, zorder=0)
    curve.plot(said, true, "o-", color=TRUE)
    for x, y, count in zip(said, true, facts, strict=True):
        curve.annotate(f"{count:,}", (x, y), (6, -10), textcoords="offset points", fontsize=8, color=TEXT)
    curve.set_xlabel("probability given")
    curve.set_ylabel("share of true facts (count of facts at each point)")
    margins = found.margins(found.scores, found.relation)
    low, high = margins.quantile(torch.tensor([0.005, 0.995], dtype=torch.float64)).tolist()
    for name, mask, colour in (("true", found.labels, TRUE), ("false", ~found.labels, SELF)):
        shown, label = margins[mask].clamp(low, high).tolist(), f"{int(mask.sum()):,} {name} facts"
        spread.hist(shown, 50, range=(low, high), color=colour, alpha=0.55, label=label)
    spread.axvline(0, color=TEXT, lw=1)
    spread.set_xlabel("score above the threshold of its relation")
    spread.set_ylabel("facts")
    spread.legend(frameon=False)
    for axes in (curve, spread):
        axes.spines[["top", "right"]].set_visible(False)
    metrics = found.metrics
    numbers = f"accuracy {metrics['accuracy']:.3f}, calibration error {metrics['calibration_error']:.3f}"
    figure.suptitle(f"True or false? {found.graph}: {numbers}")
    figure.savefig(path, dpi=110)
    return path
