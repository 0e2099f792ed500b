"""How results of `harmonium paper` look in a terminal, and their rows for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harmonium.cli import console

if TYPE_CHECKING:
    from harmonium.paper.density import Density
    from harmonium.paper.dynamics import Dynamics
    from harmonium.paper.gain import Gain


def show_dynamics(dynamics: Dynamics) -> None:
    """At most eleven steps from the composed vector to the token, denser at the start."""
    last = len(dynamics.hidden) - 1
    steps = sorted({*(round(last * (tenth / 10) ** 2) for tenth in range(10)), last})
    harmony, coherence, distance = dynamics.harmony, dynamics.coherence, dynamics.distance
    rows = [[step, f"{harmony[step]:.4f}", f"{coherence[step]:.4f}", f"{distance[step]:.2e}"] for step in steps]
    samples = f"mean of {len(dynamics.samples)} samples of p(h|x): {dynamics.sample_harmony.mean():.4f}"
    caption = f"harmony of the closed form: {dynamics.optimum:.4f}; {samples}"
    columns = ["step", "harmony", "core harmony", "distance to the token"]
    console.table(", ".join(dynamics.triple), columns, rows, caption)


def show_density(density: Density) -> None:
    parts = density.positives, density.negatives
    rows = [
        ["queries", *(f"{part.queries:,}" for part in parts)],
        ["by composed vector", *(f"{part.composed:.3f}" for part in parts)],
        ["by token", *(f"{part.token:.3f}" for part in parts)],
        ["change", *(f"{part.change.mean:+.3f} ± {part.change.standard_error:.3f}" for part in parts)],
        ["t, independent queries", *(f"{part.change.t:+.1f}" for part in parts)],
        ["95 % by fact", *("{:+.3f} to {:+.3f}".format(*part.by_triplet) for part in parts)],
        ["95 % by relation", *("{:+.3f} to {:+.3f}".format(*part.by_relation) for part in parts)],
    ]
    candidates = "entities seen in that slot of the relation in any split" if density.typed else "all entities"
    console.table(
        f"Facts among the {density.count} nearest on {density.graph}",
        ["", "true facts", "false facts"],
        rows,
        f"heads and tails; candidates: {candidates}; ± standard error;\n"
        "  bootstrap intervals of the change, resampling facts or relations",
    )


def show_gain(gain: Gain) -> None:
    """Correlation of gain and change of rank, under each choice of candidates."""
    titles = {"rank": "rank", "reciprocal_rank": "1/rank", "reciprocal_rank_changed": "1/rank, where it changed"}
    summary = gain.to_json()
    rows, changes = [], []
    for name, part in summary["candidates"].items():
        for kind, title in titles.items():
            correlation = part["spearman"][kind]
            rows.append([name, title, f"{correlation['rho']:+.4f}", f"{correlation['p']:.2g}", correlation["n"]])
        mrr = f"MRR {part['mrr_before']:.3f} -> {part['mrr_after']:.3f}"
        changes.append(f"{name} {mrr}, {part['unchanged']:.0%} unchanged")
    caption = f"from ranking by H(x, x) to ranking by H(mu, x): {'; '.join(changes)}"
    columns = ["candidates", "gain against change of", "Spearman", "p", "queries"]
    console.table(f"Harmony gain and rank change, {gain.graph} {gain.protocol.split}", columns, rows, caption)


def dynamics_rows(dynamics: Dynamics) -> list[dict[str, Any]]:
    columns = dynamics.harmony.tolist(), dynamics.coherence.tolist(), dynamics.distance.tolist()
    return [
        {"step": step, "harmony": harmony, "core_harmony": core, "distance": distance}
        for step, (harmony, core, distance) in enumerate(zip(*columns, strict=True))
    ]


def density_rows(density: Density) -> list[dict[str, Any]]:
    rows = []
    for name, part in (("true", density.positives), ("false", density.negatives)):
        counts = {"facts": name, "queries": part.queries, "composed": part.composed, "token": part.token}
        change = {"change": part.change.mean, "standard_error": part.change.standard_error, "t": part.change.t}
        rows.append(counts | change | {"by_triplet": part.by_triplet, "by_relation": part.by_relation})
    return rows


def gain_rows(gain: Gain) -> list[dict[str, Any]]:
    return [
        {"candidates": name, "change_of": kind, **correlation}
        for name, part in gain.to_json()["candidates"].items()
        for kind, correlation in part["spearman"].items()
    ]
