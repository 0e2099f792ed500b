"""The command `complete`: the missing facts of a run, or of a file of facts, which is cleaned and trained on first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.opening import open_or_train
from harmonium.cli.options import argument, flag, option
from harmonium.cli.reading import reads_graph
from harmonium.runtime import torchrun

if TYPE_CHECKING:
    from harmonium.answers.prediction import Prediction
    from harmonium.run.run import Run
    from harmonium.runtime.frames import ResultList

SHOWN = 10  # facts shown of a list that is written to a file


@command("Ask")
@reads_graph
def complete(
    graph_or_run: Annotated[
        str, argument("GRAPH|RUN", "Dataset name, folder or file of facts, to train on first; or a run folder.")
    ],
    out: options.OutFile = None,
    to: Annotated[
        str | None,
        option(
            "TARGET", "bolt://HOST: merge the facts into Neo4j; neo4j, graphrag or lightrag: write --out for that tool."
        ),
    ] = None,
    relation: Annotated[list[str] | None, option("NAME", "Relation to complete; repeatable; default: all.")] = None,
    top: Annotated[
        int | None, option("N", "Number of facts; default: 1000, or as many as --precision allows.", min=1)
    ] = None,
    precision: Annotated[
        float | None, option("X", "Instead of --top: the longest list of which this share is true, such as 0.9.")
    ] = None,
    only_empty: Annotated[bool, flag("Only slots without a value: no known tail.", "--only-empty")] = False,
    typed: options.InferredTypes = True,
    reasons: Annotated[bool, flag("Give each fact a reason in words.")] = True,
    preset: options.Preset = None,
    minutes: options.Minutes = None,
    run: Annotated[Path | None, option("RUN", "Run folder to train into; default: runs/GRAPH.")] = None,
    overwrite: Annotated[bool, flag("Train again where there is a run already.", "--overwrite")] = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Find the facts that are missing from a graph, with probabilities and reasons, most probable first.

    A file of facts (head, relation, tail) may be messy: names are cleaned,
    repeated facts dropped, and rows that cannot be used skipped and counted
    (--on-bad error refuses them).
    The best model for it that fits the time budget is trained and kept in a
    run folder, which is used again while the facts stay the same.

    The probabilities add up to the number of true facts, as far as held-out
    facts tell how many the graph lacks. --precision 0.9 lists as many as it
    can while 90 % are true by their probabilities.

    Example: harmonium complete facts.csv --out missing.csv

    Example: harmonium complete runs/demo --relation borders --only-empty --top 20
    """
    from harmonium.answers.complete import DEFAULT_TOP, check_target
    from harmonium.answers.open_run import open_run
    from harmonium.data.formats.neo4j.address import is_neo4j

    check_target(to, out)
    opened = open_or_train(
        graph_or_run,
        output_format != "table",
        preset=preset,
        minutes=minutes,
        folder=run,
        overwrite=overwrite,
        **reading,
    )
    if not torchrun.is_launched():
        with console.bar("fitting probabilities, once") as progress:
            open_run(opened).fact_calibration(progress)
    with console.bar("completing") as progress:
        facts = harmonium.complete(
            opened, relation or None, top=top, precision=precision, typed=typed, only_empty=only_empty, reasons=reasons,
            out=out, to=to, progress=progress, allow_internal=bool(reading.get("allow_internal")),
        )  # fmt: skip

    def show(_: object) -> None:
        _show(opened, facts, top or DEFAULT_TOP, out)
        if not relation and (values := display.value_relations(opened.graph)):
            console.say(values)
        if facts and to is not None and is_neo4j(to):
            console.say(f"merged into {to}: relationships with predicted = true")

    console.output(facts, output_format, show, to_json=lambda facts: _summary(opened, facts))


def _show(run: Run, facts: ResultList[Prediction], top: int, out: Path | None) -> None:
    """The facts, how many should be true, and where everything is."""
    if not facts:
        console.say("nothing is missing that the types of entities and the regularities of relations allow", "yellow")
        for note in facts.notes:
            console.say(str(note))
        return
    from harmonium.answers.calibration.completeness import completeness_of
    from harmonium.answers.open_run import open_run
    from harmonium.data.checks.completeness import completeness_table

    title = f"Missing from {run.graph.name}"
    console.show(display.missing(title, facts if out is None else facts[:SHOWN]))
    console.show(display.bands(run, facts))
    console.show(completeness_table(completeness_of(open_run(run))))
    if len(facts) == top:
        console.say(f"the list ends at {top:,} facts; --top N lists more")
    if out is not None:
        console.say(f"all {len(facts):,} facts: {out}")
    if skipped := display.count_notes(run.graph, "skipped rows"):
        console.say(f"{skipped:,} rows of the data were skipped; `harmonium info {run.path}` says why", "yellow")
    if run.path is not None:
        console.say(f"run folder: {run.path}")


def _summary(run: Run, facts: ResultList[Prediction]) -> dict[str, Any]:
    """What is printed, as JSON."""
    from dataclasses import asdict

    from harmonium.answers.calibration.completeness import completeness_of
    from harmonium.answers.complete import probability_bands
    from harmonium.answers.open_run import open_run

    return {
        "graph": run.graph.name,
        "notes": [str(note) for note in run.graph.notes],
        "run": None if run.path is None else str(run.path),
        "evaluation": run.evaluation.to_json() if run.evaluation else None,
        "completeness": completeness_of(open_run(run)),
        "bands": [asdict(band) for band in probability_bands(facts)],
        "expected": [str(note) for note in facts.notes],
        "facts": facts.records(),
    }
