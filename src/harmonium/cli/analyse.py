"""Commands that show what was learned: similar, explain, rules, report, serve."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import harmonium
from harmonium.cli import console, options
from harmonium.cli.commands import command
from harmonium.cli.options import argument, flag, option
from harmonium.cli.review import Judgements, QueueOrder, QueueSize, user_name
from harmonium.errors import HarmoniumError

if TYPE_CHECKING:
    from harmonium.data.graph import Graph
    from harmonium.review.queue import Order


@command("Analyse")
def similar(
    run: options.RunFolder,
    entity: Annotated[str, argument("NAME", "Entity whose like is sought.")],
    role: Annotated[
        str | None, option("RELATION=NAME", "As the head of the fact with this relation and tail.", "--as")
    ] = None,
    role_of_tail: Annotated[
        str | None, option("RELATION=NAME", "As the tail of the fact with this relation and head.", "--as-tail")
    ] = None,
    top: Annotated[int, option("N", "Number of entities.", min=1)] = 10,
    faithfulness: Annotated[
        float, option("X", "lambda of tokens: inf counts likeness alone, a small one who plays the role.", "--lambda")
    ] = 0.5,
    output_format: options.Format = "table",
) -> None:
    """List the entities most like one, in general or as it is in one fact, and what they share.

    As a country where French is spoken Switzerland has other neighbours than
    as one where German is: these are its guises.

    Example: harmonium similar runs/demo Switzerland --as "official language=French"
    """
    opened = harmonium.Run.load(run)
    if role is not None and role_of_tail is not None:
        raise HarmoniumError("give --as or --as-tail, not both: an entity is the head or the tail of the fact")
    fact: dict[str, str] = {}
    if role is not None:
        fact = dict(zip(("relation", "tail"), split_role(role, opened.graph), strict=True))
    if role_of_tail is not None:
        fact = dict(zip(("relation", "head"), split_role(role_of_tail, opened.graph), strict=True))
    result = harmonium.similar(opened, entity, **fact, top=top, faithfulness=faithfulness)
    console.output(result, output_format)


def split_role(text: str, graph: "Graph") -> tuple[str, str]:
    """The relation and the other end in `RELATION=ENTITY`; names may contain the sign too."""
    parts = text.split("=")
    splits = [("=".join(parts[:n]), "=".join(parts[n:])) for n in range(1, len(parts))]
    if not splits:
        raise HarmoniumError(f"a role is RELATION=ENTITY, such as 'official language=French', not '{text}'")
    names = {*graph.relations.ids, *graph.relations.names}
    return next((split for split in splits if split[0] in names), splits[0])


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
