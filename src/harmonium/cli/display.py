"""What commands print of results that are no objects of their own: rows of missing facts, settings, a fact to judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import harmonium
from harmonium.cli import console
from harmonium.runtime.displayed import Item, Line, Paragraph, Part, Table, notes, percent

if TYPE_CHECKING:
    from harmonium.answers.prediction import Prediction
    from harmonium.config.settings import Config
    from harmonium.data.graph import Graph
    from harmonium.review.queue import Offer
    from harmonium.run.run import Run
    from harmonium.runtime.frames import ResultList

Row = Mapping[str, Any]
SHOWN_RELATIONS = 5  # whose tails are numbers or dates


def value_relations(graph: Graph) -> str:
    """Which relations no missing facts are listed of, because their tails are numbers or dates; empty if there are none."""
    relations = graph.literals.relations.nonzero()[:, 0].tolist()
    if not relations:
        return ""
    names = ", ".join(graph.relations.name(relation) for relation in relations[:SHOWN_RELATIONS])
    more = ", ..." * (len(relations) > SHOWN_RELATIONS)
    return f"numbers and dates are not guessed: {names}{more}; --relation NAME asks for them all the same"


def count_notes(graph: Graph, kind: str) -> int:
    return sum(note.count for note in graph.notes if note.kind == kind)


def reading(source: str, graph: Graph) -> Iterator[Part]:
    """What was read of a graph, and what was not."""
    n_facts = sum(map(len, graph.splits.values()))
    dropped = count_notes(graph, "repeated") + count_notes(graph, "skipped rows")
    counts = f"{n_facts:,} facts about {graph.n_entities:,} entities, {graph.n_relations:,} relations"
    yield Line(f"{source}: {n_facts + dropped:,} rows, {counts}", "bold")
    yield from notes(graph.notes)


def missing(title: str, facts: Sequence[Prediction]) -> Iterator[Part]:
    """Missing facts with their probabilities and, where they have them, reasons."""
    from harmonium.answers.prediction import why_no_probabilities

    caption = why_no_probabilities(facts)
    if not facts or facts[0].reason is None:
        rows = [[*fact.names, percent(fact.probability), int(fact.rank)] for fact in facts]
        yield Table(title, ["head", "relation", "tail", "probability", "rank"], rows, caption)
        return
    yield Line(title, "bold")
    width = max(len(percent(fact.probability)) for fact in facts)
    for fact in facts:
        yield Item(f"{percent(fact.probability):>{width}}", " · ".join(fact.names), fact.reason or "")
    if caption:
        yield Line(f"  {caption}", "dim")
    yield Line("")


def bands(run: Run, facts: ResultList[Prediction]) -> Iterator[Part]:
    """How many missing facts are how probable, and how many of them should be true."""
    from harmonium.answers.calibration.judgement_correction import correction_for
    from harmonium.answers.complete import probability_bands

    rows, high = [], "or more"
    for band in probability_bands(facts):
        rows.append([f"{100 * band.low:.0f} % {high}", band.count, round(band.expected)])
        high = f"to {100 * band.low:.0f} %"
    if rows:
        caption = "; ".join(map(str, facts.notes))
        if (correction := correction_for(run)) is not None:
            caption = f"expected true: by probabilities corrected by judgements of {correction.facts:,} facts"
        yield Table(f"{len(facts):,} missing facts", ["probability", "facts", "expected true"], rows, caption)


def trained(run: Run) -> Iterator[Part]:
    """The graph with its notes, how training went, and the folder."""
    yield Line(repr(run.graph), "bold")
    yield from notes(run.graph.notes)
    yield from model(run)
    yield from run.display_training()
    yield from run.display_metrics()
    yield Line(f"run folder: {run.path}")


def model(run: Run) -> Iterator[Part]:
    """The model of a run in words, and how its settings were chosen."""
    contents = harmonium.info(run)["run"]
    model = contents["model"]
    vectors = f"{model['entity_dim']:,} numbers for an entity, {model['relation_dim']:,} for a relation"
    form = "plain: no W"
    if model["harmony"]:
        form = f"W of rank {model['rank']:,}, lambda {model['faithfulness']:g}"
    yield Line(f"{model['name']}: composition {model['composition']}; {vectors}; {form}", "bold")
    yield Line(f"{contents['parameters']:,} parameters; settings: {model['chosen']}")


def settings(config: Config, source: str, output_format: str) -> None:
    """Print every setting with the value that a training would use, and the values that it may have."""
    from harmonium.config.settings import flatten, to_toml
    from harmonium.training.setting_choices import describe_settings

    values = flatten(config)
    rows = [
        {"key": row.key, "value": to_toml(values[row.key]), "values": row.values, "meaning": row.help}
        for row in describe_settings()
    ]
    if output_format == "json":
        console.print_json(rows)
    elif output_format != "table":
        console.print_rows(rows, output_format)
    else:
        console.say(
            f"Settings of {source}, where --set gives no other; a search may choose some of them for the graph."
        )
        for row in rows:
            key = Line(f"{row['key']} = {row['value'] or 'none'}", "bold")
            console.show([key, Paragraph(f"values: {row['values']}", "dim"), Paragraph(row["meaning"])])


def offer(offer: Offer, reason: str, around: Sequence[str]) -> Iterator[Part]:
    """A fact to judge."""
    assert offer.shown is not None, "there is a fact"
    shown = offer.shown
    yield Line("")
    yield Line(shown.text, "bold")
    rated = "no probability" if shown.probability is None else f"probability {percent(shown.probability)}"
    position = f"no. {shown.rank:,} by {shown.order}" if shown.rank else "judged before"
    yield Line(f"  {rated}; {position}; {offer.known_facts:,} known facts of its entities; {offer.left:,} left", "dim")
    yield Paragraph(f"evidence: {reason}")
    for judgement in offer.earlier:
        earlier = f"{judgement.reviewer} was unsure on {judgement.time[:10]} {judgement.quoted_comment}"
        yield Paragraph(earlier, "yellow")
    for text in around:
        yield Paragraph(text, "dim")


def relation_rows(contents: Row) -> list[dict[str, Any]]:
    """What `info` says of a graph: a row for each relation, with an example."""
    rows = []
    for relation in contents["graph"]["by_relation"]:
        example = dict(zip(("example_head", "example_tail"), (relation["example"] or (None,) * 3)[::2], strict=True))
        counts = {"relation": relation["name"], "train": relation["train"], "category": relation["category"]}
        rows.append(counts | example)
    return rows


def run_rows(contents: Row) -> list[dict[str, Any]]:
    """What `info` says of a run: a row for each property of its model, its training and its evaluation."""
    run = contents["run"]
    values = {f"model.{key}": value for key, value in run["model"].items()}
    values |= {key: run[key] for key in ("path", "parameters", "epochs", "best_epoch", "stopped", "seconds")}
    values |= {f"metrics.{name}": value for name, value in run["metrics"].get("metrics", {}).items()}
    for number, update in enumerate(run["updates"], start=1):
        names = ("made", "change", "command")
        values |= {f"update {number}.{name}": update[name] for name in names}
        values |= {f"update {number}.{name} before": value for name, value in update["metrics_before"].items()}
    return [{"property": key, "value": value} for key, value in values.items()]
