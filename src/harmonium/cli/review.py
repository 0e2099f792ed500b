"""The command `review`: judge predicted facts in a terminal, see how precise they are, export the judgements."""

from __future__ import annotations

import getpass
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.options import choice, flag, option
from harmonium.errors import HarmoniumError

if TYPE_CHECKING:
    from harmonium.review.queue import Offer, Order
    from harmonium.review.session import Review
    from harmonium.review.store import FactIds, Verdict

KEYS: dict[str, Verdict] = {"a": "accepted", "r": "rejected", "u": "unsure"}
HELP = "a accept   r reject   u unsure   c comment   z undo   e explain   p precision   q quit"
FACTS_SHOWN = 6  # known facts of an entity

Judgements = Annotated[
    Path | None, option("FILE", "File of judgements (SQLite); default: RUN.review.sqlite, beside the run folder.")
]
QueueOrder = Annotated[
    str,
    choice(
        ("use", "teach"), "Order of the queue: probable and far-reaching facts first, or those that would teach most."
    ),
]
QueueSize = Annotated[int, option("N", "Number of facts in the queue.", min=1)]


@command("Review")
def review(
    run: options.RunFolder,
    judgements: Judgements = None,
    reviewer: Annotated[str | None, option("NAME", "Who judges; default: your user name.")] = None,
    order: QueueOrder = "use",
    top: QueueSize = 1000,
    suspects: Annotated[
        bool, flag("Judge known facts that may be wrong (see `audit`): accept keeps, reject removes.", "--suspects")
    ] = False,
    out: Annotated[
        Path | None,
        option(
            "FILE",
            "Export all judgements: .tsv, .csv, .jsonl or .parquet.",
        ),
    ] = None,
    accepted: Annotated[Path | None, option("FILE", "Write the facts that were accepted, e.g. accepted.tsv.")] = None,
    rejected: Annotated[Path | None, option("FILE", "Write the facts that were rejected, e.g. rejected.tsv.")] = None,
    output_format: options.Format = "table",
) -> None:
    """Judge predicted facts one by one: accept, reject or unsure, with a key each; see how right the probabilities are.

    Judgements are kept in a file beside the run as soon as they are made. A
    fact that was accepted or rejected never comes back; one that somebody was
    unsure of comes back last. Several people can review at the same time, in
    terminals and by `harmonium serve RUN --review`: each gets other facts.

    With --out, --accepted, --rejected or --format other than table, nothing is
    asked, and the judgements are exported. `harmonium calibrate RUN --judgements
    FILE` corrects probabilities by them.

    Example: harmonium review runs/demo --order teach

    Example: harmonium review runs/demo --suspects

    Example: harmonium review runs/demo --out judgements.csv --accepted accepted.tsv --rejected rejected.tsv
    """
    from harmonium.review.judgements import default_path

    opened = harmonium.Run.load(run)
    path = judgements or default_path(opened)
    if out or accepted or rejected or output_format != "table":
        _export(path, str(run), out, accepted, rejected, output_format)
    elif not sys.stdin.isatty():
        _show_state(path)
    else:
        _judge(opened, path, reviewer or user_name(), order, top, suspects)


def _export(
    path: Path, run: str, out: Path | None, accepted: Path | None, rejected: Path | None, output_format: str
) -> None:
    """Write and print judgements; nothing is asked, and the file is only read."""
    from harmonium.review.judgements import check_out, write_facts, write_judgements
    from harmonium.review.precision import ReviewSummary
    from harmonium.review.store import load_judgements

    for file in (out, accepted, rejected):
        if file is not None:
            check_out(file)
    rows = load_judgements(path)
    written = {}
    if out is not None:
        written[out] = f"{write_judgements(out, rows, run):,} judgements"
    for file, verdict in ((accepted, "accepted"), (rejected, "rejected")):
        if file is not None:
            written[file] = f"{write_facts(file, rows, verdict, run):,} {verdict} facts"

    def show(_: object) -> None:
        for file, content in written.items():
            console.say(f"{content}: {file}")

    def contents(_: object) -> dict[str, object]:
        return {"summary": ReviewSummary.of(rows).to_json(), "judgements": [row.to_json() for row in rows]}

    console.output(rows, output_format, show, lambda rows: [row.to_json() for row in rows], contents)


def _show_state(path: Path) -> None:
    from harmonium.review.precision import ReviewSummary
    from harmonium.review.store import load_judgements

    console.show(ReviewSummary.of(load_judgements(path) if path.exists() else []))
    console.say("facts are judged in a terminal; this is none (or `harmonium serve RUN --review` in a browser)", "dim")


def user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:  # a container without users
        raise HarmoniumError("name yourself with --reviewer NAME; this system knows no user name") from error


def _judge(run: harmonium.Run, path: Path, reviewer: str, order: str, top: int, suspects: bool) -> None:
    """Ask for one fact after the other until the reviewer stops or none is left."""
    import typer

    from harmonium.review.session import Review

    with console.bar("searching for facts to judge") as progress:
        review = Review.open(run, path, order=cast("Order", order), top=top, suspects=suspects, progress=progress)
    with review.store as store:
        name = store.add_reviewer(reviewer)
        console.say(
            f"{name}, judging {'known facts' if suspects else 'predictions'} of {run.path}; judgements are kept in {path}",
            "dim",
        )
        console.say(HELP)
        judge_all(review, name, typer.getchar, lambda: str(typer.prompt("comment", default="", show_default=False)))
        console.show(review.summary())
        if pending := len(review.pending()):
            command = shlex.join(["harmonium", "update", str(run.path), "--judgements", str(path), "--out", "RUN2"])
            console.say(f"{pending:,} judgements are not in the model yet: {command}", "dim")


def judge_all(review: Review, reviewer: str, read_key: Callable[[], str], read_comment: Callable[[], str]) -> None:
    """Show one fact after the other and keep its judgement, until the reviewer stops or none is left."""
    first: FactIds | None = None
    try:
        while (offer := review.next(reviewer, first)).shown is not None:
            assert offer.triple is not None, "there is a fact"
            first = None
            console.show(display.offer(offer, review.reason(offer.triple), known_facts(review, offer)))
            outcome = _answer(review, reviewer, offer, read_key, read_comment)
            if outcome == "quit":
                return
            if outcome == "undo":
                undone = review.undo(reviewer)
                first = undone.fact if undone else offer.shown.fact
                text = "nothing to undo" if undone is None else f"undone: {undone.verdict} {undone.text}"
                console.say(f"  {text}", "yellow")
        waiting = f"{offer.waiting:,} are being judged by others" if offer.waiting else "--top N asks for more"
        console.say(f"no fact is left to judge; {waiting}", "bold")
    finally:
        review.store.release(reviewer)


def _answer(
    review: Review, reviewer: str, offer: Offer, read_key: Callable[[], str], read_comment: Callable[[], str]
) -> str:
    """Read keys until the fact is judged, or the reviewer wants something else: 'judged', 'undo' or 'quit'."""
    assert offer.shown is not None, "there is a fact"
    comment = ""
    while True:
        try:
            key = read_key().lower()
        except (EOFError, KeyboardInterrupt):
            return "quit"
        if key in KEYS:
            review.judge(reviewer, offer.shown.fact, KEYS[key], comment)
            console.say(f"  {KEYS[key]}", {"a": "green", "r": "red", "u": "yellow"}[key])
            return "judged"
        if key in ("q", "\x04"):
            return "quit"
        if key == "z":
            return "undo"
        if key == "c":
            comment = read_comment()
        elif key == "e":
            _explain(review, offer)
        elif key == "p":
            console.show(review.summary())
        else:
            console.say(HELP)


def _explain(review: Review, offer: Offer) -> None:
    assert offer.shown is not None, "there is a fact"
    with console.bar("explaining"):
        explanation = harmonium.explain(review.run, *offer.shown.fact)
    console.show(explanation)


def known_facts(review: Review, offer: Offer) -> list[str]:
    """A line for each entity of a fact: the first facts that are known of it."""
    assert offer.triple is not None, "there is a fact"
    graph, facts, lines = review.run.graph, review.opened.evidence.facts, []
    for entity in dict.fromkeys((offer.triple[0], offer.triple[2])):
        of_entity = facts[(facts.head == entity) | (facts.tail == entity)]
        texts = [" ".join(names) for names in graph.names_of(of_entity[:FACTS_SHOWN])]
        more = f"; {len(of_entity) - FACTS_SHOWN:,} more" if len(of_entity) > FACTS_SHOWN else ""
        lines.append(f"known of {graph.entities.name(entity)}: {'; '.join(texts) or 'nothing'}{more}")
    return lines
