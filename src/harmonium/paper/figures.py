"""The paper's figures: change of rank by harmony gain, and the path of the network to a token."""

from __future__ import annotations

from pathlib import Path

import torch

from harmonium.analysis.figures import OTHER, SELF, TEXT, TRUE, legend, new_figure, save
from harmonium.paper.dynamics import Dynamics
from harmonium.paper.gain import Gain


def gain_figure(gain: Gain, path: Path, bins: int = 10) -> Path:
    """The mean change of reciprocal rank over the quantiles of harmony gain, for each kind of candidates."""
    figure = new_figure(5 * len(gain.changes), 4.9)
    panels = figure.subplots(1, len(gain.changes), squeeze=False)[0]
    for axes, (name, change) in zip(panels, gain.changes.items(), strict=True):
        changed = change.raw != 0
        everything = torch.ones_like(changed)
        for label, mask, colour in (("all queries", everything, TEXT), ("those whose rank changed", changed, TRUE)):
            gains, changes = gain.gain[mask], change.reciprocal[mask]
            parts = [part for part in gains.argsort().tensor_split(bins) if len(part)]
            middle = [gains[part].median().item() for part in parts]
            mean = [changes[part].mean().item() for part in parts]
            error = [2 * changes[part].std(correction=0).item() / len(part) ** 0.5 for part in parts]
            axes.errorbar(middle, mean, error, fmt="o-", ms=4, lw=1, color=colour, label=f"{label} ({len(gains):,})")
        axes.axhline(0, color=OTHER, lw=1, zorder=0)
        rho = change.correlations(gain.gain)
        labels = zip(("rank", "1/rank", "changed"), rho.values(), strict=True)
        correlations = ", ".join(f"{label} {correlation.rho:+.3f}" for label, correlation in labels)
        axes.set_title(f"{name} candidates\nSpearman: {correlations}", fontsize=10)
        axes.set(xlabel="harmony gain of the true triple", ylabel="mean change of reciprocal rank")
        legend(axes)
    figure.suptitle(f"Does gaining harmony gain rank? {gain.graph} {gain.protocol.split}")
    return save(figure, path)


def dynamics_figure(dynamics: Dynamics, path: Path) -> Path:
    """Harmony and distance to the token by step, and the path of h among samples of p(h|x)."""
    figure = new_figure(11, 4.6)
    rise, plane = figure.subplots(1, 2)
    rise.plot(dynamics.harmony.tolist(), color=TRUE)
    rise.axhline(dynamics.optimum, color=TRUE, lw=1, ls=":")
    rise.set_xlabel("step")
    rise.set_ylabel("harmony (dotted: the closed form)", color=TRUE)
    distance = rise.twinx()
    distance.semilogy(dynamics.distance.clamp(min=1e-300).tolist(), color=SELF)
    distance.set_ylabel("distance to the closed form", color=SELF)
    samples = (dynamics.samples - dynamics.token) @ dynamics.plane
    steps = (dynamics.hidden - dynamics.token) @ dynamics.plane
    plane.scatter(*samples.T.tolist(), s=8, color=OTHER, linewidths=0, label=f"{len(samples)} samples of p(h|x)")
    plane.plot(*steps.T.tolist(), "o-", ms=3, color=TRUE, label="the path of h")
    for name, x in (("composed x", steps[0, 0].item()), ("token", 0)):
        plane.scatter([x], [0], s=50, color=SELF, zorder=3)
        plane.annotate(name, (x, 0), (5, 6), textcoords="offset points", color=SELF, weight="bold")
    plane.set(xlabel="from x to the token", ylabel="the widest direction across it")
    legend(plane)
    figure.suptitle(", ".join(dynamics.triple), parse_math=False)
    return save(figure, path)
