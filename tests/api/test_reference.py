"""The page about the agent's API says what there is: every route, and refusals under their own status."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import skerry.client
from edge_agent.api.refusals import refusal
from skerry import errors
from skerry.problem import RULES, ProblemError
from task_queue.operations import Reason, Refused

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "agent-api.md").read_text()


def test_every_route_is_on_the_page_and_no_other(agent: Any) -> None:
    _, document, _ = agent.ask("GET", "/v1/openapi.json")
    there = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}

    shown = set(re.findall(r"^\| `([A-Z]+)` \| `([^`]+)` \|", PAGE, re.MULTILINE))
    assert shown - there == {("GET", "/v1/openapi.json")}
    assert there <= shown


def test_a_parameter_that_is_a_number_has_bounds_and_what_is_none_is_refused(agent: Any) -> None:
    _, document, _ = agent.ask("GET", "/v1/openapi.json")
    asked = [
        (path.replace("{id}", "0" * 32), parameter["name"])
        for path, methods in document["paths"].items()
        for parameter in methods.get("get", {}).get("parameters", ())
        if {"number", "integer"} & set(re.findall(r"\w+", json.dumps(parameter["schema"])))
    ]
    assert {name for _, name in asked} == {"wait", "since", "until", "priority", "limit"}

    for path, name in asked:
        for value in ("nan", "inf", "-inf", "-1", "1e300", "9" * 30, "x"):
            status, body, _ = agent.ask("GET", f"{path}?{name}={value}")
            assert (status, body["field"]) == (422, name), (path, name, value, body)


def test_refusals_stand_under_their_status() -> None:
    rows = {
        int(status): set(re.findall(r"`([a-z-]+)`", names))
        for status, names in re.findall(r"^\| (\d{3}) \| ([^|]+) \|", PAGE, re.MULTILINE)
    }
    known = {rule.name: rule.status for rule in RULES.values()}

    assert all(known[name] == status for status, names in rows.items() for name in names if name in known)
    for reason in get_args(Reason):
        raised = refusal(Refused(reason=reason, message="m"))
        assert isinstance(raised, ProblemError)
        assert raised.problem.name in rows[raised.problem.status]


def test_json_examples_can_be_read() -> None:
    for example in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL):
        json.loads(example)


def test_errors_that_the_page_names_exist() -> None:
    section = PAGE.partition("Errors are\ntyped")[2]
    named = set(re.findall(r"`([A-Z]\w+)`", section))

    assert named
    assert all(hasattr(errors, name) or hasattr(skerry.client, name) for name in named)
