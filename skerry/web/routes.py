"""The table of routes: what a service offers, told once, for the server and for its OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Method = Literal["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]

#: 256 KiB: above every document of the APIs (a task is at most 128 KiB), far below what hurts a small node.
BODY_LIMIT_BYTES = 256 * 1024


class Answer(msgspec.Struct, frozen=True):
    """One possible answer. body: the type of its JSON; None: no body, or not JSON (see media_type)."""

    status: int
    what: str
    body: Any = None
    media_type: str = "application/json"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One path and method.

    query: a struct whose fields are the query parameters.  body: the type of the JSON body.
    is_open: no token is asked for: anyone may, or the handler decides (a signature, a one-use token).
    """

    method: Method
    path: str
    handler: Handler
    summary: str
    query: type[msgspec.Struct] | None = None
    body: Any = None
    body_media_type: str = "application/json"
    headers: dict[str, str] = {}  #: request headers that the handler reads, with what they say
    answers: tuple[Answer, ...] = (Answer(200, "Done."),)
    refusals: tuple[int, ...] = ()  #: statuses of the problem documents, besides 400, 401 and 500
    is_open: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names in the path's braces."""
        return re.findall(r"\{([A-Za-z_]\w*)", self.path)

    @property
    def plain_path(self) -> str:
        """The path with its parameters' patterns left out: `/v1/tasks/{id}`."""
        return re.sub(r"\{([A-Za-z_]\w*):[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", r"{\1}", self.path)
