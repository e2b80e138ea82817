"""Recurring tasks and the queue as a whole over the API."""

from __future__ import annotations

from typing import Any

import pytest

from edge_agent.api.testing import a_full_disk

Agent = Any


def document(**fields: object) -> dict[str, Any]:
    task = {"spec": {"executor": "command", "argv": ["true"]}}
    return {"name": "report", "task": task, "every_s": 3600, **fields}


def test_a_recurring_task_is_put_got_listed_and_removed(agent: Agent) -> None:
    made = agent.ask("PUT", "/v1/recurring/report", document())
    again = agent.ask("PUT", "/v1/recurring/report", document())

    assert (made[0], again[0]) == (201, 200)
    assert made[1]["next_in_s"] == pytest.approx(3600)
    assert agent.ask("GET", "/v1/recurring/report")[1]["schedule"] == "every 3600 s"
    assert [each["name"] for each in agent.ask("GET", "/v1/recurring")[1]["recurring"]] == ["report"]
    assert agent.ask("DELETE", "/v1/recurring/report")[0] == 200
    assert agent.ask("GET", "/v1/recurring")[1]["recurring"] == []


@pytest.mark.parametrize(
    ("fields", "field", "word"),
    [
        ({"every_s": None}, "every_s", "exactly one"),
        ({"every_s": None, "cron": "0 25 * * *"}, "cron", "0 25 * * *"),
        ({"missed": "never"}, "missed", "never"),
        ({"mised": "once"}, "", "did you mean missed?"),
        ({"name": "other"}, "name", "path"),
    ],
)
def test_a_mistake_names_its_field(agent: Agent, fields: dict[str, object], field: str, word: str) -> None:
    status, answer, _ = agent.ask("PUT", "/v1/recurring/report", document(**fields))

    assert status == 422
    assert word in answer["detail"]
    assert answer.get("field", "") == field


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_name_that_is_not_there_is_not_found(agent: Agent, method: str) -> None:
    status, answer, _ = agent.ask(method, "/v1/recurring/none")

    assert (status, answer["type"]) == (404, "urn:skerry:recurring-not-found")


def test_a_disk_that_refuses_keeps_none(agent: Agent) -> None:
    agent.facade.breaks = a_full_disk()
    assert agent.ask("PUT", "/v1/recurring/report", document())[0] == 507
    agent.facade.breaks = None
    assert agent.ask("GET", "/v1/recurring")[1]["recurring"] == []


def test_the_queue_is_told_by_state_priority_and_room(agent: Agent) -> None:
    for priority in (1, 5, 5):
        agent.ask(
            "POST", "/v1/tasks", {"spec": {"executor": "command", "argv": ["true"]}, "priority": priority}
        )
    agent.ask("PUT", "/v1/recurring/report", document())

    told = agent.ask("GET", "/v1/queue")[1]

    assert told["by_state"]["ready"] == 3
    assert told["waiting_by_priority"] == {"5": 2, "1": 1}
    assert (told["level"], told["recurring"], told["losses"]) == ("free", 1, [])
    assert told["oldest_age_s"] == pytest.approx(0, abs=1)


def test_a_check_says_what_it_found(agent: Agent) -> None:
    assert agent.ask("POST", "/v1/queue:check")[1]["is_whole"] is True
