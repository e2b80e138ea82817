"""One agent as a service: interface, signals and service manager around the running agent. Wiring only."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable

from edge_agent.runtime import Agent
from edge_agent.runtime_build import Parts, open_parts
from edge_agent.runtime_report import register_figures
from edge_agent.settings import AgentSettings, tcp_of
from skerry import __version__
from skerry.lean import stay_small
from skerry.listening import TcpListener, UnixListener, is_loopback
from skerry.metrics import Metrics
from skerry.notify import ServiceManager
from skerry.web import Access, Server, read_or_make_token, serve

log = logging.getLogger(__name__)

#: What running attempts get once a second signal has come, seconds.
HURRIED_GRACE_S = 0.0


async def run_service(settings: AgentSettings, *, on_ready: Callable[[Server], None] | None = None) -> None:
    """Run one agent until SIGTERM or SIGINT; a second signal ends running attempts at once.

    on_ready: called when tasks are accepted.  Raises what open_parts and serve raise, before anything runs.
    """
    parts = await asyncio.to_thread(open_parts, settings)
    try:
        agent = Agent(parts)
        server = await _serve(agent)
        try:
            await _run(agent, server, on_ready)
        finally:
            await server.stop()
            await agent.close()
    finally:
        await asyncio.to_thread(_give_back, parts)


async def _run(agent: Agent, server: Server, on_ready: Callable[[Server], None] | None) -> None:
    manager = ServiceManager(os.environ)
    agent.start()
    _on_signals(agent, manager)
    chores = [asyncio.create_task(_feed(manager)), asyncio.create_task(stay_small())]
    facts = agent.parts.facts
    log.info("agent %s in %s is ready: %s", facts.node, facts.region, ", ".join(server.addresses))
    manager.ready(f"node {facts.node}, {len(agent.parts.inventory.devices)} devices")
    if on_ready is not None:
        on_ready(server)
    try:
        await agent.wait_stopped()
    finally:
        manager.stopping()
        for chore in chores:
            chore.cancel()


def _on_signals(agent: Agent, manager: ServiceManager) -> None:
    grace = [agent.parts.settings.limits.stop_grace_s]

    def stop() -> None:
        manager.stopping()
        log.info("stopping: running attempts get %g s", grace[0])
        agent.request_stop(grace[0])
        grace[0] = HURRIED_GRACE_S

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def _feed(manager: ServiceManager) -> None:
    """Tell the service manager that the event loop turns."""
    while manager.alive_every_s is not None:
        manager.alive()
        await asyncio.sleep(manager.alive_every_s)


async def _serve(agent: Agent) -> Server:
    from edge_agent.api.app import build_agent_app

    settings = agent.parts.settings
    metrics = Metrics("skerry_agent")
    register_figures(metrics, agent)
    tcp = tcp_of(settings)
    unix = None if settings.socket_path is None else UnixListener(path=settings.socket_path)
    app = build_agent_app(agent, version=__version__, access=_access(settings, tcp), metrics=metrics)
    return await serve(app, [listener for listener in (unix, tcp) if listener is not None])


def _access(settings: AgentSettings, tcp: TcpListener | None) -> Access:
    if tcp is None:
        return Access()
    names = () if is_loopback(tcp.host) else (tcp.host,)
    return Access(tokens=(read_or_make_token(settings.token_path),), hosts=names)


def _give_back(parts: Parts) -> None:
    parts.writer.close()
    parts.store.close()
    parts.lock.release()
