"""How neighbourhoods, explanations and other analyses look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from harmonium.cli import console

if TYPE_CHECKING:
    from harmonium.analysis.explain import Explanation
    from harmonium.analysis.neighbours import EntityNeighbourhood, Neighbour, Neighbourhood
    from harmonium.analysis.score_anatomy import ScoreDetails, Shift


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
