"""The OpenAPI document of a service, made from its table of routes and the types in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from skerry.problem import MEDIA_TYPE, Problem
from skerry.web.routes import Answer, Route

_REF = "#/components/schemas/{name}"


def openapi(routes: Sequence[Route], *, title: str, version: str) -> dict[str, Any]:
    """Return the document, OpenAPI 3.1; types appear once, under components."""
    types = [*_types(routes), Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.plain_path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(routes: Iterable[Route]) -> list[Any]:
    found = [route.body for route in routes if route.body is not None]
    found += [answer.body for route in routes for answer in route.answers if answer.body is not None]
    found += [field.type for route in routes if route.query for field in _fields(route.query)]
    return list({id(kind): kind for kind in found}.values())


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """The fields, their types the same objects each time."""
    return msgspec.structs.fields(kind)


def _operation(route: Route, schema_of: dict[int, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route, schema_of), *_headers(route)],
        "responses": {**_answers(route.answers, schema_of), **_refusals(route, schema_of)},
        "security": [] if route.is_open else [{"token": []}],
    }
    if route.body is not None or route.body_media_type != "application/json":
        schema = {} if route.body is None else schema_of[id(route.body)]
        operation["requestBody"] = {"required": True, "content": {route.body_media_type: {"schema": schema}}}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in route.parameters
    ]


def _query_parameters(route: Route, schema_of: dict[int, Any]) -> list[dict[str, Any]]:
    fields = _fields(route.query) if route.query else ()
    return [
        {"name": f.encode_name, "in": "query", "required": f.required, "schema": schema_of[id(f.type)]}
        for f in fields
    ]


def _headers(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": what, "schema": {"type": "string"}}
        for name, what in route.headers.items()
    ]


def _answers(answers: Iterable[Answer], schema_of: dict[int, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for answer in answers:
        found[str(answer.status)] = {"description": answer.what}
        if answer.body is not None or answer.media_type != "application/json":
            schema = {} if answer.body is None else schema_of[id(answer.body)]
            found[str(answer.status)]["content"] = {answer.media_type: {"schema": schema}}
    return found


def _refusals(route: Route, schema_of: dict[int, Any]) -> dict[str, Any]:
    statuses = {400, 500, *route.refusals} | (set() if route.is_open else {401})
    content = {MEDIA_TYPE: {"schema": schema_of[id(Problem)]}}
    return {str(s): {"description": HTTPStatus(s).phrase, "content": content} for s in sorted(statuses)}
