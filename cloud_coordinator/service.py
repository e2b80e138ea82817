"""Puts a coordinator together from its settings, runs it, and takes it apart in order. Wiring only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import skerry
from cloud_coordinator import api
from cloud_coordinator.api.office import Office
from cloud_coordinator.api.pace import Pace
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.figures import Figures
from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.rollout.service import Policies
from cloud_coordinator.rollout.vetting import ChildVetter
from cloud_coordinator.rounds_wiring import Rounds
from cloud_coordinator.runtime import Runtime
from cloud_coordinator.settings import CoordinatorSettings, tcp_of
from cloud_coordinator.writer import CoreThread
from policy.guard.registry import make_guard
from policy.port import Guard
from skerry import logs
from skerry.blobs import BlobStore
from skerry.clock import Clock, SystemClock
from skerry.errors import SkerryError
from skerry.identity import PrivateKey
from skerry.lock import DirectoryLock
from skerry.notify import ServiceManager
from skerry.topics import COORDINATOR
from skerry.transport.factory import make_transport
from skerry.web import Server, UnixListener, read_or_make_token, serve

log = logging.getLogger(__name__)

#: Figures that need the ledger are read this often, seconds.
FIGURES_EVERY_S = 5.0


def run_coordinator(settings: CoordinatorSettings) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.  Raises what running() raises."""
    logs.set_up(style=settings.log.format, level=settings.log.level)
    return 0 if asyncio.run(_serve_until_stopped(settings)) else 1


@asynccontextmanager
async def running(settings: CoordinatorSettings, *, clock: Clock | None = None) -> AsyncIterator[Office]:
    """Run a coordinator inside the block.

    Raises SettingsError (a port in use), RulesError, DirectoryInUse, StoreTooNew, StorageFailed or
    IdentityError: each names the thing and what to do.
    """
    clock = clock or SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(DirectoryLock(settings.data_path))
        guard = make_guard("rego" if settings.rules.enabled else "off", _rules_directory(settings))
        office = _assemble(settings, guard, clock)
        stack.push_async_callback(office.runtime.stop)
        server = await _listen(office)
        stack.push_async_callback(server.stop)
        office.http_url = settings.advertise.http_url or _own_url(server)
        office.runtime.start()
        office.policies.start()
        stack.push_async_callback(office.policies.stop)
        stack.push_async_callback(office.rounds.close)
        await office.rounds.open()
        figures = asyncio.create_task(_read_figures(office))
        stack.callback(figures.cancel)
        yield office


def _rules_directory(settings: CoordinatorSettings) -> Path | None:
    return Path(settings.rules.directory) if settings.rules.directory else None


def _assemble(settings: CoordinatorSettings, guard: Guard, clock: Clock) -> Office:
    key = PrivateKey.load_or_create(settings.key_path, is_kept_twice=True)
    blobs = BlobStore(settings.data_path / "blobs", settings.content.quota_bytes, clock=clock)
    transport = make_transport(settings.mqtt, client_id=f"skerry-{settings.fleet}-{COORDINATOR}")
    ledger = SqliteLedger(settings.data_path / "ledger.db")
    core = CoordinatorCore(
        ledger,
        guard=guard,
        now=clock.now(),
        wall_s=clock.wall_s(),
        limits=settings.limits,
        placement=settings.placement,
        version=skerry.__version__,
    )
    thread = CoreThread(core, ledger, clock)
    figures = Figures()
    runtime = Runtime(
        settings,
        core=core,
        thread=thread,
        transport=transport,
        key=key,
        guard=guard,
        figures=figures,
        clock=clock,
    )
    office = Office(
        settings=settings,
        runtime=runtime,
        thread=thread,
        blobs=blobs,
        key=key,
        figures=figures,
        clock=clock,
        pace=Pace(settings.nodes.enrol_per_minute),
        ledger_epoch=ledger.epoch,
    )
    vetter = ChildVetter(blobs, settings.policies, settings.data_path / "vetting")
    office.policies = Policies(office.ask_rollouts, blobs, key, vetter, settings.policies)
    office.rounds = Rounds(
        settings.federation,
        settings.data_path / "rounds",
        ask=office.ask,
        handle=office.handle,
        policies=office.policies,
        blobs=blobs,
        key=key,
        clock=clock,
    )
    runtime.on_replies = office.rounds.replies_kept
    return office


async def _listen(office: Office) -> Server:
    settings = office.settings
    token = read_or_make_token(settings.token_path)
    app = api.build(office, tokens=(token,), not_ready_because=_not_ready(office.runtime))
    tcp = tcp_of(settings)
    unix = UnixListener(path=settings.socket_path)
    return await serve(app, [unix] if tcp is None else [unix, tcp])


def _not_ready(runtime: Runtime) -> Callable[[], tuple[str, ...]]:
    return lambda: () if runtime.is_up else ("there is no connection to the broker",)


def _own_url(server: Server) -> str:
    return next((address for address in server.addresses if address.startswith("http")), "")


async def _read_figures(office: Office) -> None:
    while True:
        try:
            tasks, nodes, counters = await office.ask(
                lambda core: (core.ledger.count_tasks(), core.nodes(), core.ledger.counters())
            )
        except (SkerryError, TimeoutError) as error:
            log.warning("the ledger's figures could not be read: %s", error)
        else:
            totals: Counter[str] = Counter()
            for counter in counters:
                totals[counter.name] += counter.count
            office.figures.tasks = {state.value: float(count) for state, count in tasks.items()}
            office.figures.nodes = {k: float(v) for k, v in Counter(node.status for node in nodes).items()}
            office.figures.ledger = {name: float(count) for name, count in totals.items()}
        await asyncio.sleep(FIGURES_EVERY_S)


async def _serve_until_stopped(settings: CoordinatorSettings) -> bool:
    """Run until told to stop (True) or until the core's thread failed (False)."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    manager = ServiceManager(os.environ)
    async with running(settings) as office:
        office.runtime.on_tick = manager.alive
        manager.ready(f"fleet {settings.fleet}, term {office.runtime.term}")
        log.info("coordinator of fleet %s, term %d, is running", settings.fleet, office.runtime.term)
        waits = [asyncio.create_task(event.wait()) for event in (stopped, office.thread.crashed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        manager.stopping()
        log.info("stopping")
        return not office.thread.crashed.is_set()
