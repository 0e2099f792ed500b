"""How results look on a terminal: tables of what the commands return."""

from __future__ import annotations

from typing import Any


def in_bytes(size: float) -> str:
    """A size that is easy to read."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def in_words(seconds: float) -> str:
    """A time that is easy to read."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    hours, rest = divmod(round(seconds), 3600)
    return (
        f"{hours} h {rest // 60} min"
        if hours
        else f"{rest // 60} min {rest % 60} s"
        if rest >= 100
        else f"{seconds:.1f} s"
    )


def show_trained(run: Any) -> None:
    """The graph, what was noticed in it, how training went, and where the run is."""
    from harmonium import console

    console.say(repr(run.graph), "bold")
    for note in run.graph.notes:
        console.say(f"note: {note}", "yellow")
    show_run(run)
    console.say(f"run folder: {run.path}")


def show_run(run: Any) -> None:
    """How training went and what it reached."""
    from harmonium import console
    from harmonium.config import EvaluateConfig
    from harmonium.evaluation import describe

    best = f"best at epoch {run.history.best_epoch} of {len(run.history.rows)}"
    console.say(f"trained {run.history.seconds:.1f} s, {best}; {run.history.stopped}")
    if run.metrics:
        protocol = EvaluateConfig(**{k: v for k, v in run.metrics["protocol"].items() if k != "filter"})
        estimate = run.metrics.get("estimate", {})
        rows = {"model": run.metrics["metrics"]} | interval_rows(estimate.get("intervals", {}))
        if "frequency_baseline" in run.metrics:
            rows["frequency baseline"] = run.metrics["frequency_baseline"]
        caption = describe(protocol, estimate.get("of"))
        console.metrics_table(f"Link prediction on {run.graph.name}", rows, caption)


def interval_rows(intervals: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The two ends of an estimate's intervals, as rows of a table of metrics."""
    ends = {"  95 %: from": 0, "  to": 1} if intervals else {}
    return {name: {metric: both[end] for metric, both in intervals.items()} for name, end in ends.items()}


def show_answers(query: str, answers: list[Any]) -> None:
    from harmonium import console

    rows = [
        [a.rank, a.name, a.score, f"known ({a.known})" if a.known else "new", "" if a.known else percent(a.probability)]
        for a in answers
    ]
    caption = unsure([a.probability for a in answers if not a.known])
    console.table(f"({query})", ["rank", "answer", "score", "fact", "probability"], rows, caption)


def unsure(probabilities: list[float | None]) -> str | None:
    """Why there are no probabilities, where there are none."""
    none = probabilities and all(probability is None for probability in probabilities)
    return "no probabilities: not asked for, or too few validation facts to fit them" if none else None


def percent(probability: float | None) -> str:
    return "" if probability is None else "< 0.1%" if 0 < probability < 0.001 else f"{probability:.1%}"


def show_neighbourhood(found: Any) -> None:
    """Composed beside token; true facts in green with a tick."""
    from rich.text import Text

    from harmonium import console

    def cell(neighbour: Any) -> Text:
        mark, style = ("✓ ", "green") if neighbour.true else ("  ", "")
        text = Text(f"{mark}{neighbour.name}  ", style=style)
        return text.append(f"{neighbour.distance:.3f} #{neighbour.rank:,g}", style="dim")

    title = f"{found.triple[0 if found.slot == 'head' else 2]} in ({', '.join(found.triple)})"
    columns = found.columns
    if not any(columns.values()):
        console.say(f"{title}: nobody else was seen in that place; --no-typed asks among all entities")
        return
    rows = list(zip(*([cell(n) for n in side] for side in columns.values()), strict=True))
    hits = ", ".join(f"{sum(n.true for n in side)} of {len(side)} {name}" for name, side in columns.items())
    if hasattr(found, "residual"):
        left, hard = f"{found.residual:.0%}", f"{found.condition:.3g}"
        note = f"the entity's token leaves {left} of mu - x uncomposed (ridge {found.ridge:g}, condition {hard})"
    else:
        note = f"the triplet itself: #{found.rank:,g}, {'true' if found.true else 'not a known fact'}"
    caption = f"✓ true with that entity in its place: {hits}\n  distance #rank among the answers; {note}"
    console.table(title, list(columns), rows, caption)


def show_classification(title: str, found: Any, top: int) -> None:
    """How well facts were classified, and the most frequent relations."""
    from harmonium import console

    rows = [[name.replace("_", " "), value] for name, value in found.metrics.items()]
    console.table(title, ["metric", f"{len(found.labels):,} test facts"], rows, found.source)
    relations, kind = found.by_relation(), {True: "its own", False: "of all"}
    rows = [
        [name, row["facts"], row["accuracy"], row["threshold"], kind[row["own_threshold"]]]
        for name, row in list(relations.items())[:top]
    ]
    more = f"{len(relations) - len(rows):,} more" if len(relations) > len(rows) else None
    console.table("Relations", ["relation", "facts", "accuracy", "threshold", ""], rows, more)


def show_explanation(found: Any) -> None:
    """The fact and its ranks, harmony in its parts, the directions that pushed, the facts behind it."""
    from harmonium import console

    known = f"a known fact ({found.known})" if found.known else "not a known fact"
    places = ", ".join(f"#{place:,g} as {side}" for side, place in found.rank.items())
    console.say(", ".join(found.triple), "bold")
    console.say(f"score {found.score:.3f}, {places} among all entities, other facts left out; {known}")
    for note in found.notes:
        console.say(f"note: {note}", "yellow")
    console.say("")
    if found.shift:
        columns = [found.harmony[place] for place in ("composed", "token", "empty")]
        rows = [
            [kind, *(f"{getattr(parts, kind):,.3f}" for parts in columns),
             f"{getattr(columns[1], kind) - getattr(columns[2], kind):+,.3f}"]
            for kind in ("core", "faithfulness", "total")
        ]  # fmt: skip
        shift = found.shift
        console.table(
            "Harmony",
            ["", "composed x", "token", "token of x = 0", "token above that"],
            rows,
            f"from x to its token: length {shift.length:.3f} ({shift.shared:.3f} that every fact shifts by, "
            f"{shift.own:.3f} its own), harmony {shift.gain:+,.3f}",
        )
        rows = [
            [f"{d.push:+.3f}", f"{d.quadratic:+.2g}", f"{d.linear:+.2g}",
             "\n".join([*(" · ".join(fact.name) for fact in d.facts[:2]),
                        "heads: " + ", ".join(entity.name for entity in d.heads[:3]),
                        "tails: " + ", ".join(entity.name for entity in d.tails[:3])])]
            for d in found.directions
        ]  # fmt: skip
        names = ["push", "a (u.x)²", "(c.u) (u.x)", "training facts, heads and tails furthest along u"]
        caption = f"push is the sum of both; the rest of the score: {found.rest:+.3f}"
        console.table("Directions u of W that pushed the score", names, rows, caption)
    columns = ["training fact", "distance", "change if removed"]
    caption = "change of the score if the fact were removed: a local estimate, often too small"
    for title, facts in (("Nearest training facts", found.nearest), ("Facts that count most", found.reasons)):
        rows = [[" · ".join(reason.fact), reason.distance, f"{reason.effect:+.3f}"] for reason in facts]
        console.table(title, columns, rows, caption)


def show_diagnosis(found: Any, top: int) -> None:
    """The verdict, what was found, and what rules alone score."""
    from rich.text import Text

    from harmonium import console
    from harmonium.evaluation import describe

    colours = {"calm": "green", "careful": "yellow", "leaking": "red"}
    console.say(f"{found.graph}: {found.verdict}", f"bold {colours[found.verdict]}")
    console.say(f"  why: {found.reason}\n  what to do: {found.advice}\n")
    rows = [[Text(f.level, style=colours[f.level]), f.name, f.sentence] for f in found.findings]
    console.table("Findings", ["", "what", "found"], rows)
    if found.relations and top:
        more = len(found.relations) - top
        caption = "shared: of the first's pairs, or of either's where mutual; finds: test facts that follow"
        caption += f"; {more:,} more with --top" if more > 0 else ""
        console.table("Relations over the same entities", *found.relation_table(top), caption)
    if found.baseline:
        protocol = describe(found.baseline.protocol)
        console.metrics_table("What rules of one step score alone", {"rules": found.baseline.metrics}, protocol)
    if found.cleaned:
        rows = [[reason, *counts.values()] for reason, counts in found.cleaned["dropped"].items()]
        rows.append(["left", *found.cleaned["triples"].values()])
        caption = f"{len(found.cleaned['relations']):,} redundant relations dropped (--json names them)"
        console.table(f"Cleaned copy in {found.cleaned['path']}", ["dropped", "train", "valid", "test"], rows, caption)
    for note in found.notes:
        console.say(f"note: {note}", "yellow")
