"""The agent's HTTP API as any program meets it: statuses, documents, refusals that say what to do."""

from __future__ import annotations

import base64
import threading
from typing import Any

import pytest

from edge_agent.api.testing import a_full_disk
from skerry.task import DOCUMENT_LIMIT_BYTES

Agent = Any
ECHO = {"spec": {"executor": "command", "argv": ["echo", "hi"]}}
UNKNOWN_ID = "0" * 32


def submitted(agent: Agent, **fields: object) -> str:
    status, body, _ = agent.ask("POST", "/v1/tasks", {**ECHO, **fields})
    assert status == 201, body
    return str(body["task_id"])


def test_a_task_is_accepted_with_its_id_and_place(agent: Agent) -> None:
    status, body, headers = agent.ask("POST", "/v1/tasks", ECHO)

    assert status == 201
    assert body["is_new"] is True
    assert headers["Location"] == f"/v1/tasks/{body['task_id']}"
    assert agent.ask("GET", headers["Location"])[1]["state"] == "ready"


def test_a_known_idempotency_key_gives_the_earlier_task(agent: Agent) -> None:
    first = agent.ask("POST", "/v1/tasks", ECHO, Idempotency_Key="order-7")
    second = agent.ask("POST", "/v1/tasks", {**ECHO, "idempotency_key": "order-7"})

    assert (first[0], second[0]) == (201, 200)
    assert second[1] == {"task_id": first[1]["task_id"], "is_new": False}


def test_a_key_that_another_task_had_is_refused(agent: Agent) -> None:
    first = agent.ask("POST", "/v1/tasks", ECHO, Idempotency_Key="order-7")[1]["task_id"]
    status, body, _ = agent.ask("POST", "/v1/tasks", {**ECHO, "priority": 9}, Idempotency_Key="order-7")

    assert status == 422
    assert body["type"] == "urn:skerry:key-reused"
    assert first in body["detail"]


def test_two_different_keys_in_one_request_are_refused(agent: Agent) -> None:
    status, body, _ = agent.ask("POST", "/v1/tasks", {**ECHO, "idempotency_key": "a"}, Idempotency_Key="b")

    assert (status, body["field"]) == (422, "idempotency_key")


def test_a_key_of_a_recurring_tasks_runs_is_no_other_tasks(agent: Agent) -> None:
    key = "recurring:report@2026-11-30T14:00Z"
    by_field = agent.ask("POST", "/v1/tasks", {**ECHO, "idempotency_key": key})
    by_header = agent.ask("POST", "/v1/tasks", ECHO, Idempotency_Key=key)

    for status, body, _ in (by_field, by_header):
        assert (status, body["field"]) == (422, "idempotency_key")
        assert "recurring" in body["detail"]


def test_the_trace_context_is_carried_and_an_invalid_one_dropped(agent: Agent) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    good = agent.ask("POST", "/v1/tasks", ECHO, traceparent=trace)[1]["task_id"]
    bad = agent.ask("POST", "/v1/tasks", ECHO, traceparent="nonsense")[1]["task_id"]

    assert agent.ask("GET", f"/v1/tasks/{good}")[1]["task"]["traceparent"] == trace
    assert agent.ask("GET", f"/v1/tasks/{bad}")[1]["task"]["traceparent"] is None


@pytest.mark.parametrize(
    ("document", "status", "words"),
    [
        (b"{", 422, "not valid JSON"),
        ({"spec": {"executor": "podman", "argv": ["x"]}}, 422, "unknown executor"),
        ({"spec": {"executor": "podman", "argv": ["x"]}}, 422, "command, onnx"),
        ({**ECHO, "prority": 3}, 422, "did you mean priority?"),
        ({"spec": {"executor": "command", "argv": ["x"], "enviro": {}}}, 422, "did you mean spec.env?"),
        ({**ECHO, "resources": {"memory": 5}}, 422, "did you mean resources.memory_bytes?"),
        ({**ECHO, "priority": 10}, 422, "priority"),
        ({**ECHO, "resources": {"memory_bytes": 1 << 60}}, 422, "resources.memory_bytes"),
        ({"spec": {"executor": "onnx", "model": "yolo", "inputs": {}}}, 422, "sha256:"),
        ({**ECHO, "data": {"labels": ["pii"]}}, 422, "home_region"),
    ],
)
def test_a_wrong_task_is_refused_by_name(agent: Agent, document: object, status: int, words: str) -> None:
    got, body, _ = agent.ask("POST", "/v1/tasks", document)

    assert got == status
    assert words in body["detail"]


def test_an_oversized_task_is_refused_with_the_limit(agent: Agent) -> None:
    stdin = base64.b64encode(b"x" * DOCUMENT_LIMIT_BYTES).decode()
    status, body, _ = agent.ask("POST", "/v1/tasks", {"spec": {**ECHO["spec"], "stdin": stdin}})

    assert status == 413
    assert str(DOCUMENT_LIMIT_BYTES) in body["detail"]
    assert "/v1/blobs/" in body["detail"]


def test_a_full_disk_accepts_nothing_and_says_what_to_do(agent: Agent) -> None:
    agent.facade.breaks = a_full_disk()
    status, body, headers = agent.ask("POST", "/v1/tasks", ECHO)

    assert status == 507
    assert "free space" in body["detail"]
    assert "secret" not in str(body)
    assert headers["Retry-After"] == "5"
    agent.facade.breaks = None
    assert agent.ask("GET", "/v1/tasks")[1]["tasks"] == []


def test_waiting_ends_with_the_task(agent: Agent) -> None:
    task_id = submitted(agent)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(agent.ask("GET", f"/v1/tasks/{task_id}?wait=60")))
    asking.start()
    agent.wait_for_listener()

    agent.succeed(task_id, {"hz": 220})
    asking.join(20)

    status, body, _ = answers[0]
    assert (status, body["state"], body["outcome"]["result"]) == (200, "done", {"hz": 220})


def test_waiting_ends_with_the_time(agent: Agent) -> None:
    assert agent.ask("GET", f"/v1/tasks/{submitted(agent)}?wait=0.05")[1]["state"] == "ready"


def test_waiting_ends_with_the_agents_stop(agent: Agent) -> None:
    task_id = submitted(agent)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(agent.ask("GET", f"/v1/tasks/{task_id}?wait=60")))
    asking.start()
    agent.wait_for_listener()

    agent.thread.stop()
    asking.join(20)

    assert (answers[0][0], answers[0][1]["state"]) == (200, "ready")


@pytest.mark.parametrize("wait", ["61", "-1", "soon"])
def test_a_wait_out_of_bounds_is_refused(agent: Agent, wait: str) -> None:
    status, body, _ = agent.ask("GET", f"/v1/tasks/{submitted(agent)}?wait={wait}")

    assert (status, body["field"]) == (422, "wait")


def test_tasks_are_listed_newest_first_in_pages(agent: Agent) -> None:
    ids = [submitted(agent, kind=f"k{number % 2}") for number in range(5)]

    _, first, _ = agent.ask("GET", "/v1/tasks?limit=3")
    _, rest, _ = agent.ask("GET", f"/v1/tasks?limit=3&before={first['before']}")

    assert [task["task_id"] for task in first["tasks"] + rest["tasks"]] == ids[::-1]
    assert rest["before"] is None
    assert first["tasks"][0]["task"] is None


def test_tasks_are_listed_by_state_and_kind(agent: Agent) -> None:
    done, dead, ready = submitted(agent), submitted(agent, kind="other"), submitted(agent)
    agent.succeed(done)
    agent.fail(dead, "no such command: ecko")

    def found(query: str) -> set[str]:
        return {task["task_id"] for task in agent.ask("GET", f"/v1/tasks?{query}")[1]["tasks"]}

    assert found("state=done,dead") == {done, dead}
    assert found("state=done&state=dead&kind=other") == {dead}
    assert ready not in found("state=done")


def test_an_unknown_state_is_refused(agent: Agent) -> None:
    assert agent.ask("GET", "/v1/tasks?state=finished")[0] == 422


def test_a_task_is_cancelled_once(agent: Agent) -> None:
    task_id = submitted(agent)

    assert agent.ask("DELETE", f"/v1/tasks/{task_id}")[1]["state"] == "cancelled"
    status, body, _ = agent.ask("DELETE", f"/v1/tasks/{task_id}")
    assert status == 409
    assert "cancelled" in body["detail"]


def test_a_dead_task_is_replayed(agent: Agent) -> None:
    task_id = submitted(agent)
    assert agent.ask("POST", f"/v1/tasks/{task_id}/replay")[0] == 409
    agent.fail(task_id, "broken")

    assert agent.ask("POST", f"/v1/tasks/{task_id}/replay")[1]["state"] == "ready"


@pytest.mark.parametrize(
    ("method", "suffix"), [("GET", ""), ("DELETE", ""), ("POST", "/replay"), ("GET", "/explain")]
)
def test_a_task_that_is_not_there_is_named(agent: Agent, method: str, suffix: str) -> None:
    status, body, _ = agent.ask(method, f"/v1/tasks/{UNKNOWN_ID}{suffix}")

    assert (status, body["type"]) == (404, "urn:skerry:task-not-found")
    assert UNKNOWN_ID in body["detail"]


def test_what_is_no_task_id_is_refused(agent: Agent) -> None:
    assert agent.ask("GET", "/v1/tasks/7")[0] == 422


def test_an_explanation_names_who_decided_and_why(agent: Agent) -> None:
    task_id = submitted(agent)
    waiting = agent.ask("GET", f"/v1/tasks/{task_id}/explain")[1]["text"]
    agent.fail(task_id, "no such command: ecko")
    _, body, _ = agent.ask("GET", f"/v1/tasks/{task_id}/explain")

    assert "is ready" in waiting
    assert "No attempt was made yet. It asks for 1000 CPU millicores, 256 MiB of memory" in waiting
    assert "rule:by-hand chose cpu-0 on edge-1: the test said so" in body["text"]
    assert "no such command: ecko" in body["text"]
    assert body["decisions"][0]["decided_by"] == "rule:by-hand"
