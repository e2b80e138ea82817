"""`skerry round` against a real coordinator's HTTP interface: what it prints, what it says to a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skerry.cli.round_view import picture
from skerry.round_documents import Participant, RoundVersion, RoundView

_IDLE = f"#!{sys.executable}\nimport time\ntime.sleep(600)\n"
PATIENCE_S = 40.0


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Path]:
    """The settings file of a running coordinator without a broker; its workers do nothing."""
    from skerry.cli.demo.process import ServiceProcess

    python = tmp_path / "python"
    python.write_text(_IDLE)
    python.chmod(0o700)
    config = tmp_path / "coordinator.toml"
    values = {
        "data_dir": str(tmp_path / "data"),
        "api.listen": "127.0.0.1:0",
        "mqtt.url": "mqtt://127.0.0.1:1",
        "rules.enabled": False,
        "federation.python": str(python),
    }
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    process = ServiceProcess(
        "coordinator", "cloud_coordinator", config, tmp_path / "data/coordinator.sock", tmp_path / "log"
    )
    process.start()
    try:
        yield config
    finally:
        process.stop()


def test_a_run_from_start_to_cancel(coordinator: Path, skerry: Callable[..., Any]) -> None:
    where = ("--config", str(coordinator))
    begun = skerry("round", "start", "--name", "r1", "--trainer", "null", "--set", "size=8", *where)
    assert begun.exit_code == 0, begun.stderr
    assert begun.stdout.strip() == "r1"

    listed = json.loads(skerry("round", "list", "--json", *where).stdout)
    assert [(one["name"], one["rounds"]) for one in listed["rounds"]] == [("r1", 3)]
    shown = skerry("round", "show", "r1", *where).stdout
    assert "version" in shown
    assert "nobody was asked yet" in shown + skerry("round", "show", "r1", *where).stderr
    assert skerry("round", "export", "r1", "--out", "x", *where).exit_code == 2
    cancelled = skerry("round", "cancel", "r1", *where)
    assert "r1 is cancelled: cancelled by an operator" in cancelled.stdout
    watched = skerry("round", "watch", "r1", *where)
    assert watched.exit_code == 1
    assert "cancelled" in watched.stdout


def test_a_mistake_is_one_clear_line(coordinator: Path, skerry: Callable[..., Any]) -> None:
    where = ("--config", str(coordinator))
    for words, status, said in (
        (("show", "r9"), 3, "there is no run"),
        (("start", "--base", "12ab"), 3, "no policy"),
        (("start", "--set", "size"), 2, "KEY=VALUE"),
        (("start", "--name", "A b"), 2, "run"),
    ):
        done = skerry("round", *words, *where)
        assert (done.exit_code, said in done.stderr) == (status, True), done.stderr
        assert "Traceback" not in done.stderr


def test_a_service_that_is_not_there_is_named(skerry: Callable[..., Any], tmp_path: Path) -> None:
    done = skerry("round", "list", "--url", "http://127.0.0.1:1")

    assert done.exit_code == 4


def test_the_live_table_says_who_gave_what() -> None:
    from rich.console import Console

    view = RoundView(
        name="r1", state="running", reason="", trainer="toy", strategy="synchronous", rounds=3, version=1,
        quorum=2, deadline_s=60.0, patience_left_s=1.0, base_policy="", created_wall_s=1.0, ended_wall_s=0.0,
        participants=(
            Participant(node="quay-1", version=0, state="accepted", counted_in=1, weight=64.0, metrics={}),
            Participant(node="[red]reef", version=0, state="refused", reason="not finite", metrics={}),
        ),
        versions=(RoundVersion(version=1, model="m", accepted=1, refused=1, metrics={}, wall_s=2.0),),
    )  # fmt: skip
    console = Console(width=120, record=True, file=sys.stderr)

    console.print(picture(view))

    text = console.export_text()
    assert "version 1 of 3; 1 accepted, 1 refused" in text
    assert "quay-1" in text
    assert "[red]reef" in text
    assert "not finite" in text


def test_help_loads_no_framework() -> None:
    probe = "import sys, skerry.cli.round; print(sorted({'numpy', 'flwr', 'rich.live'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
