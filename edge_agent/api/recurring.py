"""Routes for recurring tasks: put, get, list, remove."""

from __future__ import annotations

from aiohttp import web

from edge_agent.api.keys import FACADE
from edge_agent.api.refusals import refusal
from edge_agent.api.views import recurring_view
from skerry.errors import SpecError
from skerry.problem import problem
from skerry.queue_documents import RecurringPage, RecurringView
from skerry.recurring import RecurringSpec, parse_recurring
from skerry.task import DOCUMENT_LIMIT_BYTES
from skerry.web import Answer, Route, json_response, read_body
from task_queue.operations import Refused


async def put(request: web.Request) -> web.StreamResponse:
    """Keep a recurring task, or change the one with this name."""
    facade, name = request.app[FACADE], request.match_info["name"]
    spec = parse_recurring(await read_body(request, DOCUMENT_LIMIT_BYTES))
    if spec.name != name:
        raise SpecError(f"name is {spec.name!r} in the document and {name!r} in the path", field="name")
    is_known = any(view.name == name for view in await _views(request))
    answer = await facade.put_recurring(spec)
    if isinstance(answer, Refused):
        raise refusal(answer)
    return json_response(await _one(request, name), status=200 if is_known else 201)


async def get(request: web.Request) -> web.StreamResponse:
    """Return one recurring task."""
    return json_response(await _one(request, request.match_info["name"]))


async def list_recurring(request: web.Request) -> web.StreamResponse:
    """Return all recurring tasks."""
    return json_response(RecurringPage(recurring=tuple(await _views(request))))


async def remove(request: web.Request) -> web.StreamResponse:
    """Forget a recurring task and return what it was."""
    view = await _one(request, request.match_info["name"])
    answer = await request.app[FACADE].drop_recurring(view.name)
    if isinstance(answer, Refused):
        raise _not_there(view.name)
    return json_response(view)


async def _views(request: web.Request) -> list[RecurringView]:
    return [recurring_view(record) for record in await request.app[FACADE].recurring()]


async def _one(request: web.Request, name: str) -> RecurringView:
    found = next((view for view in await _views(request) if view.name == name), None)
    if found is None:
        raise _not_there(name)
    return found


def _not_there(name: str) -> BaseException:
    detail = f"there is no recurring task {name[:80]!r}; `skerry recurring list` shows those there are"
    return problem(404, detail, name="recurring-not-found", title="There is no such recurring task")


_ONE = Answer(200, "The recurring task.", RecurringView)
ROUTES = (
    Route(
        method="PUT",
        path="/v1/recurring/{name}",
        handler=put,
        summary="Keep a recurring task; the same again changes nothing.",
        body=RecurringSpec,
        answers=(Answer(201, "It is on disk.", RecurringView), _ONE),
        refusals=(413, 422, 429, 503, 507),
    ),
    Route(
        method="GET",
        path="/v1/recurring/{name}",
        handler=get,
        summary="Get a recurring task, with its next run.",
        answers=(_ONE,),
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/recurring",
        handler=list_recurring,
        summary="List the recurring tasks.",
        answers=(Answer(200, "All of them.", RecurringPage),),
    ),
    Route(
        method="DELETE",
        path="/v1/recurring/{name}",
        handler=remove,
        summary="Remove a recurring task; tasks that it became go on.",
        answers=(_ONE,),
        refusals=(404, 507),
    ),
)
