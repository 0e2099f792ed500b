"""Figures: what people would rather look at than read."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.dynamics import Dynamics
from harmonium.analysis.explain import Explanation
from harmonium.analysis.gain import Gain
from harmonium.analysis.neighbours import Guise
from harmonium.calibration import Calibration
from harmonium.classification import Classification
from harmonium.evaluation import Ranks
from harmonium.graph import Graph, Slot, Triples
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph
from harmonium.training import History

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
        axes[0, column].set_title("\n".join(textwrap.wrap(", ".join(guise.title), 52)), fontsize=10, parse_math=False)
    names = list(dict.fromkeys(graph.entities.name(int(triple[slot])) for triple in triples))
    legend = f"green triplets are true facts; the {count} nearest are numbered (rank as an answer)"
    title = "\n".join(textwrap.wrap(f"The guises of {', '.join(names)}: {legend}", 40 * len(triples) + 10))
    figure.suptitle(title, parse_math=False)
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
        many = int(mask.sum()) > 500  # drawn as one image inside an .svg or .pdf
        axes.scatter(*plane[mask].T.tolist(), s=size, color=colour, linewidths=0, zorder=2, rasterized=many)
    offset = {"textcoords": "offset points", "fontsize": 9, "weight": "bold", "parse_math": False}
    axes.annotate(names.name(int(guise.triple[guise.slot])), (0, 0), (5, 3), color=SELF, **offset)
    ranks = guise.ranks(guise.others[near]) if len(near) else []
    for place, (index, rank) in enumerate(zip(near.tolist(), ranks, strict=True)):
        colour = TRUE if truth[index] else TEXT
        axes.annotate(str(place + 1), plane[index].tolist(), (5, 3), color=colour, **offset)
        at, name = (0.5 * (place % 2), -0.05 - 0.055 * (place // 2)), names.name(int(guise.others[index]))
        line = f"{place + 1}  {textwrap.shorten(name, 24, placeholder='…')} ({rank:,g})"
        axes.text(*at, line, transform=axes.transAxes, fontsize=9, color=colour, parse_math=False)
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
        axes.legend(frameon=False, fontsize=9, loc="upper left")
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
    figure.suptitle(", ".join(found.triple), parse_math=False)
    figure.savefig(path, dpi=110)
    return path


def calibration_figure(found: Calibration, path: Path) -> Path:
    """Whether answers are true as often as their probability says, for each open slot."""
    figure = new_figure(6, 5.2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=OTHER, lw=1, zorder=0)
    for (slot, fit), colour in zip(found.fits.items(), (TRUE, SELF, TEXT), strict=False):
        parts = [part for part in fit.reliability if part["facts"] >= 10]
        said, true = ([part[key] for part in parts] for key in ("probability", "true"))
        error = [2 * (p * (1 - p) / part["facts"]) ** 0.5 for p, part in zip(true, parts, strict=True)]
        label = f"{slot}: {fit.true:,} true of {fit.answers:,}"
        axes.errorbar(said, true, error, fmt="o-", ms=4, lw=1, color=colour, label=label)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("probability given (tenths with ten answers and more)")
    axes.set_ylabel("share of true answers (± two standard errors)")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"Is it true as often as said? {found.graph}")
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


def training_figure(history: History, metric: str, path: Path) -> Path:
    """The loss of each epoch and, where there was a validation, its metric; the model that was kept is marked."""
    seen = [(row["epoch"], row["valid"][metric]) for row in history.rows if "valid" in row]
    curves = {"training loss": [(row["epoch"], row["loss"]) for row in history.rows]}
    curves |= {f"{metric} on validation": seen} if seen else {}
    figure = new_figure(11, 3.6)
    for axes, (name, points) in zip(figure.subplots(1, 2), curves.items(), strict=False):
        axes.plot(*zip(*points, strict=True), "o-", ms=4 if len(points) < 50 else 0, lw=1.5, color=TRUE)
        for x, y in points:
            if x == history.best_epoch:
                axes.plot(x, y, "o", ms=9, color=SELF)
                axes.annotate(f"kept: {y:.3f}", (x, y), (4, 10), textcoords="offset points", color=SELF, ha="right")
        axes.set_xlabel("epoch")
        axes.set_ylabel(name)
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in figure.axes[len(curves) :]:
        axes.remove()
    figure.savefig(path, dpi=110)
    return path


def ranks_figure(ranks: dict[str, Ranks], ties: str, path: Path) -> Path:
    """How often each rank occurs, in bins that double, and the share of answers at each rank or better; best first."""
    figure = new_figure(11, 4)
    spread, share = figure.subplots(1, 2)
    doublings = range(int(max(int(part.candidates.max()) for part in ranks.values())).bit_length())
    width = 0.8 / len(ranks)
    for place, ((name, part), colour) in enumerate(zip(ranks.items(), (TRUE, OTHER), strict=False)):
        values = part.values(ties).sort().values
        bins = values.log2().floor().long().bincount(minlength=len(doublings)) / len(values)
        spread.bar([x + (place + 0.5) * width - 0.4 for x in doublings], bins.tolist(), width, color=colour, label=name)
        rank, count = values.unique_consecutive(return_counts=True)
        share.step(
            rank.tolist(), (count.cumsum(0) / len(values)).tolist(), where="post", color=colour, label=name, lw=2
        )
    labels = ["1" if x == 0 else f"{2**x:,}–{2 ** (x + 1) - 1:,}" for x in doublings]
    spread.set_xticks(doublings, labels, rotation=40, ha="right", fontsize=8)
    spread.set_xlabel("rank of the true answer")
    spread.set_ylabel("share of queries")
    share.set_xscale("log")
    share.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    share.set_ylim(0, 1.02)
    share.set_xlabel("rank")
    share.set_ylabel("share of queries at this rank or better")
    share.grid(color=OTHER, alpha=0.4, lw=0.5)
    share.legend(frameon=False, loc="lower right")
    for axes in (spread, share):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return path


@torch.no_grad()
def spectrum_figure(harmony: Harmony, path: Path) -> Path:
    """The eigenvalues of W against its cap and lambda, and of the folded A, which scores."""
    figure = new_figure(11, 3.8)
    forms = {"W": (harmony.still(), 2), "A = WS/2, which scores": (harmony.fold(), 1)}
    for axes, (name, (form, factor)) in zip(figure.subplots(1, 2), forms.items(), strict=True):
        values = factor * form.double().spectrum()
        few = len(values) <= 64
        axes.plot(range(1, len(values) + 1), values.tolist(), "o" if few else "-", ms=4, lw=1.5, color=TRUE)
        axes.axhline(0, color=OTHER, lw=1, zorder=0)
        if name == "W":
            for word, height in (("cap", harmony.cap), ("lambda", harmony.faithfulness)):
                if height < float("inf"):
                    axes.axhline(height, color=SELF, lw=1, ls="--" if word == "cap" else ":")
                    under = word == "cap"
                    place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "ha": "right"}
                    place |= {"va": "top" if under else "bottom", "color": SELF}
                    axes.annotate(f"{word} = {height:g}", (1, height), (-4, -4 if under else 3), **place)
        largest = values.abs().max().item() or 1.0
        axes.set_yscale("symlog", linthresh=10 ** math.ceil(math.log10(largest / 1000)))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes.set_ylim(top=3 * max(largest, values.max().item()))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("eigenvalue, largest first")
        axes.set_ylabel(f"of {name}")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return path


def explain_figure(found: Explanation, path: Path) -> Path:
    """What pushed the score: the directions of W, each with the fact that reaches furthest, and facts by their removal."""
    pushes = [(d.push, " · ".join(d.facts[0].name) if d.facts else "") for d in found.directions]
    pushes += [(found.rest, "all the rest")] if pushes else []
    effects = {" · ".join(reason.fact): reason.effect for reason in (*found.reasons, *found.nearest)}
    facts = sorted(((effect, fact) for fact, effect in effects.items()), key=lambda bar: -abs(bar[0]))
    named = "what directions of W add to the score, each named by the training fact furthest along it"
    panels = {named: pushes, "change of the score if a training fact is removed (an estimate)": facts}
    panels = {title: bars for title, bars in panels.items() if bars}
    figure = new_figure(9, 1.2 + sum(0.6 + 0.34 * len(bars) for bars in panels.values()))
    heights = [len(bars) + 1 for bars in panels.values()]
    for axes, (title, bars) in zip(
        figure.subplots(max(len(panels), 1), 1, squeeze=False, height_ratios=heights or None)[:, 0],
        panels.items(),
        strict=False,
    ):
        values = [value for value, _ in bars]
        axes.barh(range(len(bars)), values, color=[TRUE if value >= 0 else SELF for value in values])
        for y, value in enumerate(values):
            side = {"ha": "left" if value >= 0 else "right", "va": "center"}
            axes.annotate(f"{value:+.2g}", (value, y), (3 if value >= 0 else -3, 0), textcoords="offset points", **side)
        labels = [textwrap.shorten(text, 60, placeholder="…") for _, text in bars]
        axes.set_yticks(range(len(bars)), labels, fontsize=9)
        axes.invert_yaxis()
        axes.axvline(0, color=OTHER, lw=1)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.2)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right", "left"]].set_visible(False)
    ranks = ", ".join(f"#{place:,g} as {side}" for side, place in found.rank.items())
    figure.suptitle(f"{', '.join(found.triple)}\nscore {found.score:.3f}, {ranks}", fontsize=11)
    figure.savefig(path, dpi=110)
    return path
