"""The command line in this process, against an agent's API on a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edge_agent.api.testing import StoreFacade, serving
from skerry.cli import app
from skerry.web.testing import ServerThread


class Agent:
    """The running API with its facade."""

    def __init__(self, thread: ServerThread, facade: StoreFacade, home: Path) -> None:
        self.thread = thread
        self.facade = facade
        self.home = home

    def succeed(self, task_id: str, result: object = None) -> None:
        """End a task well."""
        self.thread.do(lambda: self.facade.succeed(task_id, result))

    def fail(self, task_id: str, error: str) -> None:
        """End a task badly, for good."""
        self.thread.do(lambda: self.facade.fail(task_id, error))


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent that commands find by the environment."""
    with serving(tmp_path, token="t") as (facade, thread):
        monkeypatch.setenv("SKERRY_SOCKET", str(tmp_path / "agent.sock"))
        yield Agent(thread, facade, tmp_path)


Skerry = Callable[..., Any]


@pytest.fixture
def skerry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Skerry:
    """Runs one command in a directory of its own: skerry("tasks", "list") returns what click's runner saw."""
    for name in ("SKERRY_URL", "SKERRY_TOKEN", "XDG_RUNTIME_DIR", "SKERRY_COORDINATOR_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: str | None = None) -> Any:
        return CliRunner().invoke(app, list(words), input=stdin)

    return run
