"""The command line: each command is the public function of the same name, and prints what it returns."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from harmonium import __version__, launch, shown
from harmonium.errors import HarmoniumError, Stopped, Together

app = typer.Typer(
    no_args_is_help=True,
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
Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write to a file: .tsv, .csv, .jsonl, .parquet, .nt or .ttl.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="WHERE", help="Also log to tensorboard:DIR, wandb:PROJECT, mlflow:URI or csv:FILE."),
]
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
    """Train on the embedded atlas of the world in about half a minute, and look at what was learned.

    Example: harmonium demo --out runs/demo
    """
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
    init: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Start from vectors by name, .npz or .parquet (see export).")
    ] = None,
    track: Track = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="List every setting with its default, and stop.")
    ] = False,
) -> None:
    """Train a model on a graph and write a run folder.

    model.faithfulness is lambda: how strongly a fact's token is held to the
    vector composed of its head, relation and tail. A small one lets the network
    reshape it by what it has learned, inf not at all.

    Example: harmonium train --data atlas --set model.composition=distmult --set train.epochs=30 --out runs/mine
    """
    from harmonium import commands, console
    from harmonium.config import Config, describe

    if settings:
        console.table("Settings", ["key", "default", "meaning"], describe())
        return
    read = Config.read(config, [*(sets or []), *([f"train.init={json.dumps(str(init))}"] if init else [])])
    out = out or Path("runs") / Path(data or read.data).name.split(".")[0]
    with console.training_bar() as watch:
        run = commands.train(read, data, out, overwrite=overwrite, watch=watch, track=track or [])
    shown.show_trained(run)


@app.command()
def plan(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; defaults otherwise.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Dataset name, folder or file of triples; wins over CONFIG.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. model.entity_dim=256."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes under torchrun, each on a machine like this.")] = 1,
    as_json: AsJson = False,
) -> None:
    """How long a training would take here, and how much memory; a few of its steps are made to find out.

    Settings are those of `train`. Stopping early can only make it shorter. What cannot be tried here (several processes,
    or tables that do not fit) is predicted by a cost model instead, to a factor of about two.

    Example: harmonium plan --data atlas --set model.entity_dim=128 --set train.epochs=30
    """
    from harmonium import console
    from harmonium.config import Config
    from harmonium.planning import plan as make_plan

    with console.bar("trying a few steps"):
        found = make_plan(Config.read(config, sets or []), data, processes=processes)
    if as_json:
        console.print_json(found.to_json())
        return
    work = f"{found.epochs:,} epochs of {found.steps:,} steps on {found.device}"
    work += f", in each of {found.processes} processes" if found.processes > 1 else ""
    console.say(f"{found.graph}: {found.parameters:,} parameters, {work}", "bold")
    rows = [[name, shown.in_bytes(size)] for name, size in [*found.memory.items(), ("together", found.peak_memory)]]
    console.table("Memory", ["for", "about"], rows)
    if not found.fits:
        console.say(
            "does not fit: lower model.entity_dim, choose model.entity_dtype=bfloat16 and train.optimizer=row-adagrad, or "
            "take a machine with more memory", "red",
        )  # fmt: skip
        if found.enough:
            each, hours = shown.in_bytes(found.enough["memory"]), shown.in_words(3600 * found.enough["hours"])
            many = f"{found.enough['processes']} such machines"
            console.say(f"predicted: {many} under torchrun, {each} in each, would take about {hours}")
        return
    rows = [[name, shown.in_words(some)] for name, some in [*found.seconds.items(), ("together", found.total_seconds)]]
    about = f"a step {shown.in_words(found.step_seconds)}, an epoch {shown.in_words(found.steps * found.step_seconds)}"
    more = "predicted, not tried" if found.processes > 1 else "validation may stop training before its last epoch"
    console.table("Time", ["for", "about"], rows, f"{about}; {more}")


@app.command()
def resume(
    run: RunFolder,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting on the way, e.g. train.learning_rate=0.001."),
    ] = None,
    track: Track = None,
) -> None:
    """Go on with a training that was stopped or killed, from its last checkpoint.

    Example: harmonium resume runs/mine
    """
    from harmonium import commands, console
    from harmonium.folder import unfinished

    if not unfinished(run) and (run / "run.json").is_file() and not sets:
        console.say(f"{run} is finished; there is nothing to go on with")
    with console.training_bar() as watch:
        found = commands.resume(run, sets or [], watch, track or [])
    shown.show_trained(found)


@app.command()
def tune(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings to start from; defaults otherwise.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Dataset name, folder or file of triples; wins over CONFIG.")] = None,
    trials: Annotated[int, typer.Option(help="How many in all, those in --storage counted.", min=1)] = 20,
    storage: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keeps the study: the same command again goes on with it.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="What to search, instead of the usual settings.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting that stays fixed.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE.toml", help="Where the best settings go.")] = Path("best.toml"),
    as_json: AsJson = False,
) -> None:
    """Search for good settings: learning rate, sizes, faithfulness, ...; trials that do badly are stopped early.

    A search space of your own is TOML like a CONFIG, with lists of choices or ranges as values:
    train.learning_rate = {low = 0.001, high = 0.1, log = true}

    Example: harmonium tune --data atlas --trials 20 --storage atlas.study --set train.epochs=30

    Then: harmonium train best.toml --out runs/best
    """
    from harmonium import console
    from harmonium.tuning import tune as search

    with console.bar("tuning, trials", trials) as watch:
        found = search(config, data, trials, storage, space, sets or [], out, watch)
    if as_json:
        console.print_json(found.to_json())
        return
    short = lambda v: f"{v:.3g}" if isinstance(v, float) else v  # noqa: E731
    ended = sorted((t for t in found.trials if t["state"] == "complete"), key=lambda t: -t["value"])
    rows = [
        [t["number"], t["value"], ", ".join(f"{k.split('.')[-1]} {short(v)}" for k, v in t["settings"].items())]
        for t in ended[:10]
    ]
    failed = sum("error" in trial for trial in found.trials)
    caption = f"{len(found.trials) - len(ended) - failed} more were stopped early, {failed} failed"
    console.table(
        f"The best of {len(found.trials)} trials", ["trial", f"valid {found.metric}", "settings"], rows, caption
    )
    console.say(f"best settings: {out}; `harmonium train {out}` uses them")


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
    sample: Annotated[
        int | None,
        typer.Option(metavar="FACTS", help="Rank so many, drawn at random: an estimate, with intervals.", min=2),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Also show metrics by side, relation or category.")] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Queries scored at once; changes memory, not results.", min=1)
    ] = None,
    weight: Annotated[
        list[float] | None, typer.Option(help="Of an expert, once for each run in their order; all 1 when left out.")
    ] = None,
    gaps: Annotated[
        int | None,
        typer.Option(metavar="FACTS", help="Score so many in float64 too: how many ranks hang on rounding?", min=1),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank a split exactly and print metrics with the protocol that made them.

    Example: harmonium evaluate runs/demo --by relation. On a large graph --sample 2000 gives an estimate.
    """
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
            gaps,
            split=split,
            candidates=candidates,
            ties=ties,
            side=side,
            filtered=filtered,
            unseen=unseen,
            sample=sample,
        )
    if as_json:
        console.print_json(result.to_json())
        return
    estimate = result.estimate
    rows = {f"{'' if estimate else 'all '}{len(result.ranks):,} queries": result.metrics}
    rows |= shown.interval_rows(estimate.intervals) if estimate else {}
    if by == "side":
        rows |= result.by_side()
    elif by == "relation":
        rows |= {f"{name} ({int(m['queries'])})": m for name, m in result.by_relation().items()}
    elif by == "category":
        parts = result.by_category().items()
        rows |= {f"{kind} {side} ({int(m['queries'])})": m for kind, sides in parts for side, m in sides.items()}
    protocol = describe(result.protocol, estimate and estimate.of)
    console.metrics_table(f"{' x '.join(map(str, runs))} on {result.graph}", rows, protocol)
    if (found := result.gaps) is not None:
        low, high = found.metrics["mrr"]
        console.say(
            f"rounding: in {found.uncertain:,} of {found.queries:,} queries candidates are too near to the truth to tell "
            f"apart (at most {found.most:,} in one); the mrr of all these is {low:.6f} to {high:.6f}, however they fall"
        )


@app.command()
def predict(
    run: RunFolder,
    head: Annotated[str | None, typer.Option(help="Name of the head.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Many queries, .tsv, .csv or .jsonl: head, relation, tail, one of them empty or '?'."),
    ] = None,
    out: Out = None,
    top: Annotated[int, typer.Option(help="How many answers to each.", min=1)] = 10,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Leave out answers that are already known facts.")
    ] = False,
    typed: Annotated[bool, typer.Option("--typed", help="Only entities seen in that slot of the relation.")] = False,
    among: Annotated[Path | None, typer.Option(help="Only the answers in this file, a name on each line.")] = None,
    probability: Annotated[bool, typer.Option(help="Say how probable answers are; fitted on first use.")] = True,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> None:
    """Answer a query with one of head, relation and tail left out, by name; or a file of them.

    The probability counts every fact that is not in the graph as false; `harmonium calibrate RUN` shows how right it is.

    Example: harmonium predict runs/demo --head Switzerland --relation "official language"

    Example: harmonium predict runs/demo --queries questions.tsv --out answers.parquet --new-only --typed
    """
    from harmonium import commands, console, prediction

    opened = commands.open_run(run)
    if (queries is None) != (out is None) or (queries and (head or relation or tail)):
        raise HarmoniumError("give --queries FILE and --out FILE, or else two of --head, --relation and --tail")
    if queries is not None:
        _calibrated(opened, probability)
        with console.bar("answering") as watch:
            count = commands.predict_file(opened, queries, out, top, new_only, typed, among, probability, watch)
        console.say(f"{count:,} answers: {out}")
        return
    query = prediction.ask(opened.graph, head, relation, tail)
    _calibrated(opened, probability)
    answers = commands.predict(opened, head, relation, tail, top, new_only, typed, among, probability)
    if format is Format.JSON:
        console.print_json({"query": query.text, "answers": [answer.to_json() for answer in answers]})
    elif format is Format.CSV:
        import csv

        columns = ["rank", "id", "name", "score", "known", "probability"]
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(answer.to_json() for answer in answers)
    else:
        shown.show_answers(query.text, answers)


def _calibrated(run: Any, wanted: bool = True) -> None:
    """Fit the probabilities of a run, with a bar, where that was not done before."""
    from harmonium import commands, console

    if wanted:
        with console.bar("fitting probabilities, once") as watch:
            commands.calibrate(run, watch=watch)


@app.command()
def score(
    run: RunFolder,
    facts: Annotated[Path, typer.Argument(help="Facts, .tsv, .csv or .jsonl: head, relation, tail.")],
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Score given facts: how probable each is, where it ranks, and whether it is known.

    Rank and probability are those of the tail as the answer to (head, relation, ?), and of the head likewise.

    Example: harmonium score runs/demo facts.tsv --out scored.tsv
    """
    from harmonium import commands, console

    opened = commands.open_run(run)
    _calibrated(opened)
    with console.bar("scoring") as watch:
        found = commands.score(opened, facts, out, watch)
    if isinstance(found, int):
        console.say(f"{found:,} facts: {out}")
    elif as_json:
        console.print_json([fact.to_json() for fact in found])
    else:
        rows = [
            [f.text, f.score, shown.percent(f.probability), f"{f.rank:g}", shown.percent(f.head_probability),
             f"{f.head_rank:g}", f"known ({f.known})" if f.known else "new"]
            for f in found
        ]  # fmt: skip
        columns = ["fact", "score", "as tail", "rank", "as head", "rank", ""]
        console.table(f"{run} on {facts}", columns, rows, "ranks among answers that are not known facts")


@app.command()
def complete(
    graph_or_run: Annotated[
        str,
        typer.Argument(metavar="GRAPH_OR_RUN", help="A run folder; or a graph, which is trained on first (runs/NAME)."),
    ],
    relation: Annotated[list[str] | None, typer.Option(help="Name of a relation; may be given again.")] = None,
    all_relations: Annotated[bool, typer.Option("--all-relations", help="Facts of every relation.")] = False,
    top: Annotated[int, typer.Option(help="How many facts.", min=1)] = 1000,
    typed: Annotated[bool, typer.Option(help="Only heads and tails that the relation was seen with.")] = True,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """The most probable facts that a graph lacks, of one relation or of all.

    The probability counts every fact that is not in the graph as false; `harmonium calibrate RUN` shows how right it is.

    Example: harmonium complete runs/demo --relation borders --top 20

    Example: harmonium complete runs/demo --all-relations --out missing.tsv
    """
    from harmonium import commands, console

    if bool(relation) == all_relations:
        raise HarmoniumError("give --relation NAME (as often as you like), or else --all-relations")
    if (Path(graph_or_run) / "run.json").is_file():
        opened = commands.open_run(graph_or_run)
    else:
        place = Path("runs") / Path(graph_or_run).name.split(".")[0]
        if place.exists():
            raise HarmoniumError(f"{place} is there already: complete that, or `harmonium train` into another folder")
        with console.training_bar() as training:
            opened = commands.train(data=graph_or_run, out=place, watch=training)
    _calibrated(opened)
    with console.bar("completing") as watch:
        found = commands.complete(opened, relation or None, top, typed, out, watch)
    if as_json:
        console.print_json(found)
    elif out is not None:
        console.say(f"{len(found):,} facts: {out}")
    else:
        rows = [[row["rank"], row["text"], row["score"], shown.percent(row["probability"])] for row in found]
        caption = shown.unsure([row["probability"] for row in found])
        console.table(f"Missing from {opened.graph.name}", ["rank", "fact", "score", "probability"], rows, caption)


@app.command()
def calibrate(run: RunFolder, plot: Plot = None, as_json: AsJson = False) -> None:
    """How scores become probabilities, fitted on validation facts, and how often they were right on test facts.

    Example: harmonium calibrate runs/demo --plot reliability.png
    """
    from harmonium import commands, console

    opened = commands.open_run(run)
    _calibrated(opened)
    found = commands.calibrate(opened, plot)
    if as_json:
        console.print_json(found.to_json())
        return
    if not found.fits:
        console.say(f"'{found.graph}' has too few validation facts for probabilities", "yellow")
    for slot, fit in found.fits.items():
        rows = [
            [f"{b['from']:.0%} to {b['to']:.0%}", b["facts"], shown.percent(b["probability"]), shown.percent(b["true"])]
            for b in fit.reliability
            if b["facts"]
        ]
        formula = f"sigmoid({fit.margin:.3g} margin {fit.known:+.3g} log(1 + known) {fit.intercept:+.3g})"
        caption = (
            f"{formula}; {fit.questions:,} questions of {fit.split}, {fit.true:,} true answers;\n"
            f"  error {fit.calibration_error:.3f} above 10 %, log loss {fit.log_loss:.4f} ({fit.base_log_loss:.4f} without)"
        )
        columns = ["probability given", "answers", "on average", "true"]
        console.table(f"The {slot} asked for, {found.graph}", columns, rows, caption)


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
        shown.show_neighbourhood(found)


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
        shown.show_classification(f"{run} on {found.graph}", found, top)


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
def explain(
    run: RunFolder,
    head: Annotated[str, typer.Argument(help="Name of the head.")],
    relation: Annotated[str, typer.Argument(help="Name of the relation.")],
    tail: Annotated[str, typer.Argument(help="Name of the tail.")],
    count: Annotated[int, typer.Option(help="How many directions, and facts of each kind.", min=1)] = 5,
    same_relation: Annotated[bool, typer.Option(help="Nearest facts of the same relation only, or of any.")] = True,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Why a fact scores as it does: harmony in its parts, what pushed it, and the training facts behind it.

    Example: harmonium explain runs/demo Switzerland "official language" French
    """
    from harmonium import commands, console

    found = commands.explain(run, head, relation, tail, count, same_relation, plot)
    if as_json:
        console.print_json(found.to_json())
    else:
        shown.show_explanation(found)


@app.command()
def add(
    run: RunFolder,
    facts: Annotated[Path, typer.Argument(metavar="FACTS", help="A file of facts about the new entities.")],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    overwrite: Annotated[bool, typer.Option(help="Replace a run folder that is already there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add entities never seen, from a few facts, without training again; every other vector stays as it is.

    Example: harmonium add runs/demo facts.tsv --out runs/more
    """
    from harmonium import commands, console

    with console.bar("solving") as watch:
        wider, added = commands.add(run, facts, out, overwrite, watch)
    if as_json:
        found = {"path": str(wider.path), "entities": added.names, "facts": len(added.facts), "notes": added.notes}
        console.print_json(found | {key: wider.metrics.get(key) for key in ("metrics", "estimate")})
        return
    some = ", ".join(added.names[:10]) + (", ..." if len(added.names) > 10 else "")
    console.say(f"{len(added.names):,} new entities from {len(added.facts):,} facts: {some}", "bold")
    for note in added.notes:
        console.say(f"note: {note}", "yellow")
    shown.show_run(wider)
    console.say(f"run folder: {wider.path}")


@app.command()
def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page to write; RUN/report.html when left out.")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="At most so many queries for ranks and gain, a seeded sample.", min=2)
    ] = 4000,
    seed: Annotated[int, typer.Option(help="Of the sample, and of the false facts that are made.")] = 0,
    fact: Annotated[
        tuple[str, str, str] | None,
        typer.Option(metavar="HEAD RELATION TAIL", help="Whose neighbourhood to draw; found when left out."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run: metrics, curves, ranks, what was learned, how to make it again.

    Example: harmonium report runs/demo --out report.html

    Example: harmonium report runs/demo --fact Switzerland "official language" French
    """
    from harmonium import console
    from harmonium.html_report import report as write_report

    with console.bar("writing the report") as watch:
        found = write_report(run, out, limit, seed, fact, watch)
    console.say(f"report: {found}")


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
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="Dataset name, folder, file or sparql:URL.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file (its ending says the format) or a folder.")],
    to: Annotated[
        str | None,
        typer.Option(help="Of a folder: tsv (default), csv, parquet, nt, ttl, nq, openke or libkge."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Head, relation and tail of a table by name or number: from,kind,to or 1,3,2.")
    ] = None,
    separator: Annotated[str | None, typer.Option(help="Of separated text: one character, tab or space.")] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether line 1 is a header; when left out, if it names head, relation and tail.",
        ),
    ] = None,
    quotes: Annotated[
        bool | None,
        typer.Option("--quotes/--no-quotes", help='Whether " quotes cells; when left out, unless tabs separate them.'),
    ] = None,
    literals: Annotated[str, typer.Option(help="RDF values: skip, or keep them as entities.")] = "skip",
    language: Annotated[str, typer.Option(help="Of RDF labels, where there are several.")] = "en",
    query: Annotated[
        str | None, typer.Option(help="For sparql:URL: a SELECT of ?head ?relation ?tail, best with ORDER BY.")
    ] = None,
    valid: Annotated[float, typer.Option(help="Part for valid, where IN brings no splits.")] = 0.0,
    test: Annotated[float, typer.Option(help="Part for test, where IN brings no splits.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    overwrite: Annotated[bool, typer.Option(help="Replace what is already there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a graph in another format: TSV, CSV, Parquet, RDF, OpenKE, LibKGE or .graph; .gz, .xz and .zst too.

    Example: harmonium convert dump.nt.gz facts --valid 0.05 --test 0.05

    Example: harmonium convert messy.csv facts.parquet --columns person,knows,friend --separator ";"
    """
    from harmonium import commands, console

    options = {"columns": columns, "separator": separator, "header": header, "quotes": quotes, "query": query}
    options |= {"literals": literals, "language": language}
    text = Path(source).suffix in (".tsv", ".txt") and Path(source).is_file()
    with console.bar("reading and writing, MB", Path(source).stat().st_size // 10**6 if text else None) as move:
        options["watch"] = lambda count: move(count / 1e6)
        graph = commands.convert(source, out, to, valid, test, seed, overwrite, **options)
    if as_json:
        counts = {split: len(getattr(graph, split)) for split in ("train", "valid", "test")}
        sizes = {"entities": graph.n_entities, "relations": graph.n_relations, "triples": counts}
        console.print_json({"name": graph.name, "out": str(out), **sizes, "notes": list(graph.notes)})
        return
    console.say(repr(graph), "bold")
    for note in graph.notes:
        console.say(f"note: {note}", "yellow")
    console.say(f"written: {out}")


@app.command()
def export(
    run: RunFolder,
    out: Annotated[Path, typer.Argument(help="A file in .npz, .parquet or .faiss; a folder for --to pykeen.")],
    to: Annotated[str | None, typer.Option(help="npz, parquet, faiss or pykeen; the ending of OUT otherwise.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier export.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the vectors of a run for other tools, or a plain model for PyKEEN, where it has the same scores.

    Example: harmonium export runs/demo vectors.parquet

    Example: harmonium export runs/distmult for-pykeen --to pykeen
    """
    from harmonium import console
    from harmonium.export import export as write

    with console.bar("exporting"):
        written = write(run, out, to, overwrite)
    if as_json:
        console.print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        console.say(f"written: {path}")


@app.command()
def info(
    graph_or_run: Annotated[
        str, typer.Argument(metavar="GRAPH_OR_RUN", help="Dataset name, folder, file or run folder.")
    ],
    top: Annotated[int, typer.Option(help="How many relations to list.", min=0)] = 20,
    as_json: AsJson = False,
) -> None:
    """What is in a graph or a run: counts, splits, relations with an example.

    Example: harmonium info atlas
    """
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
        shown.show_run(commands.open_run(graph_or_run))


@app.command()
def doctor(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="Dataset name, folder or file of triples.")],
    clean: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write a copy without what leaks: a new folder or file.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many related relations to list.", min=0)] = 10,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of tables.")] = False,
    as_json: AsJson = False,
) -> None:
    """What is wrong with a graph: repeated facts, leaks into test, redundant relations, odd names; with a verdict.

    Example: harmonium doctor atlas
    """
    from harmonium import console
    from harmonium.doctor import doctor as examine

    with console.bar("ranking by rules") as watch:
        found = examine(graph, clean, watch)
    if as_json:
        console.print_json(found.to_json())
    elif markdown:
        print(found.to_markdown(top), end="")
    else:
        shown.show_diagnosis(found, top)


@app.command()
def serve(
    run: RunFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others can reach needs --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 is any free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="HARMONIUM_TOKEN", help="What the API asks for; 16 characters or more.")
    ] = None,
) -> None:
    """Open a page, and a JSON API, to look around in a run: facts, predictions, guises, a map, reasons.

    Example: harmonium serve runs/demo
    """
    from contextlib import ExitStack

    from harmonium import console
    from harmonium.serve import serve as run_server

    with ExitStack() as waiting:
        watch = waiting.enter_context(console.bar("getting ready"))

        def ready(address: str) -> None:
            waiting.close()
            console.say(f"open {address} (Ctrl-C stops it; the API is described at /api/v1/openapi.json)")

        run_server(run, host, port, token, ready, watch)


def main() -> None:
    """Run a command; a mistake in what was given is one message and exit code 2.

    Of several processes under torchrun the first one speaks; the others only of errors that are theirs alone.
    """
    if rank := launch.rank():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        app(prog_name="harmonium")
    except Together:
        sys.exit(2)
    except HarmoniumError as error:
        from harmonium import console
        from harmonium.suspicion import one_message

        who = f"error in process {rank}" if rank else "error"
        console.errors.print(console.Text(one_message(f"{who}: {error}"), style="red"), soft_wrap=True)
        sys.exit(2)
    except Stopped as stop:
        print(stop, file=sys.stderr)
        sys.exit(stop.code)
    except KeyboardInterrupt:
        sys.exit(130)
