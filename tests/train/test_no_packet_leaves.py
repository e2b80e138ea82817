"""A whole run talks to nobody but its coordinator: no telemetry, no update check, no package index."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from federation.flower.environment import SWITCHES
from federation.rounds.supervisor import WorkerCommand
from federation.values import RunSpec, RunState

#: Loaded by the interpreter before anything else: writes down every address that the process asks for.
WATCHER = """
import os, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        where = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        with open(os.environ["SEEN"], "a") as seen:
            print(event, repr(where), file=seen)

sys.addaudithook(watch)
"""


def test_a_run_reaches_nothing_but_its_coordinators_socket(
    place: Callable[[int], Any], story: Callable[..., None], tmp_path: Path
) -> None:
    here = place(2)
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCHER)
    seen = tmp_path / "seen"
    environment = {"PYTHONPATH": str(tmp_path / "watch"), "SEEN": str(seen), **dict.fromkeys(SWITCHES, "1")}

    async def run() -> None:
        async with here.open(here.fleet(), environment=environment) as service:
            await service.start(RunSpec(run_id="r1", trainer="toy", rounds=2))
            assert (await service.wait("r1")).state is RunState.DONE

    story(run())

    addresses = {line.split(" ", 1)[1] for line in seen.read_text().splitlines()}
    assert addresses == {repr(str(here.directory / "rounds.sock"))}


def test_a_worker_is_started_with_the_interpreter_it_is_given() -> None:
    words = WorkerCommand(python=Path(sys.executable)).words(Path("/run/s.sock"), "r1")

    assert words[0] == sys.executable
    assert words[1:7] == ("-m", "federation.run_worker", "--socket", "/run/s.sock", "--run", "r1")
