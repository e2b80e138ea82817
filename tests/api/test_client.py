"""The Python client against the real API: typed answers, typed errors, one task per submit."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import skerry
from edge_agent.api.testing import a_full_disk
from skerry.client import Client
from skerry.endpoint import Endpoint, find_agent
from skerry.errors import (
    BlobError,
    BlobNotFound,
    ServiceUnreachable,
    SettingsError,
    SpecError,
    StorageFailed,
    TaskFailed,
    TaskNotFound,
    WaitTimedOut,
)
from skerry.http import HttpConnection
from skerry.problem import ProblemError
from skerry.task import CommandSpec
from skerry.testing import a_task

Agent = Any


def test_the_client_is_a_public_name() -> None:
    assert skerry.Client is Client


def test_a_task_runs_and_its_outcome_comes_back(agent: Agent, client: Client) -> None:
    with Client(socket=agent.socket) as listener:
        changes = listener.watch()
        ending = threading.Thread(target=lambda: agent.succeed(next(changes).task_id, {"hz": 220}))
        ending.start()
        agent.wait_for_listener()

        outcome = client.run(a_task(("true",)), timeout_s=20)
        ending.join(20)
        changes.close()  # type: ignore[attr-defined]

    assert (outcome.status, outcome.result, outcome.device) == ("succeeded", {"hz": 220}, "cpu-0")


def test_plain_values_are_a_task_too(agent: Agent, client: Client) -> None:
    handle = client.submit({"spec": {"executor": "command", "argv": ["true"]}, "priority": 7})

    task = handle.get().task
    assert task is not None
    assert (task.priority, task.spec) == (7, CommandSpec(argv=("true",)))


def test_a_task_that_fails_is_an_error_with_its_reason(agent: Agent, client: Client) -> None:
    handle = client.submit(a_task())
    agent.fail(handle.task_id, "no such command: ecko")

    with pytest.raises(TaskFailed, match="no such command: ecko") as failed:
        handle.result()

    assert failed.value.attributes["task_id"] == handle.task_id


def test_a_wait_that_is_over_says_how_the_task_stands(client: Client) -> None:
    with pytest.raises(WaitTimedOut, match=r"after 0\.05 s: it is ready"):
        client.run(a_task(), timeout_s=0.05)


def test_a_wrong_task_is_refused_before_it_is_sent(client: Client) -> None:
    with pytest.raises(SpecError, match="executor"):
        client.submit({"spec": {"executor": "podman"}})

    assert client.list().tasks == ()


def test_the_servers_words_reach_the_caller(agent: Agent, client: Client) -> None:
    agent.facade.breaks = a_full_disk()
    with pytest.raises(StorageFailed, match="free space"):
        client.submit(a_task())

    with pytest.raises(TaskNotFound, match="0" * 32):
        client.get("0" * 32)

    with pytest.raises(SpecError, match="not a task id"):
        client.get("7")


def test_what_has_no_class_of_its_own_is_a_problem(client: Client) -> None:
    handle = client.submit(a_task())
    assert handle.cancel().state == "cancelled"

    with pytest.raises(ProblemError) as refused:
        handle.cancel()

    assert (refused.value.problem.status, refused.value.problem.name) == (409, "not-allowed-now")


def test_one_key_is_one_task(client: Client) -> None:
    first = client.submit(a_task(), idempotency_key="k")
    second = client.submit(a_task(), idempotency_key="k")

    assert second.task_id == first.task_id
    assert not second.is_new


def test_a_connection_that_breaks_after_sending_does_not_double_the_task(
    agent: Agent, tmp_path: Path
) -> None:
    path = tmp_path / "proxy.sock"
    with _LosingProxy(path, agent.socket), Client(socket=path) as client:
        client.list()  # the connection is kept from here on
        handle = client.submit(a_task())

        assert not handle.is_new
        assert [task.task_id for task in client.list().tasks] == [handle.task_id]


class _LosingProxy:
    """Passes requests on, and loses the answer to the first submit with its connection."""

    def __init__(self, path: Path, target: Path) -> None:
        self._target = str(target)
        self._has_lost = False
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            with near, socket.socket(socket.AF_UNIX) as far:
                far.connect(self._target)
                self._pass_on(near, far)

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        while request := near.recv(65536):
            far.sendall(request)
            if request.startswith(b"POST") and not request.endswith(b"}"):
                far.sendall(near.recv(65536))
            answer = far.recv(65536)
            if request.startswith(b"POST") and not self._has_lost:
                self._has_lost = True
                return
            near.sendall(answer)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)


def test_a_thread_that_waits_holds_up_no_other(agent: Agent, client: Client) -> None:
    handle = client.submit(a_task())
    waiting = threading.Thread(target=handle.wait, args=(20,))
    waiting.start()
    agent.wait_for_listener()

    others = [client.submit(a_task()) for _ in range(3)]
    agent.succeed(handle.task_id)
    waiting.join(20)

    assert not waiting.is_alive()
    assert len({handle.task_id, *(other.task_id for other in others)}) == 4


def test_pages_lead_on(client: Client) -> None:
    ids = [client.submit(a_task()).task_id for _ in range(3)]

    page = client.list(limit=2, states=("ready",), kind="task")
    rest = client.list(limit=2, before=page.before)

    assert [task.task_id for task in page.tasks + rest.tasks] == ids[::-1]


def test_content_goes_in_and_comes_out(client: Client, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"onnx" * 1000)

    name = client.add_model(model)

    assert client.add_model(model) == name
    assert client.has_blob(name)
    assert client.get_blob(name) == b"onnx" * 1000
    assert client.put_blob(b"input") != name
    assert client.get_blob(client.put_blob(b"")) == b""


def test_a_model_that_is_not_there_is_named(client: Client, tmp_path: Path) -> None:
    with pytest.raises(BlobError, match=r"gone\.onnx cannot be read"):
        client.add_model(tmp_path / "gone.onnx")


def test_content_that_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(BlobNotFound, match="sha256:0000"):
        client.get_blob(f"sha256:{'0' * 64}")


def test_readiness_is_asked(agent: Agent, client: Client) -> None:
    assert client.is_ready()

    agent.facade.reasons = ("no",)
    assert not client.is_ready()


def test_watching_ends_with_the_agent(agent: Agent, client: Client) -> None:
    seen: list[str] = []
    watching = threading.Thread(
        target=lambda: seen.extend(c.state for c in Client(socket=agent.socket).watch())
    )
    watching.start()
    agent.wait_for_listener()

    client.submit(a_task())
    client.close()
    agent.thread.stop()
    watching.join(20)

    assert seen == ["ready"]


def test_tcp_needs_the_token(agent: Agent) -> None:
    with Client(url=agent.url, token="test-token") as client:
        assert client.node().node == "edge-1"

    with Client(url=agent.url, token="wrong") as client, pytest.raises(ProblemError, match="Bearer"):
        client.node()


def test_nothing_listening_says_how_to_start_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"

    with pytest.raises(
        ServiceUnreachable, match=rf"no agent listens on {path}; start one with: skerry agent run"
    ):
        Client(socket=path).node()

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(ServiceUnreachable, match="no agent listens on"):
        Client(socket=path).node()


def test_something_else_listening_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=_answer_nonsense, args=(other,), daemon=True).start()

        with pytest.raises(ServiceUnreachable, match="no agent listens on"):
            Client(url=f"http://127.0.0.1:{other.getsockname()[1]}").node()


def _answer_nonsense(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        peer.recv(4096)
        peer.sendall(b"220 mail.example ESMTP\r\n")


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://127.0.0.1:port"])
def test_what_is_no_url_is_named(url: str) -> None:
    with pytest.raises(SettingsError, match="is not a URL like"):
        Client(url=url).node()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_text(content)
    endpoint = Endpoint(url="https://127.0.0.1:1", ca=ca)
    http = HttpConnection(endpoint, service="coordinator", start_hint="skerry coordinator run")

    with pytest.raises(SettingsError, match=r"CA file .*ca\.pem cannot be used"):
        http.request("GET", "/")


def test_the_agent_is_found_by_environment_then_settings_then_usual_places(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(f'data_dir = "{tmp_path}/data"\n')

    by_environment = find_agent(environ={"SKERRY_SOCKET": "/s"}, directory=tmp_path)
    by_settings = find_agent(environ={}, directory=tmp_path)
    by_flag = find_agent(socket=Path("/f"), environ={"SKERRY_SOCKET": "/s"}, directory=tmp_path)

    assert str(by_environment) == "/s"
    assert str(by_settings) == f"{tmp_path}/data/agent.sock"
    assert str(by_flag) == "/f"


def test_a_place_that_may_not_be_looked_at_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_socket", refuse)

    assert str(find_agent(environ={}, directory=tmp_path)) == "/run/skerry-agent/agent.sock"


def test_settings_without_a_socket_lead_to_tcp_and_its_token(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'data_dir = "{tmp_path}"\n[api]\nsocket = "off"\ntcp = "127.0.0.1:8460"\n')
    (tmp_path / "api-token").write_text("abc\n")

    found = find_agent(config=config, environ={})

    assert (found.url, found.token) == ("http://127.0.0.1:8460", "abc")


def test_no_agent_anywhere_names_every_place(tmp_path: Path) -> None:
    with pytest.raises(
        ServiceUnreachable, match=rf"{tmp_path}/agent.toml, {tmp_path}/skerry/agent.sock, /run/"
    ):
        find_agent(environ={"XDG_RUNTIME_DIR": str(tmp_path)}, directory=tmp_path)
