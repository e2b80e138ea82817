"""Puts the routes together. Owns the table; the habits are skerry.web's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

import skerry
from cloud_coordinator import rounds_http
from cloud_coordinator.api import content, enrolment, fleet, policies
from cloud_coordinator.api.office import OFFICE, Office
from skerry.web import Access, Route, build_app

TITLE = "Skerry coordinator"
ROUTES: tuple[Route, ...] = (
    *fleet.ROUTES,
    *enrolment.ROUTES,
    *content.ROUTES,
    *policies.ROUTES,
    *rounds_http.ROUTES,
)


def build(
    office: Office, *, tokens: tuple[str, ...], not_ready_because: Callable[[], Sequence[str]]
) -> web.Application:
    """Return the application.  tokens: what TCP clients must show."""
    app = build_app(
        ROUTES,
        title=TITLE,
        version=skerry.__version__,
        access=Access(tokens=tokens, hosts=office.settings.api.hosts),
        metrics=office.figures.metrics,
        not_ready_because=not_ready_because,
    )
    app[OFFICE] = office
    return app
