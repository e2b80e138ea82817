"""Reading requests: typed query parameters and bodies. A mistake becomes a problem naming the field."""

from __future__ import annotations

import asyncio
import difflib
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from skerry.decoding import MALFORMED, why_malformed
from skerry.errors import SpecError
from skerry.nearest import name_nearest
from skerry.problem import problem
from skerry.web.routes import BODY_LIMIT_BYTES

#: A document is small: one that takes longer is a broken or an idle client, which must not hold a connection.
BODY_TIME_S = 30.0

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


async def read_body(request: web.Request, limit_bytes: int = BODY_LIMIT_BYTES) -> bytes:
    """Return the whole body.  Raises problem 413 when it is above the limit, 408 when it comes too slowly."""
    if (request.content_length or 0) > limit_bytes:
        raise too_large(limit_bytes)
    try:
        async with asyncio.timeout(BODY_TIME_S):
            return await _read(request, limit_bytes)
    except web.RequestPayloadError as error:
        raise problem(400, f"the body cannot be read: {' '.join(str(error).split())}") from error
    except TimeoutError as error:
        raise problem(408, f"the body did not arrive within {BODY_TIME_S:g} s") from error


async def _read(request: web.Request, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_chunked(64 * 1024):
        size += len(part)
        if size > limit_bytes:
            raise too_large(limit_bytes)
        parts.append(part)
    return b"".join(parts)


def too_large(limit_bytes: int) -> BaseException:
    """Return the problem of a body above the limit."""
    return problem(
        413, f"the body is above the limit of {limit_bytes} bytes; large content goes to PUT /v1/blobs/<hash>"
    )


async def read_json(request: web.Request, kind: type[T], limit_bytes: int = BODY_LIMIT_BYTES) -> T:
    """Return the JSON body as `kind`.  Raises problem 400 when it is not JSON, SpecError for a field."""
    return decode_json(await read_body(request, limit_bytes), kind)


def decode_json(document: bytes, kind: type[T]) -> T:
    """Return the document as `kind`.  Raises problem 400 when it is not JSON, SpecError for a field."""
    try:
        return msgspec.json.decode(document, type=kind)
    except msgspec.ValidationError as error:
        raise _named(str(error), kind) from error
    except MALFORMED as error:
        raise problem(400, f"the body is not valid JSON: {why_malformed(error)}") from error


def read_query(request: web.Request, kind: type[S]) -> S:
    """Return the query parameters as `kind`; a list takes several values, or commas.

    Raises SpecError that names the parameter; for an unknown one, the nearest known.
    """
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name in request.query:
        if name not in known:
            raise SpecError(f"unknown parameter {name!r}{_hint(name, list(known))}", field=name)
        given = [part for text in request.query.getall(name) for part in text.split(",")]
        is_list = "tuple" in str(known[name].type)
        values[name] = given if is_list else request.query[name]
    try:
        return msgspec.convert(values, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise _named(str(error), kind) from error


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(sorted(known)) or 'none'}"


def _named(text: str, kind: Any) -> SpecError:
    message, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        message = name_nearest(kind, message, field)
        if message.startswith("unknown field"):
            return SpecError(message, field=field)
    return SpecError(f"{field}: {message}" if field else message, field=field)


def json_response(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return any msgspec value as JSON."""
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json", headers=headers
    )
