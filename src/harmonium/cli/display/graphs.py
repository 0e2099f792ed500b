"""How a graph and its diagnosis look in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from harmonium.cli import console

if TYPE_CHECKING:
    from harmonium.data.checks.contradictions import Contradictions
    from harmonium.data.checks.diagnosis import Diagnosis
    from harmonium.data.graph import Graph


def count_notes(graph: Graph, kind: str) -> int:
    return sum(note.count for note in graph.notes if note.kind == kind)


def show_reading(source: str, graph: Graph) -> None:
    """What was read of a graph, and what was not."""
    n_facts = sum(map(len, graph.splits.values()))
    dropped = count_notes(graph, "repeated") + count_notes(graph, "skipped rows")
    counts = f"{n_facts:,} facts about {graph.n_entities:,} entities, {graph.n_relations:,} relations"
    console.say(f"{source}: {n_facts + dropped:,} rows, {counts}", "bold")
    console.notes(graph.notes)


def show_graph(graph: Mapping[str, Any], top: int) -> None:
    """Counts, and the most frequent relations with an example."""
    counts = ", ".join(f"{split} {count:,}" for split, count in graph["triples"].items())
    console.say(f"{graph['name']}: {graph['entities']:,} entities, {graph['relations']:,} relations; {counts}", "bold")
    unseen = ", ".join(f"{count:,} in {split}" for split, count in graph["unseen"].items())
    console.say(f"facts with an entity that is not in train: {unseen}")
    if graph["rejected"]:
        console.say(f"facts recorded as false, which are never proposed: {graph['rejected']:,}")
    console.notes(graph["notes"])
    rows = [
        [relation["name"], relation["train"], relation["category"], " · ".join(relation["example"] or ())]
        for relation in graph["by_relation"][:top]
    ]
    more = graph["relations"] - len(rows)
    caption = f"{more:,} more" if more > 0 else None
    console.table("Relations", ["relation", "train", "category", "example"], rows, caption)


def show_diagnosis(diagnosis: Diagnosis, top: int) -> None:
    """The verdict, the findings, and what rules alone score."""

    colours = {"ok": "green", "warning": "yellow", "leaking": "red"}
    console.say(f"{diagnosis.graph}: {diagnosis.verdict}", f"bold {colours[diagnosis.verdict]}")
    console.say(f"  why: {diagnosis.reason}\n  what to do: {diagnosis.advice}\n")
    findings = [[Text(f.level, style=colours[f.level]), f.name, f.sentence] for f in diagnosis.findings]
    console.table("Findings", ["", "check", "result"], findings)
    if diagnosis.relations and top:
        more = len(diagnosis.relations) - top
        caption = "shared: of the first's pairs, or of either's where mutual; finds: test facts that follow"
        caption += f"; {more:,} more with --top" if more > 0 else ""
        console.table("Relations over the same entities", *diagnosis.relation_table(top), caption)
    if rules := diagnosis.rule_baseline:
        console.metrics_table("Rules of one step alone", {"rules": rules["metrics"]}, rules["protocol"])
    if diagnosis.cleaned:
        cleaned = diagnosis.cleaned
        rows = [[reason, *counts.values()] for reason, counts in cleaned["dropped"].items()]
        rows.append(["left", *cleaned["triples"].values()])
        caption = f"{len(cleaned['relations']):,} redundant relations dropped (--format json lists them)"
        for kind, groups in cleaned["united"].items():
            caption += f"; {sum(len(group['united']) for group in groups):,} names of {kind} united with others"
        console.table(f"Cleaned copy in {cleaned['path']}", ["dropped", "train", "valid", "test"], rows, caption)
    console.notes(diagnosis.notes)
    if diagnosis.since:
        show_contradictions(diagnosis.since)


def show_contradictions(since: Contradictions) -> None:
    """Facts that contradict an older version."""
    console.say(since.sentence, "bold")
    if since.rows:
        more = since.count - len(since.rows)
        caption = f"{more:,} more with --top" if more else None
        columns = list(since.COLUMNS)
        console.table("Contradictions", columns, [[row[name] for name in columns] for row in since.rows], caption)
