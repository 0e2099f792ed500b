"""The HTTP side of the explorer: the JSON API under /api/v1, described by OpenAPI, and the page."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from harmonium import __version__
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot
from harmonium.serve.explorer import (
    Explorer,
    Facts,
    Found,
    Map,
    Named,
    Predictions,
    Replies,
    Surroundings,
    Unknown,
)

QUICK, SLOW = (
    4,
    2,
)  # questions that are worked on at once; with one slow one alone, explanations starve beside the quick
JSON = "application/json"
STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
}


class Problem(BaseModel):
    """What was wrong, and names that may have been meant."""

    error: str
    unknown: str | None = None
    suggestions: list[Named] = []


class Desk:
    """Where questions wait for a thread, first come, first served; slow ones in a line of their own."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer, self.quick, self.slow = explorer, CapacityLimiter(QUICK), CapacityLimiter(SLOW)

    async def ask(self, question: Callable[..., Any], *given: Any, slow: bool = False) -> Any:
        return await run_sync(partial(question, *given), limiter=self.slow if slow else self.quick)


async def _desk(request: Request) -> Desk:
    return request.app.state.desk


Asked = Annotated[Desk, Depends(_desk)]
Name = Annotated[str, Query(min_length=1, max_length=500, description="A name or an id.")]
Limit = Annotated[int, Query(ge=1, le=200)]
NOT_FOUND = {404: {"model": Problem, "description": "A name that is not in the graph."}}
WRONG = {
    400: {"model": Problem, "description": "A question that cannot be answered."},
    401: {"model": Problem, "description": "The server was started with a token, which was not given."},
    414: {"model": Problem, "description": "A query string that is too long."},
    422: {"model": Problem, "description": "A parameter that is missing or out of range."},
    503: {"model": Problem, "description": "There was no answer in time; ask later, or for less."},
}
router = APIRouter(prefix="/api/v1", responses=WRONG)


@router.get("/info")
async def info(desk: Asked) -> dict[str, Any]:
    """The graph, the model, the settings, and the metrics with the protocol that made them."""
    return desk.explorer.info


@router.get("/search")
async def search(
    desk: Asked,
    q: Annotated[str, Query(max_length=200, description="The beginning of a name, or something like it.")] = "",
    kind: Literal["entity", "relation"] = "entity",
    limit: Limit = 10,
) -> list[Found]:
    """Entities or relations by name: beginnings first, then parts, then like-sounding."""
    return await desk.ask(desk.explorer.search, q, kind, limit)


@router.get("/facts", responses=NOT_FOUND)
async def facts(
    desk: Asked, entity: Name, offset: Annotated[int, Query(ge=0, le=10**9)] = 0, limit: Limit = 100
) -> Facts:
    """What the graph says of an entity."""
    return await desk.ask(desk.explorer.facts, entity, offset, limit)


@router.get("/predictions", responses=NOT_FOUND)
async def predictions(desk: Asked, entity: Name, limit: Limit = 20) -> Predictions:
    """The likeliest facts of an entity that the graph does not say."""
    return await desk.ask(desk.explorer.predictions, entity, limit)


@router.get("/answers", responses=NOT_FOUND)
async def answers(
    desk: Asked,
    head: Name | None = None,
    relation: Name | None = None,
    tail: Name | None = None,
    limit: Limit = 10,
    new_only: bool = False,
) -> Replies:
    """The best answers to a query: give exactly two of head, relation and tail."""
    return await desk.ask(desk.explorer.answers, head, relation, tail, limit, new_only)


@router.get("/neighbours", responses=NOT_FOUND)
async def neighbours(
    desk: Asked,
    head: Name,
    relation: Name,
    tail: Name,
    slot: Literal["head", "tail"] = "head",
    limit: Annotated[int, Query(ge=1, le=50)] = 8,
    typed: Annotated[bool, Query(description="Only entities seen in that slot of the relation.")] = True,
    faithfulness: Annotated[
        float | None, Query(alias="lambda", description="Another lambda with the trained W; 'inf' is allowed.")
    ] = None,
) -> Surroundings:
    """Who is nearest to an entity in the guise that one fact gives it, by composed vector and by token."""
    return await desk.ask(desk.explorer.surroundings, head, relation, tail, Slot(slot), limit, typed, faithfulness)


@router.get("/explain", responses=NOT_FOUND)
async def explain(
    desk: Asked, head: Name, relation: Name, tail: Name, limit: Annotated[int, Query(ge=1, le=10)] = 5
) -> dict[str, Any]:
    """Why a fact scores as it does: harmony in its parts, directions of W, and the training facts behind it."""
    return await desk.ask(desk.explorer.explain, head, relation, tail, limit, slow=True)


@router.get("/map", responses=NOT_FOUND)
async def entity_map(
    desk: Asked, limit: Annotated[int, Query(ge=1, le=5000)] = 1000, entity: Name | None = None
) -> Map:
    """The most connected entities, and one more, by the principal axes of all entity vectors."""
    return await desk.ask(desk.explorer.map, limit, entity)


def _problem(
    status: int,
    error: str,
    unknown: str | None = None,
    suggestions: list[Found] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    near = [Named(found.id, found.name) for found in suggestions or ()]
    problem = Problem(error=error, unknown=unknown, suggestions=near)
    return Response(problem.model_dump_json(), status, headers, media_type=JSON)


async def _on_known_error(_: Request, error: HarmoniumError) -> Response:
    if isinstance(error, Unknown):
        return _problem(404, str(error), error.name, error.suggestions)
    return _problem(400, str(error))


async def _on_bad_parameter(_: Request, error: RequestValidationError) -> Response:
    parts = [f"{'.'.join(map(str, part['loc'][1:]))}: {part['msg']}" for part in error.errors()]
    return _problem(422, "; ".join(parts))


async def _on_wrong_address(_: Request, error: HTTPException) -> Response:
    text = f"{error.detail}; the API is described at /api/v1/openapi.json"
    return _problem(error.status_code, text, headers=error.headers)  # which methods are allowed


async def _on_bug(_: Request, error: Exception) -> Response:
    return _problem(500, "the server made a mistake; its log says more")


def build_app(explorer: Explorer) -> FastAPI:
    """The application; files of the page are read now, so no request reaches the file system."""
    app = FastAPI(
        title="harmonium explorer",
        version=__version__,
        description="Facts, predictions, guises and maps of one run.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both need scripts from elsewhere
        redoc_url=None,
    )
    app.state.desk = Desk(explorer)
    app.include_router(router)
    for kind, handler in (
        (HarmoniumError, _on_known_error),
        (RequestValidationError, _on_bad_parameter),
        (HTTPException, _on_wrong_address),
        (Exception, _on_bug),
    ):
        app.add_exception_handler(kind, handler)
    folder = files("harmonium.serve") / "static"
    for path, (file, media_type) in STATIC.items():
        app.add_api_route(path, _page((folder / file).read_bytes(), media_type), include_in_schema=False)
    return app


def _page(content: bytes, media_type: str) -> Any:
    async def page() -> Response:
        return Response(content, media_type=media_type)

    return page
