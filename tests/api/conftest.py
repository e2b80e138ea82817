"""An agent's API on real sockets over a real queue, whose tasks end when the test says so."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_agent.api.testing import StoreFacade, serving
from skerry.client import Client
from skerry.web.testing import ServerThread

TOKEN = "test-token"


class Agent:
    """The running API, its facade, and a client that can say anything."""

    def __init__(self, thread: ServerThread, facade: StoreFacade, socket: Path, home: Path) -> None:
        self.thread = thread
        self.facade = facade
        self.socket = socket
        self.home = home
        self.url = thread.addresses[1]

    def ask(self, method: str, path: str, document: object = None, **headers: str) -> tuple[int, Any, Any]:
        """Send one request over TCP and return status, body and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.thread.ports[0], timeout=20)
        sent = {"Authorization": f"Bearer {TOKEN}"} | {n.replace("_", "-"): v for n, v in headers.items()}
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        try:
            connection.request(method, path, body=None if document is None else body, headers=sent)
            answer = connection.getresponse()
            content = answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "") and content
            return answer.status, json.loads(content) if is_json else content, answer.headers
        finally:
            connection.close()

    def wait_for_listener(self) -> None:
        """Return once somebody listens to changes."""
        deadline = time.monotonic() + 20
        while not self.facade._changes._listeners:
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.002)  # real sockets and threads: nothing here runs on a virtual clock

    def succeed(self, task_id: str, result: object = None) -> None:
        """End a task well."""
        self.thread.do(lambda: self.facade.succeed(task_id, result))

    def fail(self, task_id: str, error: str) -> None:
        """End a task badly, for good."""
        self.thread.do(lambda: self.facade.fail(task_id, error))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """The API, running."""
    with serving(tmp_path, token=TOKEN) as (facade, thread):
        yield Agent(thread, facade, tmp_path / "agent.sock", tmp_path)


@pytest.fixture
def client(agent: Agent) -> Iterator[Client]:
    """A client on the agent's Unix socket."""
    with Client(socket=agent.socket) as client:
        yield client
