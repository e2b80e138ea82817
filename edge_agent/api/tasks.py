"""Routes for tasks: submit, get and wait, list, cancel, replay, explain."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from edge_agent.api.keys import FACADE
from edge_agent.api.refusals import refusal
from edge_agent.api.views import explanation, task_page, task_view
from skerry.documents import Explanation, TaskAccepted, TaskPage, TaskView
from skerry.errors import SpecError, TaskNotFound
from skerry.ids import TaskId, parse_task_id
from skerry.problem import problem
from skerry.queue_documents import Moment, StoryView
from skerry.task import DOCUMENT_LIMIT_BYTES, TaskSpec, check_key, parse_task
from skerry.web import STOPPING, Answer, Route, json_response, read_body, read_query
from task_queue.operations import Changed, Refused
from task_queue.store import TaskFilter, TaskRecord
from task_queue.task import State

#: One request waits at most this long; a client that wants more asks again.
WAIT_LIMIT_S = 60.0
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}[!-~]*")


class GetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """wait: seconds to wait for the task's end."""

    wait: Annotated[float, Meta(ge=0, le=WAIT_LIMIT_S)] = 0.0


class CancelQuery(msgspec.Struct, frozen=True, kw_only=True):
    """reason: kept in the task's story and shown as its error."""

    reason: Annotated[str, Meta(max_length=200)] = ""


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks; before: ids below it only.

    since, until: accepted from then on, and before then, seconds since 1970.  tenant: whose keys are meant.
    """

    state: tuple[State, ...] = ()
    kind: str | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    tenant: str = "default"
    ordering_key: str | None = None
    idempotency_key: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    before: str | None = None


async def submit(request: web.Request) -> web.StreamResponse:
    """Accept a task: 201 once it is on disk, 200 when its idempotency key was known."""
    facade = request.app[FACADE]
    task = _with_headers(parse_task(await read_body(request, DOCUMENT_LIMIT_BYTES)), request)
    answer = await facade.submit(task)
    if isinstance(answer, Refused):
        raise refusal(answer)
    await asyncio.sleep(answer.pause_s)  # it is safe on disk; where room gets short, the next one comes later
    if not answer.is_new:
        check_same(task, await facade.get(answer.task_id))
    return json_response(
        TaskAccepted(task_id=answer.task_id, is_new=answer.is_new),
        status=201 if answer.is_new else 200,
        headers={"Location": f"/v1/tasks/{answer.task_id}"},
    )


def _with_headers(task: TaskSpec, request: web.Request) -> TaskSpec:
    """The task with what the headers Idempotency-Key and traceparent add."""
    key = request.headers.get("Idempotency-Key", task.idempotency_key)
    if task.idempotency_key is not None and key != task.idempotency_key:
        raise SpecError("the header Idempotency-Key and the field differ", field="idempotency_key")
    if key is not None and not 1 <= len(key) <= 128:
        raise SpecError("the header Idempotency-Key has 1 to 128 characters", field="idempotency_key")
    if key is not None and not _is_utf_8(key):
        raise SpecError("the header Idempotency-Key is not valid UTF-8", field="idempotency_key")
    check_key(key)
    return traced(msgspec.structs.replace(task, idempotency_key=key), request)


def _is_utf_8(text: str) -> bool:
    """Whether a header's bytes were text: those that were not are kept as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def traced(task: TaskSpec, request: web.Request) -> TaskSpec:
    """Return the task with the trace that it, or the header traceparent, names.

    An invalid one is left out, as W3C Trace Context asks: tracing must not stop work.
    """
    trace = task.traceparent or request.headers.get("traceparent", "")[:128]
    valid = trace if _TRACEPARENT.fullmatch(trace) else None
    return msgspec.structs.replace(task, traceparent=valid)


def check_same(task: TaskSpec, known: TaskRecord | None) -> None:
    """Refuse a key that another task had: the submitter would wait for a result that never comes."""
    if known is None:
        return  # only the key is remembered; its task is gone by retention
    same = msgspec.structs.replace(known.task, traceparent=task.traceparent)
    if same != task:
        raise problem(
            422,
            f"idempotency_key {task.idempotency_key!r} was that of task {known.task_id}: use a new one",
            name="key-reused",
            title="The idempotency key was used before",
            field="idempotency_key",
        )


async def get(request: web.Request) -> web.StreamResponse:
    """Return one task, waiting for its end if asked to."""
    facade, task_id = request.app[FACADE], _task_id(request)
    wait_s = read_query(request, GetQuery).wait
    record = await (_wait(request, task_id, wait_s) if wait_s else facade.get(task_id))
    return json_response(task_view(_found(record, task_id)))


async def _wait(request: web.Request, task_id: TaskId, wait_s: float) -> TaskRecord | None:
    """Wait for the task's end, the time or the agent's stop, whichever is first."""
    facade = request.app[FACADE]
    waiting = asyncio.ensure_future(facade.wait(task_id, wait_s))
    stopping = asyncio.ensure_future(request.app[STOPPING].wait())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await waiting if waiting.done() else await facade.get(task_id)
    finally:
        waiting.cancel()
        stopping.cancel()


async def list_tasks(request: web.Request) -> web.StreamResponse:
    """Return tasks, newest first, in pages."""
    query = read_query(request, ListQuery)
    before = None if query.before is None else parse_task_id(query.before)
    records = await request.app[FACADE].list(
        TaskFilter(
            states=query.state,
            kind=query.kind,
            priority=query.priority,
            tenant=query.tenant,
            ordering_key=query.ordering_key,
            idempotency_key=query.idempotency_key,
            since_s=query.since,
            until_s=query.until,
            limit=query.limit,
            before=before,
        )
    )
    return json_response(task_page(records, query.limit))


async def cancel(request: web.Request) -> web.StreamResponse:
    """End a task at its submitter's wish."""
    reason = read_query(request, CancelQuery).reason
    return await _changed(request, await request.app[FACADE].cancel(_task_id(request), reason))


async def replay(request: web.Request) -> web.StreamResponse:
    """Make a dead-lettered task ready again."""
    return await _changed(request, await request.app[FACADE].replay(_task_id(request)))


async def _changed(request: web.Request, answer: Changed | Refused) -> web.StreamResponse:
    if isinstance(answer, Refused):
        raise refusal(answer)
    record = await request.app[FACADE].get(answer.task_id)
    return json_response(task_view(_found(record, answer.task_id)))


async def explain_task(request: web.Request) -> web.StreamResponse:
    """Say why a task is where it is."""
    task_id = _task_id(request)
    return json_response(explanation(_found(await request.app[FACADE].get(task_id), task_id)))


async def story(request: web.Request) -> web.StreamResponse:
    """Say what happened to a task, oldest first."""
    task_id = _task_id(request)
    found = await request.app[FACADE].story(task_id)
    if found is None:
        raise TaskNotFound(f"there is no task {task_id} on this node")
    return json_response(found)


def _task_id(request: web.Request) -> TaskId:
    return parse_task_id(request.match_info["id"])


def _found(record: TaskRecord | None, task_id: TaskId) -> TaskRecord:
    if record is None:
        raise TaskNotFound(f"there is no task {task_id} on this node")
    return record


_ONE = (Answer(200, "The task.", TaskView),)
ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks",
        handler=submit,
        summary="Submit a task.",
        body=TaskSpec,
        headers={
            "Idempotency-Key": "the same key twice is one task",
            "traceparent": "W3C trace context, carried with the task",
        },
        answers=(
            Answer(201, "The task is on disk.", TaskAccepted),
            Answer(200, "The key was known: this is the earlier task.", TaskAccepted),
        ),
        refusals=(413, 422, 429, 503, 507),
    ),
    Route(
        method="GET",
        path="/v1/tasks",
        handler=list_tasks,
        summary="List tasks, newest first.",
        query=ListQuery,
        answers=(Answer(200, "One page.", TaskPage),),
        refusals=(422,),
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}",
        handler=get,
        summary="Get a task; with `wait`, once it has ended or that many seconds have passed.",
        query=GetQuery,
        answers=_ONE,
        refusals=(404, 422),
    ),
    Route(
        method="DELETE",
        path="/v1/tasks/{id}",
        handler=cancel,
        summary="Cancel a task in any state before its end; a running one's process is stopped.",
        query=CancelQuery,
        answers=_ONE,
        refusals=(404, 409, 422, 507),
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/replay",
        handler=replay,
        summary="Make a dead-lettered task ready again, with fresh tries.",
        answers=_ONE,
        refusals=(404, 409, 422, 429, 507),
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/explain",
        handler=explain_task,
        summary="Say in words why the task is where it is.",
        answers=(Answer(200, "The explanation.", Explanation),),
        refusals=(404, 422),
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/story",
        handler=story,
        summary="What happened to a task, oldest first, kept with it.",
        answers=(Answer(200, "The story.", StoryView),),
        refusals=(404, 422),
    ),
)
