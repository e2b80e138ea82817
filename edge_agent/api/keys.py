"""Where handlers find the agent."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from edge_agent.api.port import AgentFacade

# A Protocol is no concrete class, so the key is made with Any and typed here.
FACADE: web.AppKey[AgentFacade] = web.AppKey[Any]("FACADE")
