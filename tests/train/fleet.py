"""A fleet of real processes that takes part in rounds, and `skerry round` against it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.round_documents import RoundView

PATIENCE_S = 120.0
WITHOUT_RULES = {"rules.enabled": False}
QUICK_TO_STOP = {"limits.stop_grace_s": 1.0}


def plan(name: str, *, is_cuttable: bool = False, **training: Any) -> NodePlan:
    """An agent that takes part, and begins to train at once."""
    settings = {f"training.{key}": value for key, value in {"enabled": True, **training}.items()}
    return NodePlan(
        name=name,
        region="north",
        is_cuttable=is_cuttable,
        settings={**WITHOUT_RULES, **QUICK_TO_STOP, **settings},
    )


@contextmanager
def running(
    directory: Path, *plans: NodePlan, coordinator: dict[str, object] | None = None
) -> Iterator[Fleet]:
    """A started fleet.  coordinator: more of its settings."""
    settings = {**WITHOUT_RULES, **(coordinator or {})}
    broker = start_broker(directory / "broker")
    try:
        with Fleet(directory, broker, plans, directory / "witness", coordinator=settings) as fleet:
            fleet.start()
            yield fleet
    finally:
        broker.stop()


class Rounds:
    """`skerry round` against one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._config = fleet.directory / "coordinator" / "coordinator.toml"

    def __call__(self, *words: str) -> RoundView:
        """Run one command; return the run it shows."""
        done = subprocess.run(
            [sys.executable, "-m", "skerry.cli", "round", *words, "--config", str(self._config), "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        shown = done.stdout.strip().splitlines()[-1] if "--watch" in words else done.stdout
        return msgspec.json.decode(shown, type=RoundView)

    def until(self, name: str, is_so: Callable[[RoundView], bool]) -> RoundView:
        """Poll with a deadline: what is waited for happens in other processes."""
        deadline = time.monotonic() + PATIENCE_S
        view = self("show", name)
        while not is_so(view):
            assert time.monotonic() < deadline, json.dumps(msgspec.to_builtins(view), indent=1)
            time.sleep(0.1)
            view = self("show", name)
        return view
