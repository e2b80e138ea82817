"""HTTP habits that agent and coordinator share: one table of routes, problem documents, access, listeners.

In use: `app = build_app(routes, …)`, `app[SOME_KEY] = thing`, `server = await serve(app, listeners)`.
"""

from __future__ import annotations

from skerry.listening import Listener, TcpListener, TlsFiles, UnixListener
from skerry.problem import Problem, ProblemError, ProblemRule, problem
from skerry.web.access import Access, read_or_make_token, read_token
from skerry.web.app import REQUEST_ID, STOPPING, Health, build_app
from skerry.web.requests import decode_json, json_response, read_body, read_json, read_query
from skerry.web.routes import Answer, Route
from skerry.web.server import Server, serve

__all__ = [
    "REQUEST_ID",
    "STOPPING",
    "Access",
    "Answer",
    "Health",
    "Listener",
    "Problem",
    "ProblemError",
    "ProblemRule",
    "Route",
    "Server",
    "TcpListener",
    "TlsFiles",
    "UnixListener",
    "build_app",
    "decode_json",
    "json_response",
    "problem",
    "read_body",
    "read_json",
    "read_or_make_token",
    "read_query",
    "read_token",
    "serve",
]
