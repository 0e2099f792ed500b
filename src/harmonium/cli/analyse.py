"""Commands that show what was learned: neighbours, explain, report, serve."""

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
    count: options.Count = 5,
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
    neighbourhood = harmonium.neighbours(opened, head, relation, tail, slot, count, typed, of, ridge)
    if plot:
        from harmonium.analysis.figures import guises_figure
        from harmonium.data.triples import Slot

        triple = opened.graph.triple(head, relation, tail)
        guises_figure(opened.model, opened.graph, [triple], plot, Slot(slot), count, typed)
    console.output(neighbourhood, output_format)


@command("Analyse")
def explain(
    run: options.RunFolder,
    head: options.Head,
    relation: options.Relation,
    tail: options.Tail,
    count: Annotated[int, option("N", "Number of facts of each kind, and of directions.", min=1)] = 5,
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

    explanation = harmonium.explain(run, head, relation, tail, count, details, same_relation)
    if plot:
        figures.explain_figure(explanation, plot)
    console.output(explanation, output_format)


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
        page = harmonium.report(run, out, limit, seed, fact, progress)
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

        harmonium.serve(runs, host, port, token, ready, progress, asked)
