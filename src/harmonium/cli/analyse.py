"""Commands that show what was learned: neighbours, explain, rules, report, serve."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import harmonium
from harmonium.cli import console, options
from harmonium.cli.commands import command
from harmonium.cli.options import choice, flag, option
from harmonium.cli.review import Judgements, QueueOrder, QueueSize, user_name
from harmonium.errors import HarmoniumError

if TYPE_CHECKING:
    from harmonium.review.queue import Order


@command("Analyse")
def neighbours(
    run: options.RunFolder,
    head: options.Head,
    relation: options.Relation,
    tail: options.Tail,
    slot: Annotated[str, choice(("head", "tail"), "Slot whose entity varies.")] = "head",
    top: options.NeighbourCount = 5,
    typed: options.Typed = True,
    of: Annotated[
        str, choice(("triplets", "entities"), "Nearest triplets, or the entity vectors nearest to its token.")
    ] = "triplets",
    ridge: Annotated[
        float, option("X", "With --of entities: how strongly the token is drawn to the entity's vector.")
    ] = 0.01,
    plot: options.Figure = None,
    output_format: options.Format = "table",
) -> None:
    """List the entities most similar to the head (or tail) of a fact, by composed vector and by token.

    Similar in that fact: Switzerland has other neighbours as a country where
    French is spoken than as one where German is (its guises).

    Example: harmonium neighbours runs/demo Switzerland "official language" French
    """
    if plot and of == "entities":
        raise HarmoniumError("--plot draws neighbourhoods of triplets only; remove it or say --of triplets")
    opened = harmonium.Run.load(run)
    neighbourhood = harmonium.neighbours(
        opened, head, relation, tail, slot=slot, top=top, typed=typed, of=of, ridge=ridge
    )
    if plot:
        from harmonium.analysis.figures import guises_figure
        from harmonium.data.triples import Slot

        triple = opened.graph.triple(head, relation, tail)
        guises_figure(opened.model, opened.graph, [triple], plot, Slot(slot), top, typed)
    console.output(neighbourhood, output_format)


@command("Analyse")
def explain(
    run: options.RunFolder,
    head: options.Head,
    relation: options.Relation,
    tail: options.Tail,
    top: Annotated[int, option("N", "Number of facts of each kind, and of directions.", min=1)] = 5,
    details: Annotated[
        bool, flag("Also show how the score comes about: harmony, directions of W, nearest facts.")
    ] = False,
    same_relation: Annotated[bool, flag("With --details: nearest facts of the same relation only.")] = True,
    plot: options.Figure = None,
    output_format: options.Format = "table",
) -> None:
    """Explain an answer: the evidence for it, and the training facts without which it would not be given.

    Example: harmonium explain runs/demo Switzerland "official language" French
    """
    from harmonium.analysis import figures

    explanation = harmonium.explain(run, head, relation, tail, top=top, details=details, same_relation=same_relation)
    if plot:
        figures.explain_figure(explanation, plot)
    console.output(explanation, output_format)


@command("Analyse")
def rules(
    run: options.RunFolder,
    relation: Annotated[str | None, option("NAME", "Only rules of this relation.")] = None,
    top: Annotated[int, option("N", "Number of rules to list.", min=0)] = 50,
    off: Annotated[list[int] | None, option("N", "Switch off the rule of this number; repeatable.")] = None,
    weight: Annotated[
        list[str] | None, option("KEY=VALUE", "Fix the weight of a rule: NUMBER=WEIGHT; repeatable.")
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "PATH", "File for the list (.tsv, .csv, .jsonl, .parquet); with --off or --weight the run folder to write."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    output_format: options.Format = "table",
) -> None:
    """List the constraints that a run has learned: path rules with weight, how often right, an example; other weights.

    A rule that is switched off, or whose weight is fixed, counts so in all answers
    of the run that is written; probabilities are fitted again when next asked for.

    Example: harmonium rules runs/demo --relation "official language"

    Example: harmonium rules runs/demo --off 12 --weight 7=0.5 --out runs/changed

    Example: harmonium rules runs/demo --off 12 --out runs/demo --overwrite
    """
    changes = _rule_weights(weight or [])
    if off or changes:
        if out is None:
            raise HarmoniumError(
                f"say where the changed run goes: --out RUN, or --out {run} --overwrite to replace the run itself"
            )
        changed = harmonium.rules(run, relation, top=0).change(off or [], changes, out, overwrite)
        console.say(f"{len(off or []) + len(changes):,} rules changed; run folder: {changed.path}")
        return
    if out is not None and out.suffix in (".nt", ".ttl"):
        raise HarmoniumError(f"--out {out}: rules are no facts; the name must end in .tsv, .csv, .jsonl or .parquet")
    learned = harmonium.rules(run, relation, top=top)
    if out is not None:
        from harmonium.answers.send.result_file import write_rows

        console.say(f"{write_rows(out, iter(learned.records()), str(run)):,} rules: {out}")
        return
    console.output(learned, output_format)


def _rule_weights(texts: list[str]) -> dict[int, float]:
    """The values of --weight."""
    weights = {}
    for text in texts:
        number, _, value = text.partition("=")
        try:
            weights[int(number)] = float(value)
        except ValueError as error:
            raise HarmoniumError(f"--weight {text}: not NUMBER=WEIGHT, such as 12=0.5") from error
    return weights


@command("Analyse")
def report(
    run: options.RunFolder,
    out: Annotated[Path | None, option("FILE", "Page to write (.html); default: RUN/report.html.")] = None,
    limit: options.Limit = 4000,
    seed: options.Seed = 0,
    fact: Annotated[
        tuple[str, str, str] | None,
        option("HEAD RELATION TAIL", "Fact whose neighbourhood is drawn; default: chosen for you."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run, to read, to keep or to print.

    Results with their protocol, the most probable missing facts with reasons,
    how far probabilities can be trusted, problems of the data, the model with
    W and without it, training, ranks, what was learned, how to reproduce it.

    Example: harmonium report runs/demo --out report.html

    Example: harmonium report runs/demo --fact Switzerland "official language" French
    """
    with console.bar("writing the report") as progress:
        page = harmonium.report(run, out, limit=limit, seed=seed, fact=fact, progress=progress)
    console.say(f"report: {page}")


@command("Analyse")
def serve(
    runs: Annotated[list[Path], options.argument("RUN...", "Run folders; of several, answers can be compared.")],
    host: Annotated[
        str, option("NAME", "Host name or address to listen on; one that other machines can reach requires --token.")
    ] = "127.0.0.1",
    port: Annotated[int, option("N", "Port; 0: any free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        option("TEXT", "Secret that API requests must carry, 16 characters or more.", envvar="HARMONIUM_TOKEN"),
    ] = None,
    review: Annotated[
        bool, flag("Let reviewers judge predicted facts; otherwise nothing changes.", "--review")
    ] = False,
    reviewer: Annotated[
        list[str] | None,
        option("NAME", "With --review: who judges; prints a link for them alone; repeatable; default: you."),
    ] = None,
    judgements: Judgements = None,
    order: QueueOrder = "use",
    top: QueueSize = 1000,
) -> None:
    """Explore a run in a browser, or by a JSON API: facts, predictions, guises, a map, explanations; review facts.

    Example: harmonium serve runs/demo

    Example: harmonium serve runs/demo runs/plain

    Example: harmonium serve runs/demo --review --reviewer Ana --reviewer Ben
    """
    from harmonium.server.server import ReviewOptions

    if not review and (reviewer or judgements or (order, top) != ("use", 1000)):
        raise HarmoniumError("--reviewer, --judgements, --order and --top are for a review: add --review")
    names = reviewer or ([user_name()] if review else [])
    asked = ReviewOptions(names, judgements, cast("Order", order), top) if review else None
    links = iter(names)
    with ExitStack() as waiting:
        progress = waiting.enter_context(console.bar("preparing"))

        def ready(address: str) -> None:
            waiting.close()
            if review:
                console.say(f"{next(links)}: {address}")
                return
            console.say(f"open {address} (Ctrl-C stops the server; the API is described at /api/v1/openapi.json)")

        harmonium.serve(runs, host=host, port=port, token=token, ready=ready, progress=progress, review=asked)
