"""Commands that make, run and describe services."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

Agent = Any
Skerry = Any


@pytest.mark.parametrize(("service", "file"), [("agent", "agent.toml"), ("coordinator", "coordinator.toml")])
def test_init_writes_private_settings_that_hold(
    skerry: Skerry, tmp_path: Path, service: str, file: str
) -> None:
    result = skerry(service, "init", "home")

    config = tmp_path / "home" / file
    assert result.exit_code == 0
    assert result.stdout == f"wrote {config}\n"
    assert f"skerry {service} run --config {config}" in result.stderr
    assert config.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home" / "data").stat().st_mode & 0o777 == 0o700
    assert tomllib.loads(config.read_text())["data_dir"] == str(tmp_path / "home" / "data")


@pytest.mark.parametrize("service", ["agent", "coordinator"])
def test_init_overwrites_only_when_told(skerry: Skerry, tmp_path: Path, service: str) -> None:
    skerry(service, "init", "home")
    config = tmp_path / "home" / f"{service}.toml"
    config.write_text("# mine\n")

    again = skerry(service, "init", "home")

    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert config.read_text() == "# mine\n"
    assert skerry(service, "init", "home", "--force", "--json").exit_code == 0
    assert config.read_text() != "# mine\n"


def test_init_takes_name_and_region_and_refuses_what_no_topic_holds(skerry: Skerry, tmp_path: Path) -> None:
    skerry("agent", "init", "home", "--name", "alpha", "--region", "north", "--site", "yard")
    wrong = skerry("agent", "init", "other", "--region", "No Rth")

    node = tomllib.loads((tmp_path / "home" / "agent.toml").read_text())["node"]
    assert node == {"name": "alpha", "region": "north", "site": "yard"}
    assert wrong.exit_code == 2
    assert "node.region 'No Rth'" in wrong.stderr
    assert not (tmp_path / "other").exists()


def test_a_coordinator_is_not_set_up_open_to_the_world(skerry: Skerry, tmp_path: Path) -> None:
    result = skerry("coordinator", "init", "home", "--listen", "0.0.0.0:8470")

    assert result.exit_code == 2
    assert "api.listen" in result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("service", ["agent", "coordinator"])
def test_run_becomes_the_service_and_keeps_the_pid(
    skerry: Skerry, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    skerry(service, "init", "home")
    became: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda *words: became.append(words))

    skerry(service, "run", "--config", f"home/{service}.toml")

    module = {"agent": "edge_agent", "coordinator": "cloud_coordinator"}[service]
    words = [sys.executable, "-P", "-m", module, "--config", f"home/{service}.toml"]
    assert became == [(sys.executable, words)]


@pytest.mark.parametrize("service", ["agent", "coordinator"])
def test_run_without_settings_says_how_to_make_them(skerry: Skerry, service: str) -> None:
    result = skerry(service, "run", "--config", "gone.toml")

    assert result.exit_code == 2
    assert "there is no settings file gone.toml; make one with" in result.stderr


def test_devices_and_queue_describe_the_agent(agent: Agent, skerry: Skerry) -> None:
    skerry("submit", "--command", "--", "true")

    lines = skerry("devices").stdout.splitlines()
    assert lines[1].split("\t")[:4] == ["cpu-0", "cpu", "processor", "command,onnx"]
    assert json.loads(skerry("devices", "--json").stdout)["devices"][0]["device_id"] == "cpu-0"
    shown = skerry("queue").stdout
    assert "tasks ready" in shown
    assert "link" in shown
    assert json.loads(skerry("queue", "--json").stdout)["by_state"]["ready"] == 1


def test_a_model_is_stored_under_its_hash(agent: Agent, skerry: Skerry, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"onnx")

    result = skerry("models", "add", "m.onnx")

    name = f"sha256:{hashlib.sha256(b'onnx').hexdigest()}"
    assert result.stdout == f"{name}\n"
    assert agent.facade.blobs.has(name)


def test_a_model_that_is_not_there_gives_two(agent: Agent, skerry: Skerry) -> None:
    result = skerry("models", "add", "gone.onnx")

    assert result.exit_code == 2
    assert "gone.onnx cannot be read" in result.stderr


def test_a_coordinator_that_does_not_run_gives_four(skerry: Skerry) -> None:
    skerry("coordinator", "init", "home")

    for words in (("nodes",), ("coordinator", "token")):
        result = skerry(*words, "--config", "home/coordinator.toml")
        assert result.exit_code == 4
        assert "no coordinator listens on" in result.stderr


def test_a_malformed_token_is_refused_without_being_repeated(skerry: Skerry) -> None:
    skerry("agent", "init", "home")
    words = ("enrol", "--config", "home/agent.toml", "--coordinator", "http://127.0.0.1:1", "--token")

    result = skerry(*words, "my-secret")

    assert result.exit_code != 0
    assert "token is not complete" in result.stderr
    assert "my-secret" not in result.output


def test_a_broken_settings_file_is_named(skerry: Skerry, tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text("data_dir = [\n")

    result = skerry("tasks", "list")

    assert result.exit_code == 2
    assert "agent.toml is not valid TOML" in result.stderr


@pytest.mark.parametrize("service", ["agent", "coordinator"])
def test_init_in_the_place_of_a_file_says_that_it_is_one(
    skerry: Skerry, tmp_path: Path, service: str
) -> None:
    (tmp_path / "home").write_text("mine")

    result = skerry(service, "init", "home")

    assert result.exit_code == 2
    assert f"{tmp_path / 'home'} is a file, not a directory" in result.stderr
