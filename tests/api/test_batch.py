"""Batches, filters, dead letters and their replay over the API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from edge_agent.api.testing import a_full_disk
from skerry.client import Client
from skerry.endpoint import Endpoint
from skerry.task import TaskSpec
from task_queue.operations import Refused

Agent = Any
SPEC = {"executor": "command", "argv": ["echo", "hi"]}


def document(**fields: object) -> dict[str, object]:
    return {"spec": SPEC, **fields}


def batch(agent: Agent, *documents: object) -> Any:
    status, answer, _ = agent.ask("POST", "/v1/tasks:batch", {"tasks": list(documents)})
    assert status == 200, answer
    return answer


def dead(agent: Agent, **fields: object) -> str:
    (answer,) = batch(agent, document(**fields))["answers"]
    agent.thread.do(lambda: agent.facade.fail(answer["task_id"], "exit status 1"))
    return str(answer["task_id"])


def test_a_batch_is_accepted_with_one_answer_a_task_in_its_order(agent: Agent) -> None:
    answer = batch(agent, *(document(kind=f"k{number}") for number in range(20)))

    assert (answer["accepted"], answer["known"], answer["refused"]) == (20, 0, 0)
    kinds = [agent.ask("GET", f"/v1/tasks/{each['task_id']}")[1]["kind"] for each in answer["answers"]]
    assert kinds == [f"k{number}" for number in range(20)]


def test_a_mistake_in_one_task_is_that_ones_only(agent: Agent) -> None:
    wrong = (document(priority=99), {"spec": {"executor": "podman"}}, document(idempotency_key="recurring:x"))
    answer = batch(agent, document(), *wrong, document())

    assert [each["status"] for each in answer["answers"]] == [201, 422, 422, 422, 201]
    fields = [each["problem"]["field"] for each in answer["answers"][1:-1]]
    assert fields == ["priority", "spec.executor", "idempotency_key"]
    assert len(agent.ask("GET", "/v1/tasks")[1]["tasks"]) == 2


def test_keys_make_a_batch_repeatable_and_a_key_of_another_task_is_refused(agent: Agent) -> None:
    first = batch(agent, document(idempotency_key="a"), document(idempotency_key="b"))
    again = batch(
        agent,
        document(idempotency_key="a"),
        document(idempotency_key="b", kind="other"),
        document(idempotency_key="c"),
    )

    assert [each["status"] for each in again["answers"]] == [200, 422, 201]
    assert again["answers"][0]["task_id"] == first["answers"][0]["task_id"]
    assert again["answers"][1]["problem"]["type"] == "urn:skerry:key-reused"


def test_one_key_twice_in_a_batch_is_one_task(agent: Agent) -> None:
    answer = batch(agent, document(idempotency_key="a"), document(idempotency_key="a"))

    assert [each["status"] for each in answer["answers"]] == [201, 200]
    assert len({each["task_id"] for each in answer["answers"]}) == 1


def test_a_disk_that_refuses_accepts_none(agent: Agent) -> None:
    agent.facade.breaks = a_full_disk()
    status, answer, _ = agent.ask("POST", "/v1/tasks:batch", {"tasks": [document(), document()]})
    agent.facade.breaks = None

    assert (status, answer["type"]) == (507, "urn:skerry:storage-failed")
    assert agent.ask("GET", "/v1/tasks")[1]["tasks"] == []


def test_lines_of_json_are_a_batch_too(agent: Agent) -> None:
    lines = b"\n".join(json.dumps(document(kind=kind)).encode() for kind in ("a", "b")) + b"\n\n"
    status, answer, _ = agent.ask("POST", "/v1/tasks:batch", lines, Content_Type="application/x-ndjson")

    assert (status, answer["accepted"]) == (200, 2)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", 400),
        (b'{"tasks": 3}', 422),
        (b'{"task": []}', 422),
        (json.dumps({"tasks": [document()] * 1001}).encode(), 413),
        (b" " * (8 * 1024 * 1024 + 1), 413),
    ],
)
def test_what_is_no_batch_is_refused_as_a_whole(agent: Agent, body: bytes, expected: int) -> None:
    assert agent.ask("POST", "/v1/tasks:batch", body)[0] == expected
    assert agent.ask("GET", "/v1/tasks")[1]["tasks"] == []


def test_tasks_are_filtered_by_priority_keys_and_time(agent: Agent) -> None:
    answer = batch(
        agent,
        document(priority=1, idempotency_key="one"),
        document(priority=2, ordering_key="camera"),
        document(priority=2, ordering_key="camera"),
    )
    ids = [each["task_id"] for each in answer["answers"]]

    def listed(query: str) -> list[str]:
        return [task["task_id"] for task in agent.ask("GET", f"/v1/tasks?{query}")[1]["tasks"]]

    assert listed("priority=2") == [ids[2], ids[1]]
    assert listed("ordering_key=camera&state=blocked") == [ids[2]]
    assert listed("idempotency_key=one") == [ids[0]]
    assert listed("since=1") == ids[::-1]
    assert listed("until=1") == []
    assert agent.ask("GET", "/v1/tasks?priorty=2")[1]["detail"].endswith("did you mean priority?")


def test_dead_letters_are_listed_with_their_error_in_pages(agent: Agent) -> None:
    batch(agent, document())
    ids = [dead(agent, kind="a"), dead(agent, kind="b"), dead(agent, kind="a")]

    page = agent.ask("GET", "/v1/dead-letters?kind=a&limit=1")[1]

    assert [task["task_id"] for task in page["tasks"]] == [ids[2]]
    assert page["tasks"][0]["outcome"]["error"] == "exit status 1"
    rest = agent.ask("GET", f"/v1/dead-letters?kind=a&before={page['before']}")[1]
    assert [task["task_id"] for task in rest["tasks"]] == [ids[0]]


def replay(agent: Agent, **asked: object) -> Any:
    status, answer, _ = agent.ask("POST", "/v1/dead-letters:replay", asked)
    assert status == 200, answer
    return answer


def test_a_dry_run_counts_and_changes_nothing(agent: Agent) -> None:
    ids = [dead(agent), dead(agent)]

    answer = replay(agent, all=True, dry_run=True)

    assert (answer["matched"], answer["replayed"], answer["task_ids"]) == (2, 0, ids)
    assert len(agent.ask("GET", "/v1/dead-letters")[1]["tasks"]) == 2


def test_dead_letters_are_replayed_by_id_by_filter_and_all(agent: Agent) -> None:
    ids = [dead(agent, kind="a"), dead(agent, kind="b"), dead(agent, kind="b"), dead(agent, kind="c")]

    by_id = replay(agent, ids=[ids[0]])
    by_filter = replay(agent, kind="b")
    everything = replay(agent, all=True)

    assert [by_id["task_ids"], by_filter["task_ids"], everything["task_ids"]] == [
        [ids[0]],
        ids[1:3],
        [ids[3]],
    ]
    states = {agent.ask("GET", f"/v1/tasks/{each}")[1]["state"] for each in ids}
    assert states == {"ready"}


def test_a_replay_above_its_limit_says_that_there_is_more(agent: Agent) -> None:
    for _ in range(5):
        dead(agent)

    counts = [replay(agent, all=True, limit=2) for _ in range(3)]

    assert [(each["replayed"], each["is_more"]) for each in counts] == [(2, True), (2, True), (1, False)]


def test_what_is_not_dead_stays_as_it_is_and_says_so(agent: Agent) -> None:
    (alive,) = batch(agent, document())["answers"]
    gone = dead(agent)

    answer = replay(agent, ids=[alive["task_id"], gone, "0" * 32])

    assert answer["task_ids"] == [gone]
    assert [each["task_id"] for each in answer["refused"]] == [alive["task_id"], "0" * 32]
    assert "only a dead task" in answer["refused"][0]["reason"]


@pytest.mark.parametrize("asked", [{}, {"all": True, "kind": "a"}, {"ids": ["0" * 32], "all": True}])
def test_a_replay_says_which(agent: Agent, asked: dict[str, object]) -> None:
    status, answer, _ = agent.ask("POST", "/v1/dead-letters:replay", asked)

    assert status == 422
    assert "say which" in answer["detail"]


def test_the_reason_of_a_cancel_is_kept_with_the_task(agent: Agent) -> None:
    (answer,) = batch(agent, document(delay_s=60))["answers"]

    view = agent.ask("DELETE", f"/v1/tasks/{answer['task_id']}?reason=wrong+camera")[1]

    assert (view["state"], view["outcome"]["error"]) == ("cancelled", "wrong camera")
    story = agent.ask("GET", f"/v1/tasks/{answer['task_id']}/story")[1]
    assert "wrong camera" in json.dumps(story["events"][-1])
    assert agent.ask("DELETE", f"/v1/tasks/{answer['task_id']}")[0] == 409


def test_a_story_tells_what_happened_in_order(agent: Agent) -> None:
    task_id = dead(agent)

    story = agent.ask("GET", f"/v1/tasks/{task_id}/story")[1]

    whats = [event["what"] for event in story["events"]]
    assert whats[:2] == ["accepted", "started"]
    assert story["state"] == "dead"
    assert "exit status 1" in json.dumps(story["events"])
    assert agent.ask("GET", f"/v1/tasks/{'0' * 32}/story")[0] == 404


def test_a_batch_that_finds_the_queue_full_is_sent_again_once_there_may_be_room(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_many = agent.facade.submit_many
    sizes: list[int] = []

    async def one_at_a_time(tasks: Sequence[TaskSpec]) -> list[object]:
        sizes.append(len(tasks))
        full = Refused(reason="full", message="the queue is full", retry_after_s=0.001)
        return [*await submit_many(tasks[:1]), *[full] * (len(tasks) - 1)]

    monkeypatch.setattr(agent.facade, "submit_many", one_at_a_time)
    with Client.at(Endpoint(socket=agent.socket)) as client:
        hasty = list(client.submit_many([document(), document()]))
        patient = list(client.submit_many([document(kind=kind) for kind in "abc"], room_timeout_s=20))

    assert [answer.status for answer in hasty] == [201, 429]
    assert [answer.status for answer in patient] == [201, 201, 201]
    assert sizes == [2, 3, 2, 1]
    kinds = [agent.ask("GET", f"/v1/tasks/{answer.task_id}")[1]["kind"] for answer in patient]
    assert kinds == ["a", "b", "c"]
