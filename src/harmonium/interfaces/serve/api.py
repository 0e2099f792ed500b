"""The HTTP side of the explorer: the JSON API under /api/v1, described by OpenAPI, and the page."""

from collections.abc import Callable
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
from harmonium.interfaces.serve.explorer import Explorer
from harmonium.interfaces.serve.results import (
    Answers,
    EntityMap,
    FactPage,
    GuiseView,
    Match,
    Predictions,
    Problem,
    UnknownName,
)
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.version import __version__

QUICK_THREADS, SLOW_THREADS = 4, 2  # two slow ones: with one, explanations would starve beside the quick ones
STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
}
T = TypeVar("T")


class Workers:
    """Threads that answer questions, first come, first served; slow questions have threads of their own."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.quick, self.slow = CapacityLimiter(QUICK_THREADS), CapacityLimiter(SLOW_THREADS)

    async def run(self, question: Callable[..., T], *arguments: Any, slow: bool = False) -> T:
        return await run_sync(partial(question, *arguments), limiter=self.slow if slow else self.quick)


async def _workers(request: Request) -> Workers:
    return cast(Workers, request.app.state.workers)


Pool = Annotated[Workers, Depends(_workers)]
Name = Annotated[str, Query(min_length=1, max_length=500, description="A name or an identifier.")]
Limit = Annotated[int, Query(ge=1, le=200)]
NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "A name that is not in the graph."}
}
WRONG: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "A question that cannot be answered."},
    401: {"model": Problem, "description": "The server requires a token, which was not given."},
    414: {"model": Problem, "description": "The query string is too long."},
    422: {"model": Problem, "description": "A parameter is missing or out of range."},
    503: {"model": Problem, "description": "No answer in time; ask later, or for less."},
}
router = APIRouter(prefix="/api/v1", responses=WRONG)


@router.get("/info")
async def info(pool: Pool) -> dict[str, Any]:
    """The graph, the model, the settings, and the metrics with their protocol."""
    return pool.explorer.info


@router.get("/search")
async def search(
    pool: Pool,
    q: Annotated[str, Query(max_length=200, description="The beginning of a name, or something like it.")] = "",
    kind: Literal["entity", "relation"] = "entity",
    limit: Limit = 10,
) -> list[Match]:
    """Entities or relations by name: beginnings first, then parts, then similar names."""
    return await pool.run(pool.explorer.search, q, kind, limit)


@router.get("/facts", responses=NOT_FOUND)
async def facts(
    pool: Pool, entity: Name, offset: Annotated[int, Query(ge=0, le=10**9)] = 0, limit: Limit = 100
) -> FactPage:
    """The facts that mention an entity."""
    return await pool.run(pool.explorer.facts, entity, offset, limit)


@router.get("/predictions", responses=NOT_FOUND)
async def predictions(pool: Pool, entity: Name, limit: Limit = 20) -> Predictions:
    """The most probable facts of an entity that are not in the graph."""
    return await pool.run(pool.explorer.predictions, entity, limit)


@router.get("/answers", responses=NOT_FOUND)
async def answers(
    pool: Pool,
    head: Name | None = None,
    relation: Name | None = None,
    tail: Name | None = None,
    limit: Limit = 10,
    new_only: bool = False,
    typed: Annotated[bool, Query(description="Only entities that could fill the slot.")] = True,
) -> Answers:
    """The best answers to a query: give exactly two of head, relation and tail."""
    return await pool.run(pool.explorer.answers, head, relation, tail, limit, new_only, typed)


@router.get("/neighbours", responses=NOT_FOUND)
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
    """The entities nearest to one in the guise that a fact gives it, by composed vector and by token."""
    return await pool.run(pool.explorer.guise, head, relation, tail, Slot(slot), limit, typed, faithfulness)


@router.get("/explain", responses=NOT_FOUND)
async def explain(
    pool: Pool, head: Name, relation: Name, tail: Name, limit: Annotated[int, Query(ge=1, le=10)] = 5
) -> dict[str, Any]:
    """Why a fact scores as it does: parts of its harmony, directions of W, and the training facts behind it."""
    return await pool.run(pool.explorer.explain, head, relation, tail, limit, slow=True)


@router.get("/map", responses=NOT_FOUND)
async def entity_map(
    pool: Pool, limit: Annotated[int, Query(ge=1, le=5000)] = 1000, entity: Name | None = None
) -> EntityMap:
    """The most connected entities, and one more, along the principal axes of all entity vectors."""
    return await pool.run(pool.explorer.map, limit, entity)


async def _on_error(_: Request, error: Exception) -> Response:
    status, problem, headers = 500, Problem(error="internal error; see the server's log"), None
    if isinstance(error, UnknownName):
        status, problem = 404, Problem(error=str(error), unknown=error.name, suggestions=[*error.suggestions])
    elif isinstance(error, HarmoniumError):
        status, problem = 400, Problem(error=str(error))
    elif isinstance(error, RequestValidationError):
        parts = [f"{'.'.join(map(str, part['loc'][1:]))}: {part['msg']}" for part in error.errors()]
        status, problem = 422, Problem(error="; ".join(parts))
    elif isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers  # with the methods that are allowed
        problem = Problem(error=f"{error.detail}; the API is described at /api/v1/openapi.json")
    return Response(problem.model_dump_json(), status, headers, media_type="application/json")


def build_app(explorer: Explorer) -> FastAPI:
    """The application; the files of the page are read now, so no request reaches the file system."""
    app = FastAPI(
        title="harmonium explorer",
        version=__version__,
        description="Facts, predictions, guises and maps of one run.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both load scripts from other servers
        redoc_url=None,
    )
    app.state.workers = Workers(explorer)
    app.include_router(router)
    for kind in (HarmoniumError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _on_error)
    folder = files("harmonium.interfaces.serve") / "static"
    for path, (file, media_type) in STATIC.items():
        page = Response((folder / file).read_bytes(), media_type=media_type)
        app.routes.append(Route(path, page, methods=["GET"], include_in_schema=False))
    return app
