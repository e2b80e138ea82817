"""The node's own document, events as they happen, content by hash, readiness, the API's description."""

from __future__ import annotations

import hashlib
import http.client
from typing import Any

import pytest

from edge_agent.api import node
from edge_agent.api.app import ROUTES
from edge_agent.api.changes import Changes
from skerry.documents import TaskChanged

Agent = Any
ECHO = {"spec": {"executor": "command", "argv": ["echo", "hi"]}}


class Stream:
    """A listener on the agent's events."""

    def __init__(self, agent: Agent, query: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", agent.thread.ports[0], timeout=20)
        self._connection.request("GET", f"/v1/events{query}", headers={"Authorization": "Bearer test-token"})
        self.answer = self._connection.getresponse()
        assert self.line() == ": listening"

    def line(self) -> str:
        """The next line that is not empty; empty at the end."""
        while (line := self.answer.readline()) == b"\n":
            pass
        return line.decode().rstrip("\n")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def submit(agent: Agent) -> str:
    return str(agent.ask("POST", "/v1/tasks", ECHO)[1]["task_id"])


def test_events_tell_each_change(agent: Agent) -> None:
    with Stream(agent) as stream:
        task_id = submit(agent)
        agent.succeed(task_id)

        lines = [stream.line() for _ in range(4)]

    assert stream.answer.headers["Content-Type"] == "text/event-stream"
    assert stream.answer.headers["X-Content-Type-Options"] == "nosniff"
    assert lines == [
        "event: task",
        f'data: {{"task_id":"{task_id}","state":"ready"}}',
        "event: task",
        f'data: {{"task_id":"{task_id}","state":"done"}}',
    ]


def test_events_can_be_of_some_tasks_only(agent: Agent) -> None:
    watched = submit(agent)
    with Stream(agent, f"?task={watched}") as stream:
        other = submit(agent)
        agent.succeed(watched)

        assert stream.line() == "event: task"
        assert watched in (line := stream.line())
        assert other not in line


def test_events_end_with_the_agent(agent: Agent) -> None:
    with Stream(agent) as stream:
        agent.thread.stop()

        assert [stream.line() for _ in range(3)] == ["event: stopping", "data: {}", ""]


def test_a_quiet_stream_is_kept_open(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "KEEP_ALIVE_S", 0.02)

    with Stream(agent) as stream:
        assert stream.line() == ": still here"


def test_a_listener_that_goes_is_forgotten(agent: Agent) -> None:
    with Stream(agent):
        assert len(agent.facade._changes._listeners) == 1

    while agent.facade._changes._listeners:
        submit(agent)  # a write is what finds that the listener is gone


def test_a_slow_listener_is_told_that_it_missed_some() -> None:
    changes = Changes(limit=2)
    with changes.subscription():
        (queue,) = changes._listeners
        for number in range(5):
            changes.publish(TaskChanged(task_id=str(number), state="done"))
        got = [queue.get_nowait() for _ in range(queue.qsize())]
        changes.publish(TaskChanged(task_id="later", state="done"))

        assert [change and change.task_id for change in got] == ["0", "1", None]
        assert queue.get_nowait() == TaskChanged(task_id="later", state="done")


def test_the_node_tells_what_it_has(agent: Agent) -> None:
    submit(agent)
    _, body, _ = agent.ask("GET", "/v1/node")

    assert body["inventory"]["devices"][0]["device_id"] == "cpu-0"
    assert body["queue"]["by_state"]["ready"] == 1
    assert body["link"]["state"] == "off"


def test_readiness_gives_the_agents_reasons(agent: Agent) -> None:
    agent.facade.reasons = ("the disk is full",)

    status, body, _ = agent.ask("GET", "/readyz")

    assert (status, body["reasons"]) == (503, ["the disk is full"])


def test_content_goes_in_and_comes_out_by_hash(agent: Agent) -> None:
    data = b"model" * 100_000
    path = f"/v1/blobs/sha256:{hashlib.sha256(data).hexdigest()}"

    assert agent.ask("HEAD", path)[0] == 404
    assert agent.ask("PUT", path, data)[0] == 201
    assert agent.ask("PUT", path, data)[0] == 200
    assert agent.ask("HEAD", path)[2]["Content-Length"] == str(len(data))
    assert agent.ask("GET", path)[1] == data
    status, part, _ = agent.ask("GET", path, Range="bytes=5-9")
    assert (status, part) == (206, b"model")


def test_content_that_does_not_match_is_not_kept(agent: Agent) -> None:
    path = f"/v1/blobs/sha256:{'0' * 64}"

    status, body, _ = agent.ask("PUT", path, b"other")

    assert (status, body["type"]) == (422, "urn:skerry:blob-corrupt")
    assert agent.ask("GET", path)[0] == 404
    assert agent.facade.blobs.used_bytes == 0


def test_content_above_the_quota_is_refused_and_leaves_nothing(agent: Agent) -> None:
    data = b"x" * (9 << 20)
    status, body, _ = agent.ask("PUT", f"/v1/blobs/sha256:{hashlib.sha256(data).hexdigest()}", data)

    assert (status, body["type"]) == (507, "urn:skerry:blob-quota")
    assert agent.facade.blobs.used_bytes == 0


@pytest.mark.parametrize("name", ["sha256:7", "md5:00", f"sha256:{'A' * 64}", "..%2F..%2Fetc%2Fpasswd"])
def test_what_is_no_hash_is_refused(agent: Agent, name: str) -> None:
    assert agent.ask("GET", f"/v1/blobs/{name}")[0] == 422


def test_the_description_lists_every_route(agent: Agent) -> None:
    _, document, _ = agent.ask("GET", "/v1/openapi.json")

    for route in ROUTES:
        assert route.summary == document["paths"][route.plain_path][route.method.lower()]["summary"]
    assert "TaskSpec" in document["components"]["schemas"]
