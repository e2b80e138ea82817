"""The testing kit of the HTTP interface: a real coordinator on loopback, and who speaks to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from cloud_coordinator.api.office import Office
from cloud_coordinator.service import running
from cloud_coordinator.settings import CoordinatorSettings
from skerry.enrolment import parse_token, sign_request
from skerry.identity import PrivateKey
from skerry.transport.port import Message

#: Of the node that visits.
KEY = PrivateKey.generate()
Story = Callable[["Visitor"], Awaitable[None]]


class Visitor:
    """Speaks to a running coordinator: `ask` on its Unix socket, `tcp` with the headers given."""

    def __init__(self, office: Office, bare: aiohttp.ClientSession, unix: aiohttp.ClientSession) -> None:
        """Sessions without a token, over TCP and on the socket."""
        self.office = office
        self.url = office.http_url
        self.bare = bare
        self.unix = unix
        token = office.settings.token_path.read_text().strip()
        self.bearer = {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
        """Send a request to the Unix socket; return status and JSON."""
        async with self.unix.request(method, f"http://localhost{path}", **arguments) as answer:
            return answer.status, await answer.json()

    async def tcp(self, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
        """Send a request over TCP; return status and JSON or bytes."""
        async with self.bare.request(method, f"{self.url}{path}", **arguments) as answer:
            has_body = answer.content_type.endswith("json")
            return answer.status, await answer.json(content_type=None) if has_body else await answer.read()

    async def token(self, **fields: Any) -> str:
        """Have a token for one enrolment made."""
        status, made = await self.ask("POST", "/v1/tokens", json=fields)
        assert status == 201, made
        return str(made["token"])

    async def enrol(
        self, token: str, *, node: str = "n1", key: PrivateKey = KEY, **changes: Any
    ) -> tuple[int, Any]:
        """Enrol a node with this key; changes: fields of the request, after it was signed."""
        asked = sign_request(key, parse_token(token), node=node, region="north", site="")
        document = msgspec.to_builtins(msgspec.structs.replace(asked, **changes))
        return await self.tcp("POST", "/v1/enrol", json=document)

    async def counted(self, reason: str) -> int:
        """How often something was refused for this reason, once the core has counted it."""
        async with asyncio.timeout(10):
            while True:
                _, found = await self.ask("GET", "/v1/counters")
                total = sum(c["count"] for c in found["counters"] if c["reason"] == reason)
                if total:
                    return int(total)
                await asyncio.sleep(0.05)  # counts are handed over with the next tick

    def message(self, topic: str, payload: bytes) -> None:
        """Hand over a message as the broker does."""
        self.office.runtime.on_message(
            Message(topic=topic, payload=payload, retained=False, acknowledge=lambda: None)
        )


def settings_in(path: Path, **fields: Any) -> CoordinatorSettings:
    """Return settings of a coordinator in path, on a free port, whose broker is away."""
    values = {
        "data_dir": str(path),
        "fleet": "test",
        "api": {"listen": "127.0.0.1:0"},
        "mqtt": {"url": "mqtt://127.0.0.1:1"},
        "rules": {"enabled": False},
        **fields,
    }
    return msgspec.convert(values, CoordinatorSettings)


def visit(path: Path, story: Story, **fields: Any) -> None:
    """Run a coordinator in path and play a story against it."""

    async def play() -> None:
        settings = settings_in(path, **fields)
        async with running(settings) as office:
            connector = aiohttp.UnixConnector(str(settings.socket_path))
            async with aiohttp.ClientSession() as bare, aiohttp.ClientSession(connector=connector) as unix:
                await story(Visitor(office, bare, unix))

    asyncio.run(play())
