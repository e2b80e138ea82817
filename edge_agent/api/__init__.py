"""The agent's HTTP API: submit, look, wait, cancel, watch, content. It knows the agent by one port."""

from __future__ import annotations

from edge_agent.api.app import build_agent_app
from edge_agent.api.port import AgentFacade

__all__ = ["AgentFacade", "build_agent_app"]
