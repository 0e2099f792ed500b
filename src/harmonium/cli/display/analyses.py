"""How neighbourhoods, explanations and other analyses look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from harmonium.cli import console

if TYPE_CHECKING:
    from harmonium.analysis.explain import Explanation
    from harmonium.analysis.neighbours import EntityNeighbourhood, Neighbour, Neighbourhood
    from harmonium.analysis.score_anatomy import ScoreDetails, Shift
    from harmonium.paper.density import Density
    from harmonium.paper.dynamics import Dynamics
    from harmonium.paper.gain import Gain


def show_neighbourhood(neighbourhood: Neighbourhood | EntityNeighbourhood) -> None:
    """Nearest by composed vector beside nearest by token; true facts in green with a tick."""

    def cell(neighbour: Neighbour) -> Text:
        mark, style = ("✓ ", "green") if neighbour.true else ("  ", "")
        text = Text(f"{mark}{neighbour.name}  ", style=style)
        return text.append(f"{neighbour.distance:.3f} #{neighbour.rank:,g}", style="dim")

    entity = neighbourhood.triple[0 if neighbourhood.slot == "head" else 2]
    title = f"{entity} in ({', '.join(neighbourhood.triple)})"
    columns = neighbourhood.columns
    if not any(columns.values()):
        console.say(f"{title}: no other entity was seen in that slot; --no-typed compares with all entities")
        return
    rows = list(zip(*([cell(neighbour) for neighbour in near] for near in columns.values()), strict=True))
    hits = ", ".join(f"{sum(n.true for n in near)} of {len(near)} {name}" for name, near in columns.items())
    caption = f"✓ a known fact with that entity instead: {hits}\n  distance #rank as an answer; {_note(neighbourhood)}"
    console.table(title, list(columns), rows, caption)


def _note(neighbourhood: Neighbourhood | EntityNeighbourhood) -> str:
    from harmonium.analysis.neighbours import EntityNeighbourhood

    if isinstance(neighbourhood, EntityNeighbourhood):
        details = f"ridge {neighbourhood.ridge:g}, condition {neighbourhood.condition:.3g}"
        return f"the entity's token leaves {neighbourhood.residual:.0%} of mu - x uncomposed ({details})"
    return f"the triplet itself: #{neighbourhood.rank:,g}, {'true' if neighbourhood.true else 'not a known fact'}"


def show_explanation(explanation: Explanation) -> None:
    """The facts that count in words; parts of the score only with details."""
    known = f"a known fact ({explanation.known})" if explanation.known else "not a known fact"
    ranks = ", ".join(f"#{rank:,g} as {side}" for side, rank in explanation.rank.items())
    console.say(", ".join(explanation.triple), "bold")
    console.say(f"{known}; {ranks} among all entities, other known facts removed; score {explanation.score:.3f}")
    console.say(f"Evidence: {explanation.evidence}.")
    console.notes(explanation.notes)
    console.say("")
    rows = [[" · ".join(fact.fact), f"#{fact.rank:,}"] for fact in explanation.necessary]
    if rows:
        title = "Facts it depends on" if explanation.is_decided else "Facts that support it most"
        console.table(title, ["training fact", "rank without it and those above"], rows)
    console.say(explanation.verdict)
    rows = [[" · ".join(reason.fact), f"{reason.effect:+.3f}"] for reason in explanation.reasons]
    caption = "estimated by refitting the vectors of the head and the tail to their other facts"
    console.table("Single facts with most effect", ["training fact", "change of the score without it"], rows, caption)
    if explanation.details is not None:
        _show_details(explanation.details)
    else:
        console.say(
            "--details shows how the score comes about: parts of harmony, directions of W, nearest facts", "dim"
        )


def _show_details(details: ScoreDetails) -> None:
    if details.shift:
        _show_harmony(details, details.shift)
        _show_directions(details)
    rows = [[" · ".join(near.fact), near.distance] for near in details.nearest]
    console.table("Nearest training facts", ["training fact", "distance"], rows)


def _show_harmony(details: ScoreDetails, shift: Shift) -> None:
    composed, token, empty = (details.harmony[state] for state in ("composed", "token", "empty"))
    rows = [
        [name, *(f"{value:,.3f}" for value in values), f"{values[1] - values[2]:+,.3f}"]
        for name, values in (
            ("core", (composed.core, token.core, empty.core)),
            ("faithfulness", (composed.faithfulness, token.faithfulness, empty.faithfulness)),
            ("total", (composed.total, token.total, empty.total)),
        )
    ]
    columns = ["", "composed x", "token", "token of x = 0", "difference of tokens"]
    parts = f"{shift.shared:.3f} shared by all facts, {shift.specific:.3f} specific to this one"
    caption = f"from x to its token: length {shift.length:.3f} ({parts}), harmony {shift.gain:+,.3f}"
    console.table("Harmony", columns, rows, caption)


def _show_directions(details: ScoreDetails) -> None:
    rows = []
    for direction in details.directions:
        examples = [
            *(" · ".join(fact.name) for fact in direction.facts[:2]),
            "heads: " + ", ".join(str(entity.name) for entity in direction.heads[:3]),
            "tails: " + ", ".join(str(entity.name) for entity in direction.tails[:3]),
        ]
        parts = f"{direction.contribution:+.3f}", f"{direction.quadratic:+.2g}", f"{direction.linear:+.2g}"
        rows.append([*parts, "\n".join(examples)])
    names = ["contribution", "a (u.x)²", "(c.u) (u.x)", "training facts, heads and tails furthest along u"]
    caption = f"contribution: the sum of both terms; the rest of the score: {details.rest:+.3f}"
    console.table("Directions u of W with most effect on the score", names, rows, caption)


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
        ["95 % by triplet", *("{:+.3f} to {:+.3f}".format(*part.by_triplet) for part in parts)],
        ["95 % by relation", *("{:+.3f} to {:+.3f}".format(*part.by_relation) for part in parts)],
    ]
    candidates = "entities seen in that slot of the relation in any split" if density.typed else "all entities"
    console.table(
        f"Facts among the {density.count} nearest on {density.graph}",
        ["", "true triplets", "false triplets"],
        rows,
        f"heads and tails; candidates: {candidates}; ± standard error;\n"
        "  bootstrap intervals of the change, resampling triplets or relations",
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
