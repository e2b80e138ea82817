"""The client's words about the queue: batches, dead letters, stories, recurring tasks, checks, copies."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

import msgspec

from skerry.documents import TaskPage
from skerry.errors import BackupError
from skerry.http import HttpConnection, decode
from skerry.ids import parse_task_id
from skerry.queue_documents import (
    BATCH_LIMIT,
    BatchAnswer,
    QueueCheck,
    QueueDetails,
    RecurringPage,
    RecurringView,
    ReplayAnswer,
    ReplayRequest,
    StoryView,
    TaskAnswer,
)
from skerry.recurring import RecurringSpec, convert_recurring
from skerry.task import TaskSpec, convert_task

#: Bytes of tasks that one request carries: well below what the agent takes.
_CHUNK_BYTES = 4 * 1024 * 1024
#: A check or a copy of a large queue takes its time, seconds.
_LONG_S = 3600.0


class QueueCalls:
    """Mixed into Client, which brings the connection."""

    _http: HttpConnection

    def submit_many(
        self, tasks: Iterable[TaskSpec | Mapping[str, Any]], *, room_timeout_s: float = 0.0
    ) -> Iterator[TaskAnswer]:
        """Hand tasks to the agent, many in one commit; yield one answer per task, in order, as commits end.

        A task without an idempotency key gets one, so that a request that breaks can be sent again.
        room_timeout_s: how long to wait and ask again, batch by batch, for tasks that find the queue full.
        """
        for chunk in _chunks(_keyed(task) for task in tasks):
            yield from self._submitted(chunk, time.monotonic() + room_timeout_s)

    def _submitted(self, chunk: Sequence[bytes], deadline: float) -> list[TaskAnswer]:
        answers = list(self.submit_documents(chunk).answers)
        while full := [number for number, answer in enumerate(answers) if answer.status == 429]:
            asked_s = max(_retry_after_s(answers[number]) for number in full)
            wait_s = asked_s * random.uniform(0.75, 1.25)  # not all at one moment
            if time.monotonic() + wait_s > deadline:
                break
            time.sleep(wait_s)
            again = self.submit_documents([chunk[number] for number in full]).answers
            for number, answer in zip(full, again, strict=True):
                answers[number] = answer
        return answers

    def submit_documents(self, documents: Sequence[bytes]) -> BatchAnswer:
        """Hand up to 1000 JSON documents to the agent as one batch; each is judged for itself."""
        _, content = self._http.request(
            "POST",
            "/v1/tasks:batch",
            body=b"\n".join(documents),
            headers={"Content-Type": "application/x-ndjson"},
            may_repeat=all(b'"idempotency_key"' in document for document in documents),
        )
        return decode(content, BatchAnswer, "agent")

    def story(self, task_id: str) -> StoryView:
        """Return what happened to a task, oldest first.  Raises TaskNotFound."""
        return self._http.json(StoryView, "GET", f"/v1/tasks/{parse_task_id(task_id)}/story")

    def dead_letters(
        self,
        *,
        kind: str | None = None,
        priority: int | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> TaskPage:
        """Return tasks that failed for good, newest first; page.before leads to the next page."""
        query = {"kind": kind, "priority": priority, "since": since_s, "until": until_s, "before": before}
        given = {name: value for name, value in query.items() if value is not None}
        return self._http.json(TaskPage, "GET", f"/v1/dead-letters?{urlencode({**given, 'limit': limit})}")

    def replay_dead(self, asked: ReplayRequest) -> ReplayAnswer:
        """Make dead letters ready again, or count them; when the answer says is_more, ask again."""
        body = msgspec.json.encode(asked)
        headers = {"Content-Type": "application/json"}
        _, content = self._http.request(
            "POST", "/v1/dead-letters:replay", body=body, headers=headers, may_repeat=False
        )
        return decode(content, ReplayAnswer, "agent")

    # --- recurring tasks ----------------------------------------------------------------------------------

    def put_recurring(self, spec: RecurringSpec | Mapping[str, Any]) -> RecurringView:
        """Keep a recurring task; the same name again changes the one that is there."""
        spec = spec if isinstance(spec, RecurringSpec) else convert_recurring(spec)
        return self._http.json(RecurringView, "PUT", _recurring(spec.name), body=msgspec.json.encode(spec))

    def recurring(self) -> tuple[RecurringView, ...]:
        """Return all recurring tasks, by name."""
        return self._http.json(RecurringPage, "GET", "/v1/recurring").recurring

    def get_recurring(self, name: str) -> RecurringView:
        """Return a recurring task.  Raises ProblemError with status 404 when there is none."""
        return self._http.json(RecurringView, "GET", _recurring(name))

    def remove_recurring(self, name: str) -> RecurringView:
        """Remove a recurring task; tasks that it became go on."""
        return self._http.json(RecurringView, "DELETE", _recurring(name))

    # --- the queue ----------------------------------------------------------------------------------------

    def queue(self) -> QueueDetails:
        """Return what the queue holds."""
        return self._http.json(QueueDetails, "GET", "/v1/queue")

    def check_queue(self) -> QueueCheck:
        """Have the queue's database checked from end to end, beside the work on it."""
        _, content = self._http.request("POST", "/v1/queue:check", body=b"", wait_s=_LONG_S)
        return decode(content, QueueCheck, "agent")

    def backup(self, out: BinaryIO) -> int:
        """Write a backup of the queue as it is now to out and return its bytes."""
        written = 0
        with self._http.stream("/v1/backup", wait_s=_LONG_S) as response:
            expected = int(response.headers.get("Content-Length", "-1"))
            while chunk := response.read(256 * 1024):
                _write(out, chunk)
                written += len(chunk)
        if written != expected:
            raise BackupError(f"the backup ended after {written} of {expected} bytes: the agent stopped")
        return written


def _write(out: BinaryIO, chunk: bytes) -> None:
    try:
        out.write(chunk)
    except OSError as error:
        raise BackupError(f"the backup cannot be written: {error.strerror}") from error


def _retry_after_s(answer: TaskAnswer) -> float:
    asked_s = None if answer.problem is None else answer.problem.retry_after_s
    return 5.0 if asked_s is None else asked_s


def _recurring(name: str) -> str:
    return f"/v1/recurring/{quote(name, safe='')}"


def _keyed(task: TaskSpec | Mapping[str, Any]) -> bytes:
    spec = task if isinstance(task, TaskSpec) else convert_task(task)
    key = spec.idempotency_key or secrets.token_hex(16)
    return msgspec.json.encode(msgspec.structs.replace(spec, idempotency_key=key))


def _chunks(documents: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield documents in batches that one request may carry."""
    chunk: list[bytes] = []
    size = 0
    for document in documents:
        if chunk and (len(chunk) == BATCH_LIMIT or size + len(document) > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(document)
        size += len(document) + 1
    if chunk:
        yield chunk
