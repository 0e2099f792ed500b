"""The HTTP side of the explorer: the JSON API under /api/v1, described by OpenAPI, and the page."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeVar, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.review.database import Busy
from harmonium.review.session import Review
from harmonium.server import review_api
from harmonium.server.explorer import Explorer
from harmonium.server.guard import RETRY_SECONDS
from harmonium.server.results import (
    Answers,
    Comparison,
    EntityMap,
    FactPage,
    GuiseView,
    Match,
    MissingFactList,
    Neighbourhood,
    Prediction,
    Predictions,
    Problem,
    RelationSummary,
    RunSummary,
    UnknownName,
)
from harmonium.server.run_update import RunUpdate
from harmonium.version import __version__

QUICK_THREADS, SLOW_THREADS = 4, 2  # with a single slow one, explanations would starve beside quick queries
REVIEW_THREADS = 2
MAX_RUNS = 20  # served at once
MAX_NAME_LENGTH = 1500  # characters
MEDIA_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
}  # suffix of a file of the page -> media type
T = TypeVar("T")


class Workers:
    """The runs, and the threads that answer queries in order of arrival; slow queries have separate threads."""

    def __init__(self, explorers: Sequence[Explorer]) -> None:
        self.explorers = list(explorers)
        self.quick, self.slow = CapacityLimiter(QUICK_THREADS), CapacityLimiter(SLOW_THREADS)


@dataclass(frozen=True)
class RequestedRun:
    """The run that a request is for, and the threads that answer it."""

    explorer: Explorer
    workers: Workers
    review: Review | None  # if the run is reviewed

    def without_rejected(self, list_name: str, query: Callable[..., T], *arguments: Any) -> T:
        """The result of a query, without predictions that reviewers have rejected since the model was trained."""
        result = query(*arguments)
        rejected = set() if self.review is None else self.review.rejected()
        if not rejected:
            return result
        listed = [each for each in getattr(result, list_name) if each.split is not None or each.ids not in rejected]
        return cast(T, replace(cast(Any, result), **{list_name: listed}))

    async def run(self, query: Callable[..., T], *arguments: Any, slow: bool = False) -> T:
        limiter = self.workers.slow if slow else self.workers.quick
        return await run_sync(partial(query, *arguments), limiter=limiter)


async def _workers(request: Request) -> Workers:
    return cast(Workers, request.app.state.workers)


async def _requested_run(
    request: Request,
    run: Annotated[int, Query(ge=0, lt=MAX_RUNS, description="Number of the run, as listed by /api/v1/runs.")] = 0,
) -> RequestedRun:
    workers = await _workers(request)
    if run >= len(workers.explorers):
        raise UnknownName(f"no run {run}: the last one is {len(workers.explorers) - 1}", str(run), [])
    desk = request.app.state.review
    return RequestedRun(workers.explorers[run], workers, None if desk is None else desk.review)


Pool = Annotated[RequestedRun, Depends(_requested_run)]
Name = Annotated[str, Query(min_length=1, max_length=MAX_NAME_LENGTH, description="A name or an identifier.")]
Limit = Annotated[int, Query(ge=1, le=200)]
WRONG: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "A name that is not in the graph, or a run that is not served."},
    400: {"model": Problem, "description": "A query that cannot be answered."},
    401: {"model": Problem, "description": "The server requires a token, which was not given."},
    414: {"model": Problem, "description": "The query string is too long."},
    422: {"model": Problem, "description": "A parameter is missing or out of range."},
    503: {"model": Problem, "description": "No answer in time; ask later, or for less."},
}
router = APIRouter(prefix="/api/v1", responses=WRONG)


@router.get("/runs")
async def runs(request: Request, workers: Annotated[Workers, Depends(_workers)]) -> list[RunSummary]:
    """The runs that are served. All other queries take the number of a run; default: the first."""
    is_reviewed = request.app.state.review is not None
    return [explorer.summary(number, is_reviewed) for number, explorer in enumerate(workers.explorers)]


@router.get("/info")
async def info(pool: Pool) -> dict[str, Any]:
    """The graph, the model, the settings, and the metrics with their protocol."""
    return pool.explorer.info


@router.get("/search")
async def search(
    pool: Pool,
    q: Annotated[str, Query(max_length=200, description="The beginning of a name, or a similar name.")] = "",
    kind: Literal["entity", "relation"] = "entity",
    limit: Limit = 10,
    relation: Annotated[
        str | None,
        Query(min_length=1, max_length=MAX_NAME_LENGTH, description="Only entities in a fact of this relation."),
    ] = None,
    slot: Annotated[Literal["head", "tail"] | None, Query(description="In this slot of the relation.")] = None,
    type: Annotated[
        str | None,
        Query(
            min_length=1, max_length=MAX_NAME_LENGTH, description="Only entities of this type, as the graph states it."
        ),
    ] = None,
) -> list[Match]:
    """Entities or relations by name: names that begin with the text, then names that contain it, then similar names."""
    wanted = relation, None if slot is None else Slot(slot), type
    return await pool.run(pool.explorer.search, q, kind, limit, *wanted)


@router.get("/relations")
async def relations(pool: Pool, limit: Annotated[int, Query(ge=1, le=2000)] = 500) -> list[RelationSummary]:
    """The relations in descending order of facts, with examples of their heads and tails."""
    return (await pool.run(lambda: pool.explorer.relation_summaries))[:limit]


@router.get("/types")
async def types(pool: Pool, limit: Annotated[int, Query(ge=1, le=2000)] = 500) -> list[Match]:
    """The types that the graph states, such as those of `instance of`, with the number of entities of each."""
    return await pool.run(pool.explorer.types, limit)


@router.get("/facts")
async def facts(
    pool: Pool,
    entity: Name | None = None,
    relation: Name | None = None,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Limit = 100,
) -> FactPage:
    """The facts of an entity, of a relation, or of an entity and a relation."""
    return await pool.run(pool.explorer.facts, entity, relation, offset, limit)


@router.get("/fact")
async def fact(pool: Pool, head: Name, relation: Name, tail: Name) -> Prediction:
    """One fact: whether it is known, its score, its probability if it is not known, and a reason in words."""
    return await pool.run(pool.explorer.fact, head, relation, tail)


@router.get("/neighbourhood")
async def neighbourhood(pool: Pool, entity: Name, limit: Annotated[int, Query(ge=1, le=50)] = 5) -> Neighbourhood:
    """The known facts of an entity by relation, `limit` of each."""
    return await pool.run(pool.explorer.neighbourhood, entity, limit)


@router.get("/missing")
async def missing(
    pool: Pool, relation: Name | None = None, limit: Annotated[int, Query(ge=1, le=50)] = 12
) -> MissingFactList:
    """Facts that the graph lacks, with reasons: the most probable ones of a relation, or a selection from all relations.

    Computed on the first request, in limited time; large relations may be left out.
    """
    return await pool.run(pool.without_rejected, "facts", pool.explorer.missing, relation, limit, slow=True)


@router.get("/compare")
async def compare(pool: Pool, first: Name, second: Name) -> Comparison:
    """Two entities: facts in common, different facts, similarity of vectors, known and predicted facts between them."""
    return await pool.run(pool.without_rejected, "predicted", pool.explorer.compare, first, second)


@router.get("/predictions")
async def predictions(pool: Pool, entity: Name, limit: Limit = 20) -> Predictions:
    """The most probable facts of an entity that are not in the graph."""
    return await pool.run(pool.without_rejected, "facts", pool.explorer.predictions, entity, limit)


@router.get("/answers")
async def answers(
    pool: Pool,
    head: Name | None = None,
    relation: Name | None = None,
    tail: Name | None = None,
    limit: Limit = 10,
    new_only: bool = False,
    typed: Annotated[bool, Query(description="Only entities that could fill the slot.")] = True,
) -> Answers:
    """The best answers to a query: give exactly two of head, relation and tail.

    In descending order of score; for a symmetric relation, of probability, which is equal in both directions.
    """
    query = head, relation, tail, limit, new_only, typed
    return await pool.run(pool.without_rejected, "answers", pool.explorer.answers, *query)


@router.get("/neighbours")
async def neighbours(
    pool: Pool,
    head: Name,
    relation: Name,
    tail: Name,
    slot: Literal["head", "tail"] = "head",
    limit: Annotated[int, Query(ge=1, le=50)] = 8,
    typed: Annotated[bool, Query(description="Only entities seen in that slot of the relation.")] = True,
    faithfulness: Annotated[
        float | None, Query(alias="lambda", description="Another lambda with the trained W; 'inf' is allowed.")
    ] = None,
) -> GuiseView:
    """The entities nearest to an entity in the guise that a fact gives it, by composed vector and by token."""
    return await pool.run(pool.explorer.guise, head, relation, tail, Slot(slot), limit, typed, faithfulness)


@router.get("/explain")
async def explain(
    pool: Pool,
    head: Name,
    relation: Name,
    tail: Name,
    limit: Annotated[int, Query(ge=1, le=10)] = 5,
    details: Annotated[bool, Query(description="Also show how the score is computed")] = False,
) -> dict[str, Any]:
    """Why a fact is an answer: evidence in words, and the training facts without which it would not be one."""
    return await pool.run(pool.explorer.explain, head, relation, tail, limit, details, slow=True)


@router.get("/map")
async def entity_map(
    pool: Pool,
    limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
    entity: Name | None = None,
    links: Annotated[int, Query(ge=0, le=5000, description="Pairs of points with a known fact, at most.")] = 0,
) -> EntityMap:
    """The most connected entities, and one more, along the principal axes of all entity vectors."""
    return await pool.run(pool.explorer.map, limit, entity, links)


async def _on_error(request: Request, error: Exception) -> Response:
    status, problem = 500, Problem(error="internal error; see the server's log")
    headers: Mapping[str, str] | None = None
    if isinstance(error, UnknownName):
        status, problem = 404, Problem(error=str(error), unknown=error.name, suggestions=[*error.suggestions])
    elif isinstance(error, HarmoniumError):
        status, problem = 400, Problem(error=_without_path(str(error), request.app.state.review))
        if isinstance(error, Busy):
            status, headers = 503, {"Retry-After": str(RETRY_SECONDS)}
    elif isinstance(error, RequestValidationError):
        parts = [f"{'.'.join(map(str, part['loc'][1:]))}: {part['msg']}" for part in error.errors()]
        status, problem = 422, Problem(error="; ".join(parts))
    elif isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers  # they list the allowed methods
        problem = Problem(error=f"{error.detail}; the API is described at /api/v1/openapi.json")
    return Response(problem.model_dump_json(), status, headers, media_type="application/json")


def _without_path(message: str, desk: review_api.ReviewDesk | None) -> str:
    """A message that names the file of judgements, but not its path on this machine."""
    path = None if desk is None else desk.review.store.path
    return message if path is None else message.replace(str(path), path.name)


def build_app(explorers: Sequence[Explorer], review: Review | None = None) -> FastAPI:
    """The application; the files of the page are read now, so no request reaches the file system.

    With a `review` of the first run, reviewers can judge facts and update the run, into another folder; otherwise nothing
    can be changed.
    """

    updates = RunUpdate()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if review is not None:
            updates.stop()
            review.store.close()  # merges the write-ahead log into the file

    app = FastAPI(
        lifespan=lifespan,
        title="harmonium explorer",
        version=__version__,
        description="Facts, predictions, guises and maps of runs.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both pages load scripts from other servers
        redoc_url=None,
    )
    app.state.workers, app.state.review = Workers(explorers), None
    app.include_router(router)
    if review is not None:
        app.state.review = review_api.ReviewDesk(review, explorers[0], CapacityLimiter(REVIEW_THREADS), updates)
        app.include_router(review_api.router)
    for kind in (HarmoniumError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _on_error)
    for file in (files("harmonium.server") / "static").iterdir():
        media_type = MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            page = Response(file.read_bytes(), media_type=f"{media_type}; charset=utf-8")
            app.routes.append(Route(path, page, methods=["GET"], include_in_schema=False))
    return app
