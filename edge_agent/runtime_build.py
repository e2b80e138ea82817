"""Opening what an agent is made of, in order: lock, devices, rules, store. Errors name what to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from devices.discovery import build_executors, discover
from devices.executors.orphans import end_orphans
from devices.port import Executor
from edge_agent.content import ContentCache
from edge_agent.coordinator_http import CoordinatorContent
from edge_agent.core.state import Facts
from edge_agent.decider import PolicyDecider
from edge_agent.enrol import PASSWORD_FILE
from edge_agent.profile_cache import ProfileCache
from edge_agent.runtime_report import birth_of, state_of
from edge_agent.settings import AgentSettings, default_node_name
from edge_agent.uplink import COMMAND_EPOCH, DEAD_LETTERS, LEASE_S, Identity, Uplink
from edge_agent.uplink_rows import OutboxReader
from policy.baselines.registry import make_scheduler
from policy.guard.engine import INSTALL, is_installed
from policy.guard.registry import make_guard
from policy.profile import RuntimeProfile
from skerry.blobs import BlobStore
from skerry.clock import Clock, SystemClock
from skerry.errors import SettingsError
from skerry.identity import Enrolment, PrivateKey
from skerry.link.edge import EdgeLink
from skerry.lock import DirectoryLock
from skerry.messages import Lane
from skerry.node import Inventory
from skerry.task import blobs_of
from skerry.topics import COORDINATOR
from skerry.transport.factory import make_transport
from skerry.transport.port import Will
from skerry.transport.settings import MqttSettings
from task_queue.limits import Limits as QueueLimits
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store, TaskFilter
from task_queue.task import OPEN
from task_queue.writer import StoreWriter

if TYPE_CHECKING:
    from edge_agent.runtime import Agent

log = logging.getLogger(__name__)

#: What tasks may use of the memory found, when the settings do not say: the agent and the system need some.
MEMORY_SHARE = 0.9


@dataclass(kw_only=True)
class Parts:
    """What an agent is made of."""

    settings: AgentSettings
    clock: Clock
    rng: Random
    lock: DirectoryLock
    facts: Facts
    inventory: Inventory
    executors: Mapping[tuple[str, str], Executor]
    decider: PolicyDecider
    profile_cache: ProfileCache
    store: Store
    writer: StoreWriter
    blobs: BlobStore
    mqtt: MqttSettings
    enrolment: Enrolment | None = None
    key: PrivateKey | None = None
    alarms: dict[str, str] = field(default_factory=dict)  #: raised while opening


def open_parts(settings: AgentSettings, *, clock: Clock | None = None, rng: Random | None = None) -> Parts:
    """Lock the data directory and open everything in it.

    Raises DirectoryInUse, StoreTooNew, StorageFailed, SettingsError, RulesError, IdentityError: each says
    what to do. Whatever was opened by then is given back.
    """
    clock = clock or SystemClock()
    lock = _lock(settings)
    try:
        return _open(settings, lock, clock, rng or Random())
    except BaseException:
        lock.release()
        raise


def _lock(settings: AgentSettings) -> DirectoryLock:
    try:
        return DirectoryLock(settings.home)
    except OSError as error:
        raise SettingsError(f"data_dir {settings.home} cannot be used: {error.strerror}") from error


def _open(settings: AgentSettings, lock: DirectoryLock, clock: Clock, rng: Random) -> Parts:
    enrolment = Enrolment.load(settings.enrolment_path)
    _check_name_against(settings, enrolment)
    key = PrivateKey.load_or_create(settings.key_path) if enrolment is not None else None
    left = end_orphans(settings.home)
    if left:
        log.warning("ended %d processes that an earlier agent left running", left)
    inventory = discover(settings.devices)
    facts = _facts(settings, enrolment, inventory)
    profile, cache = RuntimeProfile(), ProfileCache(settings.home / "profile.db")
    cache.load(profile)
    guard = make_guard("rego" if settings.rules.enabled else "off", _path(settings.rules.directory))
    decider = PolicyDecider(guard, make_scheduler(settings.scheduler.name), profile, clock.wall_s)
    alarms = {"rules": INSTALL} if settings.rules.enabled and not is_installed() else {}
    blobs = BlobStore(settings.home / "content", settings.content.quota_bytes, clock=clock)
    store = SqliteStore.open(
        settings.home / "queue.db",
        now=clock.now(),
        wall_s=clock.wall_s,
        reports=enrolment is not None,
        limits=_queue_limits(settings),
    )
    return Parts(
        settings=settings,
        clock=clock,
        rng=rng,
        lock=lock,
        facts=facts,
        inventory=inventory,
        executors=build_executors(inventory, settings.devices, data_dir=settings.home, clock=clock),
        decider=decider,
        profile_cache=cache,
        store=store,
        writer=StoreWriter(store, clock),
        blobs=blobs,
        mqtt=_mqtt(settings, enrolment),
        enrolment=enrolment,
        key=key,
        alarms=alarms,
    )


def _check_name_against(settings: AgentSettings, enrolment: Enrolment | None) -> None:
    name = settings.node.name
    if enrolment is not None and name and name != enrolment.node:
        log.warning("node.name is %r in the settings; this machine is enrolled as %r", name, enrolment.node)


def _facts(settings: AgentSettings, enrolment: Enrolment | None, inventory: Inventory) -> Facts:
    node, limits = settings.node, settings.limits
    return Facts(
        node=enrolment.node if enrolment is not None else node.name or default_node_name(),
        region=enrolment.region if enrolment is not None else node.region,
        site=enrolment.site if enrolment is not None else node.site,
        labels=node.labels,
        cpu_millicores=limits.cpu_millicores or inventory.cpu_millicores,
        memory_bytes=limits.memory_bytes or int(inventory.memory_bytes * MEMORY_SHARE),
        is_enrolled=enrolment is not None,
    )


def _queue_limits(settings: AgentSettings) -> QueueLimits:
    queue = settings.queue
    return QueueLimits(
        max_bytes=queue.max_bytes, free_floor_bytes=queue.min_free_bytes, keep_ended=queue.keep_ended
    )


def _mqtt(settings: AgentSettings, enrolment: Enrolment | None) -> MqttSettings:
    """The broker's settings: the file's own words count more than what enrolment said."""
    mqtt = settings.mqtt
    if enrolment is None:
        return mqtt
    if not mqtt.url:
        mqtt = msgspec.structs.replace(mqtt, url=enrolment.broker_url)
    if not mqtt.username and enrolment.broker_username:
        password = settings.enrolment_path.parent / PASSWORD_FILE
        mqtt = msgspec.structs.replace(
            mqtt,
            username=enrolment.broker_username,
            password_file=str(password) if enrolment.broker_password else "",
        )
    return mqtt


def build_content(parts: Parts) -> ContentCache:
    """Return the content cache, with the coordinator behind it on an enrolled node."""
    remote = None
    if parts.enrolment is not None and parts.key is not None:
        settings = parts.settings.coordinator
        url = settings.url or parts.enrolment.coordinator_url
        remote = CoordinatorContent(
            url, node=parts.enrolment.node, key=parts.key, ca_file=str(_path(settings.ca_file) or "")
        )

    async def referenced() -> frozenset[str]:
        return await asyncio.wrap_future(parts.writer.read(_needed))

    return ContentCache(
        parts.blobs,
        remote,
        clock=parts.clock,
        referenced=referenced,
        keep_s=parts.settings.content.keep_s,
        rng=parts.rng,
    )


def _needed(store: Store) -> frozenset[str]:
    """The contents that tasks which have not ended still need."""
    names: set[str] = set()
    before = None
    while page := store.find(TaskFilter(states=tuple(OPEN), limit=500, before=before)):
        names.update(name for record in page for name in blobs_of(record.task))
        before = page[-1].task_id
    return frozenset(names)


def build_uplink(agent: Agent) -> Uplink | None:
    """Return the link to the coordinator, None on a node that is not enrolled."""
    parts = agent.parts
    if parts.enrolment is None or parts.key is None:
        return None
    store = parts.store
    birth = birth_of(agent, command_epoch=store.meta(COMMAND_EPOCH) or "")
    uplink: Uplink | None = None

    def will() -> Will:
        assert uplink is not None
        return uplink.will()

    def mark_of(epoch: str, lane: Lane) -> int:
        return store.inbox_mark(COORDINATOR, epoch, lane)

    uplink = Uplink(
        Identity(enrolment=parts.enrolment, key=parts.key, session=store.session),
        make_transport(parts.mqtt, client_id=f"{parts.enrolment.fleet}-{parts.enrolment.node}", will=will),
        EdgeLink(birth, mark_of=mark_of, rng=parts.rng),
        agent.loop,
        OutboxReader(parts.writer, agent.content.upload),
        birth=birth,
        clock=parts.clock,
        state_of=lambda: state_of(agent),
        dead_letters=store.meta(DEAD_LETTERS),
        lease_s=store.meta(LEASE_S) or 0.0,
    )
    return uplink


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
