"""The command line: each command is the public function of the same name, and prints what it returns."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from harmonium import __version__
from harmonium.errors import HarmoniumError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Complete knowledge graphs with Gradient Graphs: missing facts, how sure to be of them, and why.",
    epilog="Start with: harmonium demo",
)


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by train or demo.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback(invoke_without_command=True)
def main_options(
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file to import first, such as one with your own Composition.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"harmonium {__version__}")
        raise typer.Exit
    for path in plugin or []:
        _import_file(path)


def _import_file(path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise HarmoniumError(f"--plugin {path}: not a Python file that can be read")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HarmoniumError(f"--plugin {path}: {type(error).__name__}: {error}") from error


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the run folder goes; an earlier demo run there is replaced.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
) -> None:
    """Train on the embedded atlas of the world in about half a minute, and look at what was learned."""
    from harmonium.demo import demo as run_demo

    run_demo(out, seed)


@app.command()
def train(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; defaults otherwise.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Dataset name, folder or file of triples; wins over CONFIG.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to write; runs/<data> when left out.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. model.faithfulness=inf."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a run folder that is already there.")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="List every setting with its default, and stop.")
    ] = False,
) -> None:
    """Train a model on a graph and write a run folder.

    Example: harmonium train --data atlas --set model.composition=distmult --set train.epochs=30 --out runs/mine
    """
    from harmonium import commands, console
    from harmonium.config import Config, describe

    if settings:
        console.table("Settings", ["key", "default", "meaning"], describe())
        return
    read = Config.read(config, sets or [])
    out = out or Path("runs") / Path(data or read.data).name.split(".")[0]
    with console.training_bar() as watch:
        run = commands.train(read, data, out, overwrite=overwrite, watch=watch)
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
        rows = {"model": run.metrics["metrics"], "frequency baseline": run.metrics["frequency_baseline"]}
        console.metrics_table(f"Link prediction on {run.graph.name}", rows, describe(protocol))


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None, typer.Option(help="Another graph with the same names; the run's own otherwise.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    candidates: Annotated[str, typer.Option(help="full, typed-train or typed-all.")] = "full",
    ties: Annotated[str, typer.Option(help="realistic, optimistic or pessimistic.")] = "realistic",
    side: Annotated[str, typer.Option(help="head, tail or both.")] = "both",
    filtered: Annotated[bool, typer.Option(help="Leave other known answers out of the ranking.")] = True,
    unseen: Annotated[str, typer.Option(help="keep or drop triples with entities unseen in training.")] = "keep",
    by: Annotated[str | None, typer.Option(help="Also show metrics by side, relation or category.")] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Queries scored at once; changes memory, not results.", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank a split exactly and print metrics with the protocol that made them."""
    from harmonium import commands, console
    from harmonium.evaluation import describe

    if by not in (None, "side", "relation", "category"):
        raise HarmoniumError(f"--by is side, relation or category, not '{by}'")
    with console.bar("ranking") as watch:
        result = commands.evaluate(
            run,
            data,
            chunk,
            watch,
            split=split,
            candidates=candidates,
            ties=ties,
            side=side,
            filtered=filtered,
            unseen=unseen,
        )
    if as_json:
        console.print_json(result.to_json())
        return
    rows = {f"all {len(result.ranks):,} queries": result.metrics}
    if by == "side":
        rows |= result.by_side()
    elif by == "relation":
        rows |= {f"{name} ({int(m['queries'])})": m for name, m in result.by_relation().items()}
    elif by == "category":
        parts = result.by_category().items()
        rows |= {f"{kind} {side} ({int(m['queries'])})": m for kind, sides in parts for side, m in sides.items()}
    console.metrics_table(f"{run} on {result.graph}", rows, describe(result.protocol))


@app.command()
def predict(
    run: RunFolder,
    head: Annotated[str | None, typer.Option(help="Name of the head.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail.")] = None,
    top: Annotated[int, typer.Option(help="How many answers.", min=1)] = 10,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Leave out answers that are already known facts.")
    ] = False,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> None:
    """Answer a query with one of head, relation and tail left out, by name.

    Example: harmonium predict runs/demo --head Switzerland --relation "official language"
    """
    from harmonium import commands, console, prediction

    opened = commands.open_run(run)
    query = prediction.ask(opened.graph, head, relation, tail)
    answers = commands.predict(opened, head, relation, tail, top, new_only)
    if format is Format.JSON:
        console.print_json({"query": query.text, "answers": [answer.to_json() for answer in answers]})
    elif format is Format.CSV:
        import csv

        writer = csv.DictWriter(sys.stdout, ["rank", "id", "name", "score", "known"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(answer.to_json() for answer in answers)
    else:
        show_answers(query.text, answers)


def show_answers(query: str, answers: list[Any]) -> None:
    from harmonium import console

    rows = [[a.rank, a.name, a.score, f"known ({a.known})" if a.known else "new"] for a in answers]
    console.table(f"({query})", ["rank", "answer", "score", "fact"], rows)


@app.command()
def neighbours(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="Name of the head.")],
    relation: Annotated[str, typer.Argument(help="Name of the relation.")],
    tail: Annotated[str, typer.Argument(help="Name of the tail.")],
    slot: Annotated[str, typer.Option(help="Which entity changes: head or tail.")] = "head",
    count: Annotated[int, typer.Option(help="How many neighbours.", min=1)] = 5,
    typed: Annotated[bool, typer.Option(help="Only entities seen in that slot of the relation.")] = True,
    as_json: AsJson = False,
) -> None:
    """Who is nearest to an entity in the guise that one fact gives it, by composed vector and by token.

    Example: harmonium neighbours runs/demo Switzerland "official language" French
    """
    from harmonium import commands, console

    found = commands.neighbours(run, head, relation, tail, slot, count, typed)
    if as_json:
        console.print_json(found.to_json())
    else:
        show_neighbourhood(found)


def show_neighbourhood(found: Any) -> None:
    """Composed beside token; true facts in green with a tick."""
    from rich.text import Text

    from harmonium import console

    def cell(neighbour: Any) -> Text:
        mark, style = ("✓ ", "green") if neighbour.true else ("  ", "")
        return Text(f"{mark}{neighbour.name}  ", style=style).append(f"{neighbour.distance:.3f}", style="dim")

    title = f"{found.triple[0 if found.slot == 'head' else 2]} in ({', '.join(found.triple)})"
    if not found.composed:
        console.say(f"{title}: nobody else was seen in that place; --no-typed asks among all entities")
        return
    columns = {"nearest composed": found.composed, "nearest token": found.token}
    columns = {name: side for name, side in columns.items() if side}
    rows = list(zip(*([cell(n) for n in side] for side in columns.values()), strict=True))
    hits = ", ".join(f"{sum(n.true for n in side)} of {len(side)} {name}" for name, side in columns.items())
    console.table(title, list(columns), rows, f"✓ true with that entity in its place: {hits}")


@app.command()
def info(
    graph_or_run: Annotated[
        str, typer.Argument(metavar="GRAPH_OR_RUN", help="Dataset name, folder, file or run folder.")
    ],
    top: Annotated[int, typer.Option(help="How many relations to list.", min=0)] = 20,
    as_json: AsJson = False,
) -> None:
    """What is in a graph or a run: counts, splits, relations with an example."""
    from harmonium import commands, console

    found = commands.info(graph_or_run)
    if as_json:
        console.print_json(found)
        return
    graph = found["graph"]
    counts = ", ".join(f"{split} {count:,}" for split, count in graph["triples"].items())
    console.say(f"{graph['name']}: {graph['entities']:,} entities, {graph['relations']:,} relations; {counts}", "bold")
    unseen = ", ".join(f"{count:,} in {split}" for split, count in graph["unseen"].items())
    console.say(f"triples with an entity that train never shows: {unseen}")
    for note in graph["notes"]:
        console.say(f"note: {note}", "yellow")
    rows = [
        [entry["name"], entry["train"], entry["category"], " · ".join(entry["example"] or ())]
        for entry in graph["by_relation"][:top]
    ]
    more = graph["relations"] - len(rows)
    console.table("Relations", ["relation", "train", "kind", "example"], rows, f"{more:,} more" if more > 0 else None)
    if "run" in found:
        show_run(commands.open_run(graph_or_run))


def main() -> None:
    """Run a command; a mistake in what was given is one message and exit code 2."""
    try:
        app(prog_name="harmonium")
    except HarmoniumError as error:
        from harmonium import console

        console.errors.print(console.Text(f"error: {error}", style="red"), soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
