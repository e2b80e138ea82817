"""A small service under the shared HTTP habits, on a Unix socket and on TCP."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from skerry.errors import StorageFailed, TaskNotFound
from skerry.metrics import Metrics
from skerry.web import (
    STOPPING,
    Access,
    Answer,
    Route,
    TcpListener,
    UnixListener,
    build_app,
    json_response,
    problem,
    read_json,
    read_query,
)
from skerry.web.testing import ServerThread

TOKEN = "the-right-token"


class Thing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document."""

    name: str
    count: int = 0


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Query parameters."""

    limit: int = 10
    label: tuple[str, ...] = ()


async def make(request: web.Request) -> web.StreamResponse:
    return json_response(await read_json(request, Thing, 4096), status=201)


async def find(request: web.Request) -> web.StreamResponse:
    return json_response(read_query(request, Query))


async def fail(request: web.Request) -> web.StreamResponse:
    match request.match_info["how"]:
        case "bug":
            raise ZeroDivisionError("a secret at /secret/path")
        case "disk":
            raise StorageFailed("no space on /secret/path")
        case "missing":
            raise TaskNotFound("there is no task 7")
        case _:
            raise problem(429, "come back later", retry_after_s=7.0)


async def wait(request: web.Request) -> web.StreamResponse:
    await asyncio.wait_for(request.app[STOPPING].wait(), 60)
    return json_response({"ended": "stopping"})


ROUTES = (
    Route(
        method="POST",
        path="/v1/things",
        handler=make,
        summary="Make a thing.",
        body=Thing,
        answers=(Answer(201, "Made.", Thing),),
        refusals=(413, 422),
    ),
    Route(
        method="GET",
        path="/v1/things",
        handler=find,
        summary="Find things.",
        query=Query,
        answers=(Answer(200, "Found.", Query),),
    ),
    Route(method="GET", path="/v1/fail/{how:[a-z]{2,9}}", handler=fail, summary="Fail."),
    Route(method="GET", path="/v1/wait", handler=wait, summary="Wait for the stop."),
)


class Service:
    """The running service and a client that can say anything."""

    def __init__(self, thread: ServerThread, sock: Path, reasons: list[str]) -> None:
        self.thread = thread
        self.sock = sock
        self.reasons = reasons
        self.port = thread.ports[0]

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        token: str | None = TOKEN,
        **headers: str,
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Send one request over TCP; the body comes back decoded if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            content = answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "") and content
            return answer.status, json.loads(content) if is_json else content, answer.headers
        finally:
            connection.close()

    def ask_unix(self, path: str) -> bytes:
        """Send one GET over the Unix socket, without any token, and return the whole answer."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(20)
            peer.connect(str(self.sock))
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: peer.recv(65536), b""))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """The service, running."""
    sock, reasons = tmp_path / "s.sock", list[str]()

    def build() -> web.Application:
        return build_app(
            ROUTES,
            title="Things",
            version="1",
            access=Access(tokens=("another", TOKEN), hosts=("things.example",)),
            metrics=Metrics("things"),
            not_ready_because=lambda: reasons,
        )

    with ServerThread(build, [UnixListener(path=sock), TcpListener()]) as thread:
        yield Service(thread, sock, reasons)
