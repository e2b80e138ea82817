"""Routes for content by hash: models and inputs in, large results out."""

from __future__ import annotations

from aiohttp import web

from edge_agent.api.keys import FACADE
from skerry.blobs import BlobStore
from skerry.web.content import content_routes


def _store(request: web.Request) -> BlobStore:
    return request.app[FACADE].blobs


def _stored(request: web.Request, name: str) -> None:
    request.app[FACADE].content_added(name)


ROUTES = content_routes(_store, stored=_stored)
