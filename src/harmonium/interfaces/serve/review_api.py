"""The part of the API with which reviewers judge facts. The guard has checked who asks; nothing is changed by GET."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from harmonium.answers.review.precision import ReviewSummary
from harmonium.answers.review.queue import Offer
from harmonium.answers.review.session import Review
from harmonium.answers.review.store import LONGEST_COMMENT, FactIds, Judgement
from harmonium.data.triples import Slot
from harmonium.interfaces.serve.explorer import Explorer
from harmonium.interfaces.serve.results import Prediction, Problem
from harmonium.runtime.errors import HarmoniumError

RECENT = 20  # judgements of the reviewer that are listed
REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "A fact that cannot be judged."},
    401: {"model": Problem, "description": "No token of a reviewer was given."},
    403: {"model": Problem, "description": "The request came from a page of another site."},
    413: {"model": Problem, "description": "The body is too long."},
    415: {"model": Problem, "description": "The body is no JSON."},
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
    """Which fact is wanted: the next of the queue, or first this one, if it is open."""

    model_config = ConfigDict(extra="forbid")
    first: FactBody | None = None


class JudgementBody(FactBody):
    verdict: Literal["accepted", "rejected", "unsure"]
    comment: Annotated[str, Field(max_length=2 * LONGEST_COMMENT)] = ""


class UndoBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class OfferedFact:
    """A fact to judge; None if there is none."""

    fact: Prediction | None
    rank: int | None
    known_facts: int  # of its entities
    earlier: list[Judgement]  # all unsure
    left: int
    waiting: int  # facts that others are judging


@dataclass(frozen=True)
class ReviewState:
    """The review as one reviewer sees it."""

    reviewer: str
    order: str
    summary: dict[str, Any]  # counts, precision against stated probability, disagreements
    recent: list[Judgement]  # by this reviewer, the last one first


@dataclass(frozen=True)
class ReviewDesk:
    """The review of a run, with a thread for those who write: SQLite has one writer anyway."""

    review: Review
    explorer: Explorer
    threads: CapacityLimiter

    def offer(self, reviewer: str, first: FactIds | None) -> OfferedFact:
        offer = self.review.next(reviewer, first)
        counts = offer.known_facts, offer.earlier, offer.left, offer.waiting
        if offer.shown is None or offer.triple is None:
            return OfferedFact(None, None, *counts)
        return OfferedFact(self._prediction(offer), offer.shown.rank, *counts)

    def _prediction(self, offer: Offer) -> Prediction:
        """The fact as everywhere in the explorer, with the probability of the queue."""
        assert offer.shown is not None and offer.triple is not None, "there is a fact"
        names = self.explorer.names.of(offer.triple)
        score = float(self.review.queue.facts.scores[(offer.shown.rank or 1) - 1])
        reason = self.review.reason(offer.triple)
        return Prediction(*names, None, Slot.TAIL, score, offer.shown.probability, reason)

    def state(self, reviewer: str) -> ReviewState:
        judgements = self.review.store.judgements()
        recent = [judgement for judgement in judgements if judgement.reviewer == reviewer][: -RECENT - 1 : -1]
        summary = ReviewSummary.of(judgements).to_json()
        return ReviewState(reviewer, self.review.queue.order, summary, recent)

    def judge(self, reviewer: str, body: JudgementBody) -> Judgement:
        return self.review.judge(reviewer, body.ids, body.verdict, body.comment)


async def _desk(request: Request) -> ReviewDesk:
    return cast(ReviewDesk, request.app.state.review)


async def _reviewer(request: Request) -> str:
    return cast(str, request.state.reviewer)


Desk = Annotated[ReviewDesk, Depends(_desk)]
Reviewer = Annotated[str, Depends(_reviewer)]


@router.get("/state")
async def state(desk: Desk, reviewer: Reviewer) -> ReviewState:
    """Counts, precision so far against stated probability, disagreements, and the reviewer's last judgements."""
    return await run_sync(desk.state, reviewer, limiter=desk.threads)


@router.get("/judgements")
async def judgements(desk: Desk, reviewer: Reviewer) -> list[Judgement]:
    """All judgements that hold, with their provenance."""
    return await run_sync(desk.review.store.judgements, limiter=desk.threads)


@router.post("/next")
async def next_fact(body: NextBody, desk: Desk, reviewer: Reviewer) -> OfferedFact:
    """The next fact to judge, which no other reviewer gets meanwhile."""
    return await run_sync(desk.offer, reviewer, None if body.first is None else body.first.ids, limiter=desk.threads)


@router.post("/judge")
async def judge(body: JudgementBody, desk: Desk, reviewer: Reviewer) -> Judgement:
    """Accept a fact, reject it, or say that it is uncertain; on the answer the judgement is on the disk."""
    return await run_sync(desk.judge, reviewer, body, limiter=desk.threads)


@router.post("/undo")
async def undo(body: UndoBody, desk: Desk, reviewer: Reviewer) -> Judgement:
    """Take back the reviewer's last judgement."""
    undone = await run_sync(desk.review.undo, reviewer, limiter=desk.threads)
    if undone is None:
        raise HarmoniumError("nothing to undo: you have no judgement")
    return undone
