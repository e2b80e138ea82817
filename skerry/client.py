"""The Python client of an agent: submit tasks, wait for them, watch, store content. Standard library only.

Owns nothing durable: a task that was submitted is the agent's. Errors carry the agent's own message.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

import msgspec

from skerry.client_queue import QueueCalls
from skerry.documents import (
    BlobStored,
    Explanation,
    NodeReport,
    PolicyStatus,
    TaskAccepted,
    TaskChanged,
    TaskPage,
    TaskView,
)
from skerry.endpoint import Endpoint, find_agent
from skerry.errors import BlobError, BlobNotFound, QueueFull, ServiceUnreachable, TaskFailed, WaitTimedOut
from skerry.http import HttpConnection, decode
from skerry.ids import content_hash, parse_task_id
from skerry.messages import Outcome
from skerry.problem import ProblemError
from skerry.task import TaskSpec, convert_task

#: One request waits this long at the agent; longer waits are several requests.
WAIT_STEP_S = 30.0
_JSON = {"Content-Type": "application/json"}

Task = TaskSpec | Mapping[str, Any]


class TaskHandle:
    """A submitted task: its id, and what can be asked about it."""

    def __init__(self, client: Client, accepted: TaskAccepted) -> None:
        """Made by Client.submit()."""
        self._client = client
        self.task_id = accepted.task_id
        self.is_new = accepted.is_new  #: False: its idempotency key was known, this is the earlier task

    def get(self) -> TaskView:
        """Return the task as it is now."""
        return self._client.get(self.task_id)

    def wait(self, timeout_s: float | None = None) -> TaskView:
        """Return the task once it has ended.  Raises WaitTimedOut; None waits for ever."""
        return self._client.wait(self.task_id, timeout_s)

    def result(self, timeout_s: float | None = None) -> Outcome:
        """Return how it ended.  Raises TaskFailed unless it succeeded, WaitTimedOut."""
        return outcome_of(self.wait(timeout_s))

    def cancel(self) -> TaskView:
        """End it; a running one's process is stopped."""
        return self._client.cancel(self.task_id)

    def __repr__(self) -> str:
        """Return `TaskHandle(<id>)`."""
        return f"TaskHandle({self.task_id})"


class Client(QueueCalls):
    """An agent, reached by its Unix socket or by URL and token. Use it in a `with` block, or close() it.

    Errors: ServiceUnreachable (no agent listens), SpecError (the task is not valid), TaskNotFound, QueueFull
    (with the seconds after which there may be room), StorageFailed, BlobError and its kin, ProblemError for
    every other refusal; each with the agent's message.
    """

    def __init__(
        self,
        *,
        socket: str | Path | None = None,
        url: str | None = None,
        token: str | None = None,
        config: str | Path | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Find the agent: without arguments as the command line does.  Connects at the first request.

        timeout_s: how long one answer may take, besides the waiting that was asked for.
        """
        endpoint = find_agent(
            socket=None if socket is None else Path(socket),
            url=url,
            token=token,
            config=None if config is None else Path(config),
        )
        self._open(endpoint, timeout_s)

    def _open(self, endpoint: Endpoint, timeout_s: float) -> None:
        self.endpoint = endpoint
        hint = f"skerry agent run --config {endpoint.config or 'agent.toml'}"
        self._http = HttpConnection(endpoint, service="agent", start_hint=hint, timeout_s=timeout_s)

    @classmethod
    def at(cls, endpoint: Endpoint, *, timeout_s: float = 30.0) -> Client:
        """Return a client of the agent at this place."""
        client = cls.__new__(cls)
        client._open(endpoint, timeout_s)
        return client

    # --- tasks ------------------------------------------------------------------------------------------

    def submit(
        self, task: Task, *, idempotency_key: str | None = None, room_timeout_s: float = 0.0
    ) -> TaskHandle:
        """Hand a task to the agent; returns once it is on the agent's disk.

        task: a TaskSpec, or the same as plain values.  Sending is repeated under one key when the connection
        breaks, so that it is accepted once.
        room_timeout_s: how long to wait and ask again when the queue is full.  Raises QueueFull after that.
        """
        spec = task if isinstance(task, TaskSpec) else convert_task(task)
        given = spec.idempotency_key if idempotency_key is None else idempotency_key
        key = secrets.token_hex(16) if given is None else given
        body = msgspec.json.encode(msgspec.structs.replace(spec, idempotency_key=key))
        deadline = time.monotonic() + room_timeout_s
        while True:
            try:
                _, content = self._http.request("POST", "/v1/tasks", body=body, headers=_JSON)
            except QueueFull as full:
                wait_s = full.retry_after_s * random.uniform(0.75, 1.25)  # not all at one moment
                if time.monotonic() + wait_s > deadline:
                    raise
                time.sleep(wait_s)
            else:
                return TaskHandle(self, decode(content, TaskAccepted, "agent"))

    def run(self, task: Task, *, timeout_s: float | None = None) -> Outcome:
        """Submit a task and return how it ended.  Raises TaskFailed unless it succeeded, WaitTimedOut."""
        return self.submit(task).result(timeout_s)

    def get(self, task_id: str) -> TaskView:
        """Return a task.  Raises TaskNotFound."""
        return self._http.json(TaskView, "GET", f"/v1/tasks/{parse_task_id(task_id)}")

    def wait(self, task_id: str, timeout_s: float | None = None) -> TaskView:
        """Return a task once it has ended.  Raises WaitTimedOut (it goes on), TaskNotFound."""
        path = f"/v1/tasks/{parse_task_id(task_id)}"
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = WAIT_STEP_S if deadline is None else max(0.0, deadline - time.monotonic())
            step = min(WAIT_STEP_S, left)
            view = self._http.json(TaskView, "GET", f"{path}?wait={step:.3f}", wait_s=step)
            if view.has_ended:
                return view
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimedOut(
                    f"task {task_id} has not ended after {timeout_s:g} s: it is {view.state}", task_id=task_id
                )

    def list(
        self,
        *,
        states: tuple[str, ...] = (),
        kind: str | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        ordering_key: str | None = None,
        idempotency_key: str | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> TaskPage:
        """Return tasks, newest first; page.before leads to the next page.

        since_s, until_s: accepted from then on, and before then, seconds since 1970.  tenant: whose keys are
        meant, `default` when it is left out.
        """
        query = {
            "state": ",".join(states),
            "kind": kind,
            "priority": priority,
            "tenant": tenant,
            "ordering_key": ordering_key,
            "idempotency_key": idempotency_key,
            "since": since_s,
            "until": until_s,
            "limit": limit,
            "before": before,
        }
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self._http.json(TaskPage, "GET", f"/v1/tasks?{urlencode(given)}")

    def cancel(self, task_id: str, *, reason: str = "") -> TaskView:
        """End a task.  reason: for its story.  Raises ProblemError when it has ended, TaskNotFound."""
        query = f"?{urlencode({'reason': reason})}" if reason else ""
        return self._http.json(TaskView, "DELETE", f"/v1/tasks/{parse_task_id(task_id)}{query}")

    def replay(self, task_id: str) -> TaskView:
        """Make a dead-lettered task ready again.  Raises ProblemError when it is not dead, TaskNotFound."""
        path = f"/v1/tasks/{parse_task_id(task_id)}/replay"
        _, content = self._http.request("POST", path, body=b"", may_repeat=False)
        return decode(content, TaskView, "agent")

    def explain(self, task_id: str) -> Explanation:
        """Return in words why a task is where it is."""
        return self._http.json(Explanation, "GET", f"/v1/tasks/{parse_task_id(task_id)}/explain")

    def watch(self, *, tasks: tuple[str, ...] = ()) -> Iterator[TaskChanged]:
        """Yield each change of a task's state from now on, until the agent stops; tasks: of these only.

        A listener that is too slow misses changes: compare with list() when that matters.
        """
        query = f"?{urlencode({'task': ','.join(tasks)})}" if tasks else ""
        with self._http.stream(f"/v1/events{query}") as response:
            event = ""
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "task":
                    yield decode(value.encode(), TaskChanged, "agent")
                elif name == "data" and event == "stopping":
                    return

    # --- the node and its content -------------------------------------------------------------------------

    def node(self) -> NodeReport:
        """Return what the node has and does now."""
        return self._http.json(NodeReport, "GET", "/v1/node")

    def policy(self) -> PolicyStatus:
        """Return how the learned policy stands there."""
        return self._http.json(PolicyStatus, "GET", "/v1/policy")

    def is_ready(self) -> bool:
        """Decide whether the agent takes and does work now; False also when none listens."""
        try:
            self._http.request("GET", "/readyz")
        except (ProblemError, ServiceUnreachable):
            return False
        return True

    def add_model(self, path: str | Path) -> str:
        """Store a model file at the agent and return its hash: what a task names as `spec.model`."""
        file = Path(path)
        try:
            with file.open("rb") as content:
                name = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
                if not self.has_blob(name):
                    content.seek(0)
                    size = {"Content-Length": str(file.stat().st_size)}
                    self._http.request("PUT", f"/v1/blobs/{name}", body=content, headers=size, wait_s=300.0)
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise BlobError(f"{path} cannot be read: {error.strerror}") from error
        return name

    def put_blob(self, data: bytes) -> str:
        """Store content at the agent and return its hash."""
        name = content_hash(data)
        stored = self._http.json(BlobStored, "PUT", f"/v1/blobs/{name}", body=data, wait_s=300.0)
        return stored.hash

    def get_blob(self, name: str) -> bytes:
        """Return content by its hash, verified here too.  Raises BlobNotFound, BlobError."""
        _, content = self._http.request("GET", f"/v1/blobs/{name}", wait_s=300.0)
        if content_hash(content) != name:
            raise BlobError(f"the content that came for {name} does not match it")
        return content

    def has_blob(self, name: str) -> bool:
        """Decide whether the agent has this content."""
        try:
            self._http.request("HEAD", f"/v1/blobs/{name}")
        except (BlobNotFound, ProblemError) as error:
            if isinstance(error, ProblemError) and error.problem.status != 404:
                raise
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Client:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def outcome_of(view: TaskView) -> Outcome:
    """Return the outcome of a task that succeeded.  Raises TaskFailed with its outcome."""
    outcome = view.outcome or Outcome(status=view.state)
    if view.state != "done":
        why = f": {outcome.error}" if outcome.error else ""
        raise TaskFailed(
            f"task {view.task_id} ended {view.state}{why}", task_id=view.task_id, outcome=outcome
        )
    return outcome
