"""The habits of both services' HTTP: one table of routes in, an application out.

Owns access checks, problem documents for every error, request ids, figures, health and the OpenAPI document.
Knows nothing of tasks or nodes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from skerry.metrics import CONTENT_TYPE, Metrics
from skerry.problem import MEDIA_TYPE, Problem, ProblemRule, problem, problem_of
from skerry.web.access import Access
from skerry.web.door import DOOR, Door, note_who_spoke
from skerry.web.openapi import openapi
from skerry.web.requests import json_response
from skerry.web.routes import BODY_LIMIT_BYTES, Answer, Route

log = logging.getLogger(__name__)

#: Set when the service begins to stop: whatever waits for long ends its answer then.
STOPPING = web.AppKey("STOPPING", asyncio.Event)
ACCESS = web.AppKey("ACCESS", Access)
REQUEST_ID = web.RequestKey("REQUEST_ID", str)

_SAFE_HEADERS = {
    "Server": "skerry",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service is ready, and if not, why."""

    status: str
    reasons: tuple[str, ...] = ()


def build_app(
    routes: Sequence[Route],
    *,
    title: str,
    version: str,
    access: Access,
    metrics: Metrics,
    not_ready_because: Callable[[], Sequence[str]] = tuple,
    rules: Mapping[type[BaseException], ProblemRule] | None = None,
) -> web.Application:
    """Return the application: the given routes, and /healthz, /readyz, /metrics and /v1/openapi.json.

    not_ready_because: the reasons against readiness, none when ready.  rules: more rows for the error table.
    """
    table = [*routes, *_own_routes(metrics, not_ready_because)]
    document = msgspec.json.encode(openapi(table, title=title, version=version))
    table.append(_openapi_route(document))
    app = web.Application(
        middlewares=[note_who_spoke, _Observed(metrics), _problems(rules), _access(table)],
        client_max_size=BODY_LIMIT_BYTES,
    )
    app[ACCESS] = access
    app[DOOR] = Door()
    app[STOPPING] = asyncio.Event()
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(_begin_stopping)
    for route in table:
        app.router.add_route(route.method, route.path, route.handler)
    return app


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Just before an answer's head is sent, streams and files included."""
    for name, value in _SAFE_HEADERS.items():
        response.headers[name] = value
    response.headers["X-Request-Id"] = request.get(REQUEST_ID, "")


async def _begin_stopping(app: web.Application) -> None:
    app[STOPPING].set()


def _own_routes(metrics: Metrics, not_ready_because: Callable[[], Sequence[str]]) -> list[Route]:
    async def healthz(request: web.Request) -> web.StreamResponse:
        return json_response(Health(status="ok"))

    async def readyz(request: web.Request) -> web.StreamResponse:
        reasons = tuple(not_ready_because())
        status = "not ready" if reasons else "ready"
        return json_response(Health(status=status, reasons=reasons), status=503 if reasons else 200)

    async def figures(request: web.Request) -> web.StreamResponse:
        return web.Response(body=metrics.render(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    health = (Answer(200, "Yes.", Health),)
    return [
        Route(
            method="GET",
            path="/healthz",
            handler=healthz,
            summary="Is it alive?",
            answers=health,
            is_open=True,
        ),
        Route(
            method="GET",
            path="/readyz",
            handler=readyz,
            summary="Is it ready? If not, why.",
            answers=(*health, Answer(503, "Not yet, for these reasons.", Health)),
            is_open=True,
        ),
        Route(
            method="GET",
            path="/metrics",
            handler=figures,
            summary="Figures for a monitor, as Prometheus reads them.",
            answers=(Answer(200, "The figures.", media_type="text/plain"),),
        ),
    ]


def _openapi_route(document: bytes) -> Route:
    async def describe(request: web.Request) -> web.StreamResponse:
        return web.Response(body=document, content_type="application/json")

    return Route(
        method="GET",
        path="/v1/openapi.json",
        handler=describe,
        summary="This API's description.",
        is_open=True,
    )


def _access(table: Sequence[Route]) -> Middleware:
    """A middleware that checks Host and token first; a path that is not known asks for a token too."""
    open_handlers = {route.handler for route in table if route.is_open}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_open = request.match_info.http_exception is None and request.match_info.handler in open_handlers
        request.app[ACCESS].check(request, is_open=is_open)
        return await handler(request)

    return check


def _problems(
    rules: Mapping[type[BaseException], ProblemRule] | None,
) -> Middleware:
    """A middleware that turns whatever a handler raises into a problem document."""

    @web.middleware
    async def translate(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return problem_response(_of_http(error), request)
        except ConnectionError:
            return web.Response(status=499)  # the client went away: there is nobody to tell
        except Exception as error:
            shown = problem_of(error, request=request[REQUEST_ID], extra=rules)
            if shown.status >= 500:
                log.error("request %s failed: %s", request[REQUEST_ID], request.rel_url.path, exc_info=error)
            return problem_response(shown, request)

    return translate


def _of_http(error: web.HTTPException) -> Problem:
    """The problem of aiohttp's own errors, whose bodies are for people only."""
    details = {
        404: "there is nothing at this path; /v1/openapi.json lists the paths",
        405: f"this path takes {error.headers.get('Allow', 'other methods')}",
        413: "the body is too large; large content goes to PUT /v1/blobs/<hash>",
    }
    return problem(error.status, details.get(error.status, error.reason)).problem


def problem_response(shown: Problem, request: web.Request) -> web.Response:
    """Return the document as an answer; a body that was not read is not read any more."""
    headers = (
        {} if shown.retry_after_s is None else {hdrs.RETRY_AFTER: str(max(1, round(shown.retry_after_s)))}
    )
    if shown.status == 401:
        headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    body = msgspec.json.encode(msgspec.structs.replace(shown, request=request[REQUEST_ID]))
    response = web.Response(body=body, status=shown.status, content_type=MEDIA_TYPE, headers=headers)
    if request.body_exists and not request.content.at_eof():
        response.force_close()
    return response


class _Observed:
    """The outermost middleware: request id, counts and durations by route."""

    __middleware_version__ = 1

    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.counter("http_requests", "Requests answered", ("method", "route", "status"))
        self._duration = metrics.histogram("http_request_seconds", "Time to answer", ("method", "route"))

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer the request and count it."""
        request[REQUEST_ID] = secrets.token_hex(8)
        began = time.perf_counter()
        status = 499  # what is counted when the client went away before the answer
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "none"
            method = request.method if request.method in hdrs.METH_ALL else "other"
            self._count.labels(method, route, str(status)).inc()
            self._duration.labels(method, route).observe(time.perf_counter() - began)
