"""Rounds over HTTP, on a real coordinator; a small program stands in for the training environment."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloud_coordinator.api.testing import Visitor, visit

#: A worker that serves nothing and stays.
_IDLE = f"#!{sys.executable}\nimport time\ntime.sleep(600)\n"


def interpreter(path: Path, text: str) -> dict[str, Any]:
    """Settings that name a stand-in."""
    file = path / "python"
    file.write_text(text)
    file.chmod(0o700)
    return {"python": str(file)}


def test_without_a_training_environment_the_reason_is_told(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        status, found = await visitor.ask("GET", "/v1/rounds")
        assert (status, found["rounds"]) == (200, [])
        assert "no training environment at" in found["off"]
        status, problem = await visitor.ask("POST", "/v1/rounds", json={"trainer": "null"})
        assert (status, "rounds are off here" in problem["detail"]) == (409, True)

    visit(tmp_path, story, federation={"python": str(tmp_path / "absent")})


def test_a_run_is_started_listed_shown_and_cancelled(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        asked = {"name": "r1", "trainer": "null", "rounds": 2, "nodes": ["n1"], "config": {"size": 8}}
        status, run = await visitor.ask("POST", "/v1/rounds", json=asked)
        assert (status, run["state"], run["rounds"]) == (201, "created", 2), run
        _, listed = await visitor.ask("GET", "/v1/rounds")
        assert [one["name"] for one in listed["rounds"]] == ["r1"]
        status, problem = await visitor.ask("POST", "/v1/rounds", json=asked)
        assert (status, "already" in problem["detail"]) == (409, True)
        assert (await visitor.ask("POST", "/v1/rounds/r1/resume"))[0] == 200
        status, run = await visitor.ask("POST", "/v1/rounds/r1/cancel")
        assert (status, run["state"]) == (200, "cancelled")
        assert (await visitor.ask("POST", "/v1/rounds/r1/cancel"))[0] == 409
        assert (await visitor.ask("POST", "/v1/rounds/r1/resume"))[0] == 409

    visit(tmp_path, story, federation=interpreter(tmp_path, _IDLE))


def test_a_run_that_nobody_knows_is_not_found(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/resume")):
            status, problem = await visitor.ask(method, f"/v1/rounds/r9{path}")
            assert (status, problem["type"].rpartition(":")[2]) == (404, "round-not-found"), problem

    visit(tmp_path, story, federation=interpreter(tmp_path, _IDLE))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"trainer": "magic"}, "trainer"),
        ({"rounds": 0}, "rounds"),
        ({"colour": "red"}, "colour"),
        ({"name": "A run", "trainer": "null"}, "run"),
    ],
)
def test_a_document_that_is_not_valid_names_the_field(
    tmp_path: Path, asked: dict[str, Any], words: str
) -> None:
    async def story(visitor: Visitor) -> None:
        status, problem = await visitor.ask("POST", "/v1/rounds", json=asked)
        assert (status, words in problem["detail"]) == (422, True), problem

    visit(tmp_path, story, federation=interpreter(tmp_path, _IDLE))


def test_a_base_must_be_a_policy_of_the_registry(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        status, problem = await visitor.ask("POST", "/v1/rounds", json={"base": "12ab"})
        assert (status, "no policy" in problem["detail"]) == (404, True), problem
        status, problem = await visitor.ask("POST", "/v1/rounds", json={"base": "12ab", "trainer": "null"})
        assert (status, "leave base out" in problem["detail"]) == (409, True), problem

    visit(tmp_path, story, federation=interpreter(tmp_path, _IDLE))


def test_a_run_goes_on_after_a_restart(tmp_path: Path) -> None:
    settings = interpreter(tmp_path, _IDLE)

    async def first(visitor: Visitor) -> None:
        assert (await visitor.ask("POST", "/v1/rounds", json={"name": "r1", "trainer": "null"}))[0] == 201

    async def second(visitor: Visitor) -> None:
        async with asyncio.timeout(30):
            while True:
                _, found = await visitor.ask("GET", "/v1/rounds/r1")
                if found["is_worked_on"]:
                    return
                await asyncio.sleep(0.05)  # its worker is a process of its own

    visit(tmp_path, first, federation=settings)
    visit(tmp_path, second, federation=settings)


def test_a_coordinator_that_never_had_a_round_does_not_load_what_rounds_need() -> None:
    heavy = "{'flwr', 'torch', 'numpy', 'grpc'} & {name.partition('.')[0] for name in sys.modules}"
    probe = f"import sys, cloud_coordinator.service; print(sorted({heavy}))"

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_neither_flower_nor_torch_is_loaded_with_rounds() -> None:
    modules = "cloud_coordinator.service, federation.rounds.service, federation.rounds.sqlite"
    heavy = "{'flwr', 'torch', 'grpc'} & {name.partition('.')[0] for name in sys.modules}"
    probe = f"import sys, {modules}; print(sorted({heavy}))"

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
