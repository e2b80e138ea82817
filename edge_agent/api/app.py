"""The agent's application: its routes under the habits of skerry.web."""

from __future__ import annotations

from aiohttp import web

from edge_agent.api import batch, content, inspection, node, recurring, tasks
from edge_agent.api.keys import FACADE
from edge_agent.api.port import AgentFacade
from skerry.metrics import Metrics
from skerry.web import Access, Route, build_app

TITLE = "Skerry agent"
ROUTES: tuple[Route, ...] = (
    *tasks.ROUTES,
    *batch.ROUTES,
    *recurring.ROUTES,
    *inspection.ROUTES,
    *node.ROUTES,
    *content.ROUTES,
)


def build_agent_app(
    facade: AgentFacade, *, version: str, access: Access, metrics: Metrics
) -> web.Application:
    """Return the agent's HTTP application; skerry.web.serve() runs it."""
    app = build_app(
        ROUTES,
        title=TITLE,
        version=version,
        access=access,
        metrics=metrics,
        not_ready_because=facade.not_ready_because,
    )
    app[FACADE] = facade
    return app
