"""The command `complete`: the missing facts of a run, or of a file of facts, which is cleaned and trained on first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.options import argument, flag, option
from harmonium.cli.reading import option_name, reads_graph
from harmonium.errors import HarmoniumError
from harmonium.runtime import torchrun

if TYPE_CHECKING:
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
    top: Annotated[int, option("N", "Number of facts.", min=1)] = 1000,
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

    The probabilities add up to the number of true facts if the graph lacks
    about as many facts as were held out for validation.

    Example: harmonium complete facts.csv --out missing.csv

    Example: harmonium complete runs/demo --relation borders --only-empty --top 20
    """
    from harmonium.answers.calibration.fact_probability import fact_calibration_for
    from harmonium.answers.open_or_train import is_run_folder
    from harmonium.answers.send.destinations import check_destination
    from harmonium.answers.send.result_file import check_path
    from harmonium.data.formats.neo4j.address import is_neo4j

    check_destination(to, out)
    if out is not None and (to is None or is_neo4j(to)):
        check_path(out)
    allow_internal = bool(reading.get("allow_internal"))
    if is_run_folder(graph_or_run):
        reading.pop("allow_internal", None)  # it may be meant for --to
        training = reading | {"preset": preset, "minutes": minutes, "run": run, "overwrite": overwrite or None}
        if given := [name for name, value in training.items() if value is not None]:
            raise HarmoniumError(f"{graph_or_run} is a run, which is not trained again; drop {option_name(given[0])}")
        opened = harmonium.Run.load(graph_or_run)
    else:
        opened = _train(graph_or_run, run, preset, minutes, overwrite, output_format != "table", reading)
    if not torchrun.is_launched():
        with console.bar("fitting probabilities, once") as progress:
            fact_calibration_for(opened, typed, progress)
    with console.bar("completing") as progress:
        facts = harmonium.complete(
            opened,
            relation or None,
            top,
            typed,
            only_empty,
            out,
            progress,
            reasons,
            to=to,
            allow_internal=allow_internal,
        )

    def show(_: object) -> None:
        _show(opened, facts, top, out)
        if facts and to is not None and is_neo4j(to):
            console.say(f"merged into {to}: relationships with predicted = true")

    console.output(facts, output_format, show, to_json=lambda facts: _summary(opened, facts))


def _show(run: Run, facts: ResultList[dict[str, Any]], top: int, out: Path | None) -> None:
    """The facts, how many should be true, and where everything is."""
    if not facts:
        console.say("nothing is missing that the types of entities and the regularities of relations allow", "yellow")
        return
    console.show(display.missing(run.graph, facts if out is None else facts[:SHOWN]))
    console.show(display.bands(run, facts))
    if len(facts) == top:
        console.say(f"the list ends at {top:,} facts; --top N lists more")
    if out is not None:
        console.say(f"all {len(facts):,} facts: {out}")
    if skipped := display.count_notes(run.graph, "skipped rows"):
        console.say(f"{skipped:,} rows of the data were skipped; `harmonium info {run.path}` says why", "yellow")
    if run.path is not None:
        console.say(f"run folder: {run.path}")


def _train(
    source: str,
    folder: Path | None,
    preset: str | None,
    minutes: float | None,
    overwrite: bool,
    quiet: bool,
    reading: dict[str, Any],
) -> Run:
    """A run on a graph: the earlier one if the facts are the same, or a new one."""
    from harmonium.answers.open_or_train import earlier_run, read_graph, run_folder

    console.download(source)
    with console.bar(f"reading {source}"):
        graph = read_graph(source, **reading)
    folder = folder or run_folder(source)
    assert folder is not None, "a graph on the command line has a name"
    if not quiet:
        console.show(display.reading(source, graph))
    earlier = None if overwrite else earlier_run(folder, graph, preset, minutes)
    if earlier is not None:
        if not quiet:
            console.say(f"{folder} was trained on the same facts and is used again; --overwrite trains anew")
        return earlier
    with console.training_bar() as progress:
        run = harmonium.train(graph, preset, folder, overwrite=overwrite, progress=progress, minutes=minutes)
    if not quiet:
        console.show([*run.display_training(), *run.display_metrics()])
    return run


def _summary(run: Run, facts: list[dict[str, Any]]) -> dict[str, Any]:
    """What is printed, as JSON."""
    from dataclasses import asdict

    from harmonium.answers.complete import probability_bands

    return {
        "graph": run.graph.name,
        "notes": [str(note) for note in run.graph.notes],
        "run": None if run.path is None else str(run.path),
        "evaluation": run.evaluation.to_json() if run.evaluation else None,
        "bands": [asdict(band) for band in probability_bands(facts)],
        "facts": facts,
    }
