"""The part of the API with which reviewers judge facts and update the run by their judgements.

The guard has authenticated the reviewer; GET never changes anything.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.review.pending import pending_facts
from harmonium.review.precision import ReviewSummary
from harmonium.review.queue import Offer
from harmonium.review.session import Review
from harmonium.review.store import LONGEST_COMMENT, FactIds, Judgement, Verdict
from harmonium.server.explorer import Explorer
from harmonium.server.results import Prediction, Problem
from harmonium.server.run_update import RunUpdate, UpdateState

RECENT_JUDGEMENTS = 20  # listed per reviewer
REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "A fact that cannot be judged, or nothing to undo, update or open."},
    401: {"model": Problem, "description": "No token of a reviewer was given."},
    403: {"model": Problem, "description": "The request came from a page of another site."},
    413: {"model": Problem, "description": "The body is too long."},
    415: {"model": Problem, "description": "The body is not JSON."},
    422: {"model": Problem, "description": "A part of the body is missing or out of range."},
    503: {"model": Problem, "description": "No answer in time; ask later."},
}
router = APIRouter(prefix="/api/v1/review", responses=REFUSED)
Identifier = Annotated[str, Field(min_length=1, max_length=10_000)]


class FactBody(BaseModel):
    """A fact by the identifiers of its parts."""

    model_config = ConfigDict(extra="forbid")
    head: Identifier
    relation: Identifier
    tail: Identifier

    @property
    def ids(self) -> FactIds:
        return self.head, self.relation, self.tail


class NextBody(BaseModel):
    """The fact to offer: the next of the queue, or `first` this one if it is still open."""

    model_config = ConfigDict(extra="forbid")
    first: FactBody | None = None


class JudgementBody(FactBody):
    verdict: Literal["accepted", "rejected", "unsure"]
    comment: Annotated[str, Field(max_length=2 * LONGEST_COMMENT)] = ""


class ChangeBody(FactBody):
    """A fact that a person adds to the graph, or removes from it, by identifiers or labels."""

    change: Literal["add", "remove"]
    allow_new: bool = False  # whether a fact to add may have new entities and relations
    comment: Annotated[str, Field(max_length=2 * LONGEST_COMMENT)] = ""


class EmptyBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class OfferedFact:
    """A fact to judge; None if there is none."""

    fact: Prediction | None
    rank: int | None
    known_facts: int  # number of known facts of its entities
    earlier: list[Judgement]  # earlier judgements of it, all unsure
    left: int
    waiting: int  # number of facts that others are judging


@dataclass(frozen=True)
class ReviewState:
    """The review as one reviewer sees it."""

    reviewer: str
    run: str  # the name of its folder
    order: str
    summary: dict[str, Any]  # counts, precision against stated probability, disagreements
    recent: list[Judgement]  # by this reviewer, in reverse chronological order
    to_add: int  # judged facts that an update would add to the graph,
    to_remove: int  # remove from it,
    to_record: int  # or record as false
    update: UpdateState


@dataclass(frozen=True)
class ReviewDesk:
    """The review of a run. All writes go through one thread, as SQLite has a single writer."""

    review: Review
    explorer: Explorer
    threads: CapacityLimiter
    updates: RunUpdate

    def offer(self, reviewer: str, first: FactIds | None) -> OfferedFact:
        offer = self.review.next(reviewer, first)
        counts = offer.known_facts, offer.earlier, offer.left, offer.waiting
        if offer.shown is None or offer.triple is None:
            return OfferedFact(None, None, *counts)
        return OfferedFact(self._prediction(offer), offer.shown.rank, *counts)

    def _prediction(self, offer: Offer) -> Prediction:
        """The offered fact as a prediction of the explorer, with the probability of the queue."""
        assert offer.shown is not None and offer.triple is not None, "there is a fact"
        names = self.explorer.names.of(offer.triple)
        score = float(self.review.queue.facts.scores[(offer.shown.rank or 1) - 1])
        reason = self.review.reason(offer.triple)
        return Prediction(*names, None, Slot.TAIL, score, offer.shown.probability, reason)

    def state(self, reviewer: str) -> ReviewState:
        judgements = self.review.store.judgements()
        pending = pending_facts(judgements, self.review.run.graph)
        recent = [judgement for judgement in judgements if judgement.reviewer == reviewer][
            : -RECENT_JUDGEMENTS - 1 : -1
        ]
        summary = ReviewSummary.of(judgements).to_json()
        counts = len(pending.add), len(pending.remove), len(pending.record)
        name, order = self.explorer.name, self.review.queue.order
        return ReviewState(reviewer, name, order, summary, recent, *counts, self.updates.state)

    def judge(self, reviewer: str, body: JudgementBody) -> Judgement:
        return self.review.judge(reviewer, body.ids, body.verdict, body.comment)

    def change(self, reviewer: str, body: ChangeBody) -> Judgement:
        verdict: Verdict = "accepted" if body.change == "add" else "rejected"
        return self.review.change(reviewer, body.ids, verdict, body.comment, body.allow_new)

    def update(self, reviewer: str) -> UpdateState:
        return self.updates.start(self.explorer.run, self.review, reviewer)


async def _desk(request: Request) -> ReviewDesk:
    return cast(ReviewDesk, request.app.state.review)


async def _reviewer(request: Request) -> str:
    return cast(str, request.state.reviewer)


Desk = Annotated[ReviewDesk, Depends(_desk)]
Reviewer = Annotated[str, Depends(_reviewer)]


@router.get("/state")
async def state(desk: Desk, reviewer: Reviewer) -> ReviewState:
    """Counts, precision compared with stated probability, disagreements, and the last judgements of the reviewer."""
    return await run_sync(desk.state, reviewer, limiter=desk.threads)


@router.get("/judgements")
async def judgements(desk: Desk, reviewer: Reviewer) -> list[Judgement]:
    """All judgements in force, with their provenance."""
    return await run_sync(desk.review.store.judgements, limiter=desk.threads)


@router.post("/next")
async def next_fact(body: NextBody, desk: Desk, reviewer: Reviewer) -> OfferedFact:
    """The next fact to judge, which no other reviewer gets meanwhile."""
    return await run_sync(desk.offer, reviewer, None if body.first is None else body.first.ids, limiter=desk.threads)


@router.post("/judge")
async def judge(body: JudgementBody, desk: Desk, reviewer: Reviewer) -> Judgement:
    """Accept a fact, reject it, or mark it as unsure. The judgement is on disk before the response is sent."""
    return await run_sync(desk.judge, reviewer, body, limiter=desk.threads)


@router.post("/undo")
async def undo(body: EmptyBody, desk: Desk, reviewer: Reviewer) -> Judgement:
    """Take back the reviewer's last judgement."""
    undone = await run_sync(desk.review.undo, reviewer, limiter=desk.threads)
    if undone is None:
        raise HarmoniumError("nothing to undo: you have not judged any fact")
    return undone


@router.post("/fact")
async def change_fact(body: ChangeBody, desk: Desk, reviewer: Reviewer) -> Judgement:
    """Add or remove a fact by hand: a judgement like others, applied by the next update."""
    return await run_sync(desk.change, reviewer, body, limiter=desk.threads)


@router.get("/update")
async def update_state(desk: Desk, reviewer: Reviewer) -> UpdateState:
    """Progress of the last requested update."""
    return desk.updates.state


@router.post("/update")
async def update(body: EmptyBody, desk: Desk, reviewer: Reviewer) -> UpdateState:
    """Update the run with all judgements on which reviewers agree, into a new folder, unless an update is running."""
    return await run_sync(desk.update, reviewer, limiter=desk.threads)


@router.post("/open")
async def open_updated(body: EmptyBody, request: Request, desk: Desk, reviewer: Reviewer) -> ReviewState:
    """Show and review the updated run from now on, to everyone; the old one stays in its folder."""
    updated = desk.updates.take()
    new_desk = replace(desk, review=updated.review, explorer=updated.explorer)
    request.app.state.workers.explorers[0] = updated.explorer
    request.app.state.review = new_desk
    return await run_sync(new_desk.state, reviewer, limiter=desk.threads)
