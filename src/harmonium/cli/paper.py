"""`harmonium paper`: the tables, figures and claims of Lalisse & Smolensky, one command each."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import harmonium
from harmonium.cli import console, options
from harmonium.cli.options import argument, choice, option
from harmonium.cli.reading import counting, reads_facts
from harmonium.errors import HarmoniumError
from harmonium.runtime.displayed import Table

TABLES = ("table1", "htpr", "controls", "neighbourhoods", "density", "gain", "classification")
Graph = Annotated[str, option("GRAPH", "Dataset name, folder or file of facts.")]
Rows = Annotated[
    list[str] | None, option("NAME", "Row or pattern such as hhole-*; repeatable, or with commas; default: all.")
]
Seeds = Annotated[str, option("N,N", "Random seeds.")]
Overrides = Annotated[list[str] | None, option("KEY=VALUE", "Change a setting of every row; repeatable.", "--set")]


def table(
    name: Annotated[
        str, argument("|".join(TABLES), "Table of the paper, controls of ours, or analysis of its models.")
    ],
    dataset: Graph = "FB15K",
    rows: Rows = None,
    variant: Annotated[
        str | None,
        choice(
            ("faithful", "authors", "calibrated", "both"),
            "Recipes: the paper's, with the authors' start and step, ours; default: both (faithful and calibrated) "
            "for tables, calibrated for analyses.",
        ),
    ] = None,
    seeds: Seeds = "0",
    scale: Annotated[str, choice(("full", "small"), "Small: a quick trial.")] = "full",
    overrides: Overrides = None,
    runs: Annotated[Path, option("FOLDER", "Where run folders go.")] = Path("runs/reproduce"),
    results: Annotated[
        Path | None, option("FOLDER", "Where records go; default: results, or RUNS/results with --scale small.")
    ] = None,
    output_format: options.Format = "table",
) -> None:
    """Rerun rows of a table: train what is missing and compare with the published numbers, typed and full protocol.

    Example: harmonium paper table table1 --dataset atlas --scale small

    Example: harmonium paper table table1 --dataset FB15K --rows hhole-1 --seeds 0,1
    """
    from harmonium.paper import records, tables
    from harmonium.paper.reproduce import reproduce

    made = reproduce(
        name,
        dataset,
        _words(rows),
        variant,
        _numbers(seeds),
        scale,
        overrides or (),
        runs,
        results,
        console.errors.print,
    )
    columns, lines = tables.TABLES[name](made)
    cells = [dict(zip(columns, line, strict=True)) for line in lines]
    console.output(
        made,
        output_format,
        lambda _: console.show([Table(f"{name}, {dataset}", columns, lines)]),
        lambda _: cells,
        lambda made: records.plain(made),
    )


def starts(
    dataset: Annotated[str, argument("GRAPH", "Dataset name, folder or file of facts.")] = "FB15K",
    rows: Rows = None,
    start: Annotated[
        list[str] | None, option("NAME", "Parts of the authors' program; repeatable; default: all.")
    ] = None,
    entities: Annotated[int | None, option("N", "Only the part between this many frequent entities.", min=2)] = None,
    seconds: Annotated[float, option("X", "Seconds of training for each cell.", min=0)] = 100,
    seed: options.Seed = 0,
    overrides: Overrides = None,
    out: Annotated[Path, option("FILE", "Where cells are kept (.json).")] = Path("results/paper-start.json"),
    output_format: options.Format = "table",
) -> None:
    """Compare rows with and without parts of the authors' start and step, which the paper does not describe.

    Example: harmonium paper starts FB15K --entities 1000 --seconds 600
    """
    from harmonium.paper.starts import ROWS, STARTS, compare_starts, frequent_part

    graph = harmonium.load(dataset)
    words = ["harmonium", "paper", "starts", Path(dataset).name, "--seconds", f"{seconds:g}"]
    words += ["--entities", str(entities)] if entities else []
    words += [word for text in overrides or () for word in ("--set", text)]
    cells = compare_starts(
        frequent_part(graph, entities) if entities else graph,
        out,
        shlex.join(words),
        _words(rows) or ROWS,
        start or list(STARTS),
        seconds,
        overrides or (),
        seed,
        console.errors.print,
    )
    names = ("row", "start", "epochs", "best_epoch", "seconds")
    lines = [{name: cell[name] for name in names} | {p: cell[p]["mrr"] for p in ("typed", "full")} for cell in cells]
    columns = [*names, "typed MRR", "full MRR"]
    console.output(
        cells,
        output_format,
        lambda _: console.show(
            [Table(f"MRR by start, {graph.name}", columns, [list(line.values()) for line in lines])]
        ),
        lambda _: lines,
    )


def neighbours(
    run: options.RunFolder,
    top: options.NeighbourCount = 5,
    typed: options.Typed = True,
    output_format: options.Format = "table",
) -> None:
    """List the neighbours of one entity in several facts: the paper's examples, or on another graph two entities.

    Example: harmonium paper neighbours runs/demo
    """
    from harmonium.analysis.neighbours import nearest_triples
    from harmonium.paper.guises import guises

    opened = harmonium.Run.load(run)
    graph, facts = opened.graph, guises(opened.graph)
    near = [nearest_triples(opened.model, graph, graph.triple(*fact), count=top, typed=typed) for fact in facts]
    console.output(
        near,
        output_format,
        _show_each,
        lambda near: [{"fact": " · ".join(each.triple), **row} for each in near for row in each.records()],
        lambda near: [each.to_json() for each in near],
    )


@reads_facts
def density(
    run: options.RunFolder,
    labelled: Annotated[
        Path | None, option("FILE", "Lines of head, relation, tail, 1 or -1; default: test facts and negatives.")
    ] = None,
    top: options.NeighbourCount = 5,
    typed: options.Typed = True,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Count known facts among the nearest neighbours of true and of false facts, by composed vector and by token.

    Example: harmonium paper density runs/demo
    """
    from harmonium.paper.density import density

    with console.bar("searching neighbours") as progress:
        skipped = counting(reading)
        densities = density(run, labelled, top, typed, seed, device, progress, **reading)
    console.warnings(skipped.notes())
    console.output(densities, output_format)


def gain(
    run: options.RunFolder,
    split: options.Split = "valid",
    limit: options.Limit = 100_000,
    ties: options.Ties = "realistic",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    plot: options.Figure = None,
    output_format: options.Format = "table",
) -> None:
    """Test whether the facts that gain most harmony from composed vector to token also gain rank.

    Example: harmonium paper gain runs/demo --plot gain.png
    """
    from harmonium.paper.gain import gain

    with console.bar("ranking") as progress:
        gains = gain(run, split, limit, ties, seed, device, progress)
    if plot:
        from harmonium.paper.figures import gain_figure

        gain_figure(gains, plot)
    console.output(gains, output_format)


def dynamics(
    run: options.RunFolder,
    head: options.Head,
    relation: options.Relation,
    tail: options.Tail,
    steps: Annotated[int | None, option("N", "Steps of the network; default: until it has converged.", min=1)] = None,
    samples: Annotated[int, option("N", "Number of states sampled from p(h|x).", min=1)] = 500,
    seed: options.Seed = 0,
    plot: options.Figure = None,
    output_format: options.Format = "table",
) -> None:
    """Show how the network moves, step by step, from the composed vector of a fact to its token.

    Example: harmonium paper dynamics runs/demo Switzerland "official language" French --plot climb.png
    """
    from harmonium.paper.dynamics import dynamics

    trajectory = dynamics(run, head, relation, tail, steps, samples, seed)
    if plot:
        from harmonium.paper.figures import dynamics_figure

        dynamics_figure(trajectory, plot)
    console.output(trajectory, output_format)


COMMANDS: list[Callable[..., None]] = [table, starts, neighbours, density, gain, dynamics]


def _show_each(near: Sequence[Any]) -> None:
    for neighbourhood in near:
        console.show(neighbourhood)


def _words(values: list[str] | None) -> list[str]:
    return [word for value in values or () for word in value.split(",") if word]


def _numbers(text: str) -> list[int]:
    if not all(word.isdecimal() for word in text.split(",")):
        raise HarmoniumError(f"--seeds are whole numbers such as 0,1,2, not '{text}'")
    return [int(word) for word in text.split(",")]
