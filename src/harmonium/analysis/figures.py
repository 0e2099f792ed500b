"""Figures of results: one function each, which draws into a .png, .pdf or .svg file and returns its path; inline SVG."""

from __future__ import annotations

import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from harmonium.analysis.neighbours import Guise, guise_of
from harmonium.data.compressed import create_file
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.harmony import Harmony

if TYPE_CHECKING:
    from harmonium.analysis.explain import Explanation
    from harmonium.answers.calibration.hidden_facts import HiddenFacts
    from harmonium.answers.classify import Classification
    from harmonium.answers.open_run import OpenRun
    from harmonium.evaluation.metrics import Ranks
    from harmonium.run.run import History

Target = Path | BytesIO  # where a figure is written
T = TypeVar("T", Path, BytesIO, Path | BytesIO)
TRUE, OTHER, SELF, TEXT = "#1b7f5c", "#b9c0c8", "#d1495b", "#555555"


def figure_path(path: str | Path) -> Path:
    """A path that a figure can be written to; its folder is made."""
    path = Path(path)
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise HarmoniumError(f"--plot {path}: a figure ends in .png, .pdf or .svg")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarmoniumError(f"--plot {path}: its folder cannot be made ({error.strerror})") from error
    return path


def new_figure(width: float, height: float) -> Any:
    """A figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: T) -> T:
    """Write a figure to a file, in the format of its suffix, or into memory as SVG."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    if isinstance(path, BytesIO):
        figure.savefig(path, format="svg")
        return path
    with create_file(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=110)
    return path


def legend(axes: Any) -> None:
    """The legend of a panel below its axes, where it hides nothing; none without labels."""
    from matplotlib.transforms import offset_copy

    below = offset_copy(
        axes.transAxes, axes.figure, y=-40, units="points"
    )  # numbers and label of the axis are above it
    if axes.get_legend_handles_labels()[0]:
        anchor = {"bbox_to_anchor": (0.5, 0), "bbox_transform": below, "borderaxespad": 0}
        axes.legend(frameon=False, fontsize=9, loc="upper center", **anchor)


@torch.no_grad()
def guises_figure(
    opened: OpenRun,
    triples: Sequence[Triples],
    path: Target,
    slot: Slot = Slot.HEAD,
    count: int = 5,
    typed: bool = True,
) -> Target:
    """One entity in several facts, or several in one: composed vectors above, tokens below, known facts in green."""
    figure = new_figure(4.2 * len(triples), 8.6)
    axes = figure.subplots(2, len(triples), squeeze=False)
    for column, triple in enumerate(triples):
        guise = guise_of(opened, triple, slot, typed)
        for row, (space, vectors) in enumerate(guise.spaces.items()):
            _draw_map(axes[row, column], guise, vectors, count)
            axes[row, column].set_ylabel(f"nearest by {space} vector" if column == 0 else "")
        axes[0, column].set_title("\n".join(textwrap.wrap(", ".join(guise.title), 52)), fontsize=10, parse_math=False)
    names = ", ".join(dict.fromkeys(opened.graph.entities.name(int(triple[slot])) for triple in triples))
    title = f"The guises of {names}: green triplets are known facts; the {count} nearest are numbered (rank as answer)"
    figure.suptitle("\n".join(textwrap.wrap(title, 40 * len(triples) + 10)), parse_math=False)
    return save(figure, path)


def _draw_map(axes: Any, guise: Guise, vectors: Tensor, count: int) -> None:
    """A map by principal axes, centred on the entity; its nearest candidates are numbered, and named with their ranks."""
    is_entity, is_fact, names = guise.is_entity, guise.is_fact, guise.graph.entities
    shift = vectors - vectors[is_entity]
    plane = shift @ torch.pca_lowrank(vectors.double(), q=min(2, *vectors.shape), niter=8)[2].to(vectors.dtype)
    plane = torch.nn.functional.pad(plane, (0, 2 - plane.shape[1]))
    nearest = torch.linalg.vector_norm(shift, dim=-1).topk(min(count + 1, len(is_entity)), largest=False).indices
    nearest = nearest[~is_entity[nearest]][:count]
    groups = ((~is_fact & ~is_entity, OTHER, 14), (is_fact & ~is_entity, TRUE, 26), (is_entity, SELF, 60))
    for mask, colour, size in groups:
        as_image = int(mask.sum()) > 500  # inside an .svg or .pdf
        axes.scatter(*plane[mask].T.tolist(), s=size, color=colour, linewidths=0, zorder=2, rasterized=as_image)
    style = {"textcoords": "offset points", "fontsize": 9, "weight": "bold", "parse_math": False}
    axes.annotate(names.name(int(guise.triple[guise.slot])), (0, 0), (5, 3), color=SELF, **style)
    ranks = guise.ranks(guise.candidates[nearest]) if len(nearest) else []
    for number, (index, rank) in enumerate(zip(nearest.tolist(), ranks, strict=True)):
        colour = TRUE if is_fact[index] else TEXT
        axes.annotate(str(number + 1), plane[index].tolist(), (5, 3), color=colour, **style)
        name = textwrap.shorten(names.name(int(guise.candidates[index])), 22, placeholder="…")
        x, y = 0.5 * (number % 2), -0.05 - 0.055 * (number // 2)
        line = f"{number + 1}  {name} ({rank:,g})"
        axes.text(x, y, line, transform=axes.transAxes, fontsize=9, color=colour, parse_math=False)
    axes.margins(x=0.2)
    axes.set(xticks=[], yticks=[])


def calibration_figure(hidden: HiddenFacts, path: Target) -> Target:
    """For each band of probability of missing facts: the share expected to be true, and that of hidden test facts."""
    figure = new_figure(8, 4)
    axes = figure.subplots()
    bands = [band for band in hidden.bands if band.facts]
    places = range(len(bands))
    for shift, values, colour, label in (
        (-0.2, [band.expected / band.facts for band in bands], SELF, "expected to be true"),
        (0.2, [band.in_test / band.facts for band in bands], TRUE, "hidden test facts"),
    ):
        axes.bar([place + shift for place in places], values, 0.38, color=colour, label=label)
    axes.set_xticks(list(places), [f"{band.low:.0%} or more\n{band.facts:,} facts" for band in bands])
    axes.set(ylim=(0, 1.03), ylabel="share of the listed facts")
    axes.set_title(f"Missing facts of {hidden.graph}, its test facts hidden")
    legend(axes)
    return save(figure, path)


def classification_figure(classification: Classification, path: Target) -> Target:
    """Histograms of the margins, score minus threshold, of true and of false facts."""
    figure = new_figure(10, 4)
    axes = figure.subplots()
    margins = classification.margins
    low, high = margins.quantile(torch.tensor([0.005, 0.995], dtype=torch.float64)).tolist()
    for name, mask, colour in (("true", classification.labels, TRUE), ("false", ~classification.labels, SELF)):
        values, label = margins[mask].clamp(low, high).tolist(), f"{int(mask.sum()):,} {name} facts"
        axes.hist(values, 50, range=(low, high), color=colour, alpha=0.55, label=label)
    axes.axvline(0, color=TEXT, lw=1)
    axes.set(xlabel="score minus the threshold of its relation", ylabel="facts")
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    axes.set_title(f"True or false? {classification.graph}: accuracy {classification.metrics['accuracy']:.3f}")
    return save(figure, path)


def training_figure(history: History, metric: str, path: Target) -> Target:
    """The loss of each epoch and, where there was a validation, its metric; the model that was kept is marked."""
    validated = [(row["epoch"], row["valid"][metric]) for row in history.rows if "valid" in row]
    curves = {"training loss": [(row["epoch"], row["loss"]) for row in history.rows]}
    curves |= {f"{metric} on validation": validated} if validated else {}
    figure = new_figure(11, 3.6)
    for number, (name, points) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(1, 2, number)
        axes.plot(*zip(*points, strict=True), "o-", ms=4 if len(points) < 50 else 0, lw=1.5, color=TRUE)
        for x, y in points:
            if x == history.best_epoch:
                axes.plot(x, y, "o", ms=9, color=SELF)
                axes.annotate(f"kept: {y:.3f}", (x, y), (4, 10), textcoords="offset points", color=SELF, ha="right")
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.set(xlabel="epoch", ylabel=name)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return save(figure, path)


def ranks_figure(ranks: dict[str, Ranks], ties: str, path: Target) -> Target:
    """The distribution of ranks, in bins that double, and the share of queries at each rank or better."""
    ranks = dict(list(ranks.items())[:2])  # the model and a baseline
    figure = new_figure(11, 4)
    histogram, cumulative = figure.subplots(1, 2)
    n_bins = max(int(part.candidates.max()) for part in ranks.values()).bit_length()
    width = 0.8 / len(ranks)
    for number, ((name, part), colour) in enumerate(zip(ranks.items(), (TRUE, OTHER), strict=False)):
        values = part.values(ties).sort().values
        shares = values.log2().floor().long().bincount(minlength=n_bins) / len(values)
        left = [x + (number + 0.5) * width - 0.4 for x in range(n_bins)]
        histogram.bar(left, shares.tolist(), width, color=colour, label=name)
        rank, count = values.unique_consecutive(return_counts=True)
        share = (count.cumsum(0) / len(values)).tolist()
        cumulative.step(rank.tolist(), share, where="post", color=colour, label=name, lw=2)
    labels = ["1", *(f"{2**x:,}–{2 ** (x + 1) - 1:,}" for x in range(1, n_bins))]
    histogram.set_xticks(range(n_bins), labels, rotation=40, ha="right", fontsize=8)
    histogram.set(xlabel="rank of the true answer", ylabel="share of queries")
    cumulative.set(xscale="log", ylim=(0, 1.02), xlabel="rank", ylabel="share of queries at this rank or better")
    cumulative.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    cumulative.grid(color=OTHER, alpha=0.4, lw=0.5)
    figure.legend(*cumulative.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=len(ranks))
    return save(figure, path)


@torch.no_grad()
def spectrum_figure(harmony: Harmony, path: Target) -> Target:
    """The eigenvalues of W with its cap and lambda, and of the folded A, which scores."""
    figure = new_figure(11, 3.8)
    spectra = {
        "W": 2 * harmony.fold_unoptimised().double().spectrum(),
        "A = WS/2, which scores": harmony.fold().double().spectrum(),
    }
    for axes, (name, values) in zip(figure.subplots(1, 2), spectra.items(), strict=True):
        style = "o" if len(values) <= 64 else "-"
        axes.plot(range(1, len(values) + 1), values.tolist(), style, ms=4, lw=1.5, color=TRUE)
        axes.axhline(0, color=OTHER, lw=1, zorder=0)
        limits = {"cap": (harmony.cap, "--", -4, "top"), "lambda": (harmony.faithfulness, ":", 3, "bottom")}
        for limit, (value, line, offset, align) in limits.items():
            if name == "W" and math.isfinite(value):
                axes.axhline(value, color=SELF, lw=1, ls=line)
                placement = {"textcoords": "offset points", "ha": "right", "va": align, "color": SELF}
                right_end = axes.get_yaxis_transform()
                axes.annotate(f"{limit} = {value:g}", (1, value), (-4, offset), xycoords=right_end, **placement)
        largest = values.abs().max().item() or 1.0
        axes.set_yscale("symlog", linthresh=10 ** math.ceil(math.log10(largest / 1000)))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes.set_ylim(top=3 * max(largest, values.max().item()))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="eigenvalue, largest first", ylabel=f"of {name}")
    return save(figure, path)


def explain_figure(explanation: Explanation, path: Target) -> Target:
    """The estimated effects of removing training facts and, with details, what directions of W contribute to the score."""
    removed = [(reason.effect, " · ".join(reason.fact)) for reason in explanation.reasons]
    contributions, details = [], explanation.details
    if details is not None and details.directions:
        contributions = [(d.contribution, " · ".join(d.facts[0].name) if d.facts else "") for d in details.directions]
        contributions.append((details.rest, "all the rest"))
    directions = "contribution of directions of W to the score, each named by the training fact furthest along it"
    panels = {"change of the score if a training fact is removed (an estimate)": removed, directions: contributions}
    panels = {title: bars for title, bars in panels.items() if bars}
    figure = new_figure(9, 1.2 + sum(0.6 + 0.34 * len(bars) for bars in panels.values()))
    heights = [len(bars) + 1 for bars in panels.values()]
    rows = figure.subplots(max(len(panels), 1), 1, squeeze=False, height_ratios=heights or None)[:, 0]
    for axes, (title, bars) in zip(rows, panels.items(), strict=False):
        values = [value for value, _ in bars]
        axes.barh(range(len(bars)), values, color=[TRUE if value >= 0 else SELF for value in values])
        for y, value in enumerate(values):
            offset, side = (3, "left") if value >= 0 else (-3, "right")
            axes.annotate(f"{value:+.2g}", (value, y), (offset, 0), textcoords="offset points", ha=side, va="center")
        labels = [textwrap.shorten(text, 60, placeholder="…") for _, text in bars]
        axes.set_yticks(range(len(bars)), labels, fontsize=9)
        axes.invert_yaxis()
        axes.axvline(0, color=OTHER, lw=1)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.2)
        axes.set_title(title, fontsize=10)
        axes.spines["left"].set_visible(False)
    ranks = ", ".join(f"#{rank:,g} as {side}" for side, rank in explanation.rank.items())
    figure.suptitle(f"{', '.join(explanation.triple)}\nscore {explanation.score:.3f}, {ranks}", fontsize=11)
    return save(figure, path)


# Inline SVG -----------------------------------------------------------------------------------------------------------

PAGE_COLOURS = {TRUE: "good", OTHER: "faint", SELF: "accent", TEXT: "muted"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may contain dollar signs
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(["axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], TEXT),
}


def inline_svg(key: str, draw: Callable[..., object], *arguments: Any) -> Any:
    """What `draw(*arguments, file)` draws, as markup in the colours of the page; all its ids start with the key."""
    import matplotlib
    from markupsafe import Markup

    def adapt_tag(tag: re.Match[str]) -> str:
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", tag[0])
        for colour, name in PAGE_COLOURS.items():
            text = text.replace(colour, f"var(--{name})")
        return text.replace("#000000", "currentColor")

    file = BytesIO()
    with warnings.catch_warnings(), torch.random.fork_rng([]):
        warnings.filterwarnings("ignore", "Glyph")  # the browser has the fonts that matplotlib lacks
        torch.manual_seed(0)  # for principal directions
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": key}):
            draw(*arguments, file)
    text = file.getvalue().decode()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return Markup(re.sub(r"<[^>]+>", adapt_tag, text))  # in its text < and > are escaped
