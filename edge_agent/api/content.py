"""Routes for content by hash: models and inputs in, large results out."""

from __future__ import annotations

from aiohttp import web

from edge_agent.api.keys import FACADE
from skerry.blobs import BlobStore
from skerry.web.content import content_routes


def _store(request: web.Request) -> BlobStore:
    return request.app[FACADE].blobs


ROUTES = content_routes(_store)
