"""Routes for many tasks at once: submit a batch, list dead letters, replay them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from edge_agent.api.keys import FACADE
from edge_agent.api.refusals import refusal
from edge_agent.api.tasks import check_same, traced
from edge_agent.api.views import task_page
from skerry.decoding import MALFORMED, why_malformed
from skerry.documents import TaskPage
from skerry.errors import SkerryError, SpecError
from skerry.ids import TaskId, parse_task_id
from skerry.problem import problem, problem_of
from skerry.queue_documents import (
    BATCH_LIMIT,
    BATCH_LIMIT_BYTES,
    BatchAnswer,
    Moment,
    ReplayAnswer,
    ReplayRefused,
    ReplayRequest,
    TaskAnswer,
    TaskBatch,
)
from skerry.task import TaskSpec, parse_task
from skerry.web import Answer, Route, json_response, read_body, read_json, read_query
from task_queue.operations import Changed, Enqueued, Refused
from task_queue.store import TaskFilter
from task_queue.task import State

LINES = "application/x-ndjson"


class _RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A batch whose tasks are read one by one, so that a mistake in one is that one's only."""

    tasks: list[msgspec.Raw]


class DeadQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters; since, until: of acceptance, seconds since 1970; before: ids below it only."""

    kind: str | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    before: str | None = None


async def submit_batch(request: web.Request) -> web.StreamResponse:
    """Accept a batch in one commit; one answer per task."""
    documents = _documents(request, await read_body(request, BATCH_LIMIT_BYTES))
    if len(documents) > BATCH_LIMIT:
        raise problem(413, f"a batch of {len(documents)} tasks; the limit is {BATCH_LIMIT}: send several")
    read = [_read(document, request) for document in documents]
    tasks = [task for task in read if isinstance(task, TaskSpec)]
    given = iter(await request.app[FACADE].submit_many(tasks) if tasks else ())
    answers = []
    for task in read:
        answers.append(await _answer(request, task, next(given)) if isinstance(task, TaskSpec) else task)
    return json_response(_summed(answers))


def _documents(request: web.Request, body: bytes) -> Sequence[bytes | msgspec.Raw]:
    if request.content_type == LINES:
        return [line for line in body.splitlines() if line.strip()]
    try:
        return msgspec.json.decode(body, type=_RawBatch).tasks
    except msgspec.ValidationError as error:
        raise SpecError(f'the batch is not of the form {{"tasks": […]}}: {error}', field="tasks") from error
    except MALFORMED as error:
        raise problem(400, f"the body is not valid JSON: {why_malformed(error)}") from error


def _read(document: bytes | msgspec.Raw, request: web.Request) -> TaskSpec | TaskAnswer:
    try:
        return traced(parse_task(bytes(document)), request)
    except SpecError as error:
        return _refused(error)


async def _answer(request: web.Request, task: TaskSpec, given: Enqueued | Refused) -> TaskAnswer:
    if isinstance(given, Refused):
        return _refused(refusal(given))
    if given.is_new:
        return TaskAnswer(status=201, task_id=given.task_id, is_new=True)
    try:
        check_same(task, await request.app[FACADE].get(given.task_id))
    except SkerryError as error:
        return _refused(error)
    return TaskAnswer(status=200, task_id=given.task_id)


def _refused(error: SkerryError) -> TaskAnswer:
    shown = problem_of(error)
    return TaskAnswer(status=shown.status, problem=shown)


def _summed(answers: Sequence[TaskAnswer]) -> BatchAnswer:
    return BatchAnswer(
        accepted=sum(answer.status == 201 for answer in answers),
        known=sum(answer.status == 200 for answer in answers),
        refused=sum(answer.problem is not None for answer in answers),
        answers=tuple(answers),
    )


async def list_dead(request: web.Request) -> web.StreamResponse:
    """Return tasks that failed for good, newest first, with their last error."""
    query = read_query(request, DeadQuery)
    records = await request.app[FACADE].list(
        TaskFilter(
            states=(State.DEAD,),
            kind=query.kind,
            priority=query.priority,
            since_s=query.since,
            until_s=query.until,
            limit=query.limit,
            before=None if query.before is None else parse_task_id(query.before),
        )
    )
    return json_response(task_page(records, query.limit))


async def replay_dead(request: web.Request) -> web.StreamResponse:
    """Make dead letters ready again, or say how many there are."""
    asked = await read_json(request, ReplayRequest)
    if sum((bool(asked.ids), asked.has_filter, asked.all)) != 1:
        raise SpecError("say which: ids, a filter (kind, priority, since_s, until_s), or all", field="ids")
    ids = [parse_task_id(text) for text in asked.ids] or await _matching(request, asked)
    is_more = len(ids) > asked.limit
    ids = ids[: asked.limit]
    if asked.dry_run or not ids:
        return json_response(
            ReplayAnswer(
                matched=len(ids), replayed=0, dry_run=asked.dry_run, is_more=is_more, task_ids=tuple(ids)
            )
        )
    answers = await request.app[FACADE].replay_many(ids)
    done = tuple(answer.task_id for answer in answers if isinstance(answer, Changed))
    refused = tuple(
        ReplayRefused(task_id=task_id, reason=answer.message)
        for task_id, answer in zip(ids, answers, strict=True)
        if isinstance(answer, Refused)
    )
    return json_response(
        ReplayAnswer(matched=len(ids), replayed=len(done), is_more=is_more, task_ids=done, refused=refused)
    )


async def _matching(request: web.Request, asked: ReplayRequest) -> list[TaskId]:
    """Return the ids that a filter fits, oldest first, one more than the limit at most."""
    records = await request.app[FACADE].list(
        TaskFilter(
            states=(State.DEAD,),
            kind=asked.kind,
            priority=asked.priority,
            since_s=asked.since_s,
            until_s=asked.until_s,
            limit=asked.limit + 1,
        )
    )
    return sorted(record.task_id for record in records)


ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks:batch",
        handler=submit_batch,
        summary="Submit up to 1000 tasks in one commit; one answer per task.",
        body=TaskBatch,
        headers={"traceparent": "W3C trace context, for the tasks without one"},
        answers=(Answer(200, "What became of each; a disk that refuses accepts none.", BatchAnswer),),
        refusals=(413, 422, 503, 507),
    ),
    Route(
        method="GET",
        path="/v1/dead-letters",
        handler=list_dead,
        summary="List the tasks that failed for good, newest first.",
        query=DeadQuery,
        answers=(Answer(200, "One page.", TaskPage),),
        refusals=(422,),
    ),
    Route(
        method="POST",
        path="/v1/dead-letters:replay",
        handler=replay_dead,
        summary="Make dead letters ready again: by id, by filter or all; `dry_run` only counts.",
        body=ReplayRequest,
        answers=(Answer(200, "What became of them.", ReplayAnswer),),
        refusals=(422, 429, 507),
    ),
)
