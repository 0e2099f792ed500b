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
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a figure: .png, .pdf or .svg.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU when there is one.")]


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
        rows = {"model": run.metrics["metrics"]}
        if "frequency_baseline" in run.metrics:
            rows["frequency baseline"] = run.metrics["frequency_baseline"]
        console.metrics_table(f"Link prediction on {run.graph.name}", rows, describe(protocol))


@app.command()
def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="A run folder; several are ranked together as a product of experts."),
    ],
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
    weight: Annotated[
        list[float] | None, typer.Option(help="Of an expert, once for each run in their order; all 1 when left out.")
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
            runs,
            data,
            chunk,
            watch,
            weight or None,
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
    console.metrics_table(f"{' x '.join(map(str, runs))} on {result.graph}", rows, describe(result.protocol))


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
    of: Annotated[
        str, typer.Option(help="triplets, or entities: vectors near the entity's own and near its token.")
    ] = "triplets",
    ridge: Annotated[float, typer.Option(help="How strongly an entity's token is held to its own vector.")] = 0.01,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Who is nearest to an entity in the guise that one fact gives it, by composed vector and by token.

    Example: harmonium neighbours runs/demo Switzerland "official language" French
    """
    from harmonium import commands, console

    found = commands.neighbours(run, head, relation, tail, slot, count, typed, of, ridge, plot)
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


@app.command()
def classify(
    run: RunFolder,
    labelled: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder with classification_valid.txt and classification_test.txt (head, relation, tail, 1 or -1) "
            "or, given twice, two such files; false facts are made from the run's own when left out."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A file of triples to label: head, relation, tail.")] = None,
    seed: Annotated[int, typer.Option(help="Of the false facts that are made.")] = 0,
    top: Annotated[int, typer.Option(help="How many relations to list.", min=0)] = 20,
    device: Device = "auto",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Tell true facts from false ones, with a probability: thresholds from validation, judged on test.

    Example: harmonium classify runs/demo --plot reliability.png
    """
    from harmonium import classification, commands, console

    opened = commands.open_run(run)
    triples = classification.read_triples(data, opened.graph) if data else None
    found = commands.classify(opened, labelled, seed, device, plot)
    if triples is not None:
        called, probability = (column.tolist() for column in found.label(opened.model, triples))
        labels = list(zip(opened.graph.spell(triples), called, probability, strict=True))
        if as_json:
            console.print_json([{"triple": fact, "label": label, "probability": p} for fact, label, p in labels])
            return
        rows = [[*fact, "true" if label else "false", p] for fact, label, p in labels]
        caption = f"{found.metrics['accuracy']:.1%} of test facts were labelled rightly"
        console.table(f"{run} on {data}", ["head", "relation", "tail", "label", "probability"], rows, caption)
    elif as_json:
        console.print_json(found.to_json())
    else:
        show_classification(f"{run} on {found.graph}", found, top)


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


@app.command()
def density(
    run: RunFolder,
    labelled: Annotated[
        Path | None,
        typer.Option(help="A file of head, relation, tail, 1 or -1; made from the test split when left out."),
    ] = None,
    count: Annotated[int, typer.Option(help="How many neighbours.", min=1)] = 5,
    typed: Annotated[bool, typer.Option(help="Only entities seen in that slot of the relation.")] = True,
    seed: Annotated[int, typer.Option(help="Of the false triplets that are made.")] = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Whether tokens of true triplets gather with true ones: facts among the nearest, by composed vector and by token.

    Example: harmonium density runs/demo
    """
    from harmonium import commands, console

    with console.bar("looking around") as watch:
        found = commands.density(run, labelled, count, typed, seed, device, watch)
    if as_json:
        console.print_json(found.to_json())
        return
    parts = found.positives, found.negatives
    rows = [
        ["queries", *(f"{part.queries:,}" for part in parts)],
        ["by composed vector", *(f"{part.composed:.3f}" for part in parts)],
        ["by token", *(f"{part.token:.3f}" for part in parts)],
        ["change", *(f"{part.change.mean:+.3f} ± {part.change.standard_error:.3f}" for part in parts)],
        ["t, queries independent", *(f"{part.change.t:+.1f}" for part in parts)],
        ["95 % by triplet", *("{:+.3f} to {:+.3f}".format(*part.by_triplet) for part in parts)],
        ["95 % by relation", *("{:+.3f} to {:+.3f}".format(*part.by_relation) for part in parts)],
    ]
    who = "entities seen in that slot of the relation in any split" if typed else "all entities"
    console.table(
        f"Facts among the {count} nearest on {found.graph}",
        ["", "true triplets", "false triplets"],
        rows,
        f"heads and tails; candidates: {who}; ± standard error;\n"
        "  intervals of the change by drawing whole triplets, or whole relations, again (bootstrap)",
    )


@app.command()
def gain(
    run: RunFolder,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "valid",
    limit: Annotated[int, typer.Option(help="At most so many queries, a seeded sample.", min=2)] = 100_000,
    ties: Annotated[str, typer.Option(help="realistic, optimistic or pessimistic.")] = "realistic",
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    device: Device = "auto",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Whether triplets that gain harmony by optimisation gain rank by it.

    Example: harmonium gain runs/demo --plot gain.png
    """
    from harmonium import commands, console

    with console.bar("ranking") as watch:
        found = commands.gain(run, split, limit, ties, seed, device, plot, watch).to_json()
    if as_json:
        console.print_json(found)
        return
    rows = []
    for name, part in found["candidates"].items():
        for kind, words in (
            ("rank", "rank"),
            ("reciprocal_rank", "1/rank"),
            ("reciprocal_rank_changed", "1/rank, where it changed"),
        ):
            rho = part["spearman"][kind]
            rows.append([name, words, f"{rho['rho']:+.4f}", f"{rho['p']:.2g}", rho["n"]])
    mrr = "; ".join(
        f"{name} MRR {part['mrr_before']:.3f} -> {part['mrr_after']:.3f}, {part['unchanged']:.0%} unchanged"
        for name, part in found["candidates"].items()
    )
    caption = f"from ranking by H(x, x) to ranking by H(mu, x): {mrr}"
    columns = ["candidates", "gain against the change of", "Spearman", "p", "queries"]
    console.table(f"Harmony gain against rank change, {found['graph']} {split}", columns, rows, caption)


@app.command()
def dynamics(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="Name of the head.")],
    relation: Annotated[str, typer.Argument(help="Name of the relation.")],
    tail: Annotated[str, typer.Argument(help="Name of the tail.")],
    steps: Annotated[
        int | None, typer.Option(help="Of the network; until it has all but arrived when left out.", min=1)
    ] = None,
    samples: Annotated[int, typer.Option(help="States drawn from p(h|x).", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """How the network climbs from a triplet's composed vector to its token.

    Example: harmonium dynamics runs/demo Switzerland "official language" French --plot climb.png
    """
    from harmonium import commands, console

    found = commands.dynamics(run, head, relation, tail, steps, samples, seed, plot).to_json()
    if as_json:
        console.print_json(found)
        return
    last = found["steps"]
    shown = sorted({*(round(last * (i / 10) ** 2) for i in range(10)), last})
    rows = [[step, *(found[key][step] for key in ("harmony", "coherence", "distance"))] for step in shown]
    states = found["samples"]
    console.table(
        ", ".join(found["triple"]),
        ["step", "harmony", "core harmony", "distance to the token"],
        [[step, f"{harmony:.4f}", f"{core:.4f}", f"{distance:.2e}"] for step, harmony, core, distance in rows],
        f"harmony of the closed form: {found['optimum']:.4f}; "
        f"mean of {states['count']} samples of p(h|x): {states['mean_harmony']:.4f}",
    )


@app.command()
def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="table1, htpr, controls, neighbourhoods, density, gain or classification.")
    ],
    dataset: Annotated[str, typer.Option(help="FB15K, WN18 or any graph: dataset name, folder or file.")] = "FB15K",
    rows: Annotated[str, typer.Option(help="Only these, by name or pattern: hhole-1,hdistmult-*.")] = "",
    variant: Annotated[
        str | None, typer.Option(help="faithful, calibrated or both; both for tables, calibrated otherwise.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="One run for each: 0,1,2.")] = "0",
    scale: Annotated[str, typer.Option(help="full, or small: the same in minutes on a CPU.")] = "full",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting in every row.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are kept.")] = Path("runs/reproduce"),
    results: Annotated[
        Path | None, typer.Option(help="Where records are kept; results (RUNS/results at small scale) when left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one of the paper's tables or analyses again, beside what was published; what is done is not run again.

    Example: harmonium reproduce table1 --dataset atlas --scale small
    """
    from harmonium import console
    from harmonium.records import TABLES
    from harmonium.reproduce import reproduce as run_experiment

    def say(text: str) -> None:
        console.errors.print(console.Text(text), soft_wrap=True)

    found = run_experiment(
        experiment, dataset, rows, variant, seeds, scale, sets or (), runs, results, say, console.training_bar
    )
    if as_json:
        console.print_json(found)
    else:
        console.table(f"{experiment} on {found[0]['dataset']}", *TABLES[experiment](found))


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
