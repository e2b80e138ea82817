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
from edge_agent.core.state import Facts
from edge_agent.decider import PolicyDecider
from edge_agent.leftovers import remove_unfinished, why_not_to_begin
from edge_agent.outgoing import OWED
from edge_agent.profile_cache import ProfileCache
from edge_agent.settings import AgentSettings, default_node_name
from policy.baselines.registry import make_scheduler
from policy.guard.engine import INSTALL, is_installed
from policy.guard.registry import make_guard
from policy.profile import RuntimeProfile
from skerry.blobs import BlobStore
from skerry.clock import Clock, SystemClock
from skerry.durable import write_whole
from skerry.errors import SettingsError
from skerry.lock import DirectoryLock
from skerry.messages import Lane
from skerry.node import Inventory
from skerry.task import blobs_of
from skerry.transport.settings import MqttSettings
from task_queue.limits import Limits as QueueLimits
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store, TaskFilter
from task_queue.task import OPEN
from task_queue.writer import StoreWriter

if TYPE_CHECKING:
    from edge_agent.content import Remote
    from skerry.identity import Enrolment, PrivateKey

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
    except FileExistsError as error:
        raise SettingsError(f"data_dir {settings.home} is a file, not a directory: choose another") from error
    except OSError as error:
        raise SettingsError(f"data_dir {settings.home} cannot be used: {error.strerror}") from error


def _open(settings: AgentSettings, lock: DirectoryLock, clock: Clock, rng: Random) -> Parts:
    enrolment, key = _identity(settings)
    left = end_orphans(settings.home)
    if left:
        log.warning("ended %d processes that an earlier agent left running", left)
    why_not = why_not_to_begin(settings.home)
    if why_not:
        raise SettingsError(why_not)
    unfinished = remove_unfinished(settings.home)
    if unfinished:
        log.warning("removed what an earlier agent did not finish: %s", ", ".join(unfinished))
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
        limits=queue_limits(settings),
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


def _identity(settings: AgentSettings) -> tuple[Enrolment | None, PrivateKey | None]:
    """Return who this node is. A node that is not enrolled never loads what signs and verifies."""
    if not settings.is_enrolled:
        return None, None
    from skerry.identity import Enrolment, PrivateKey

    enrolment = Enrolment.load(settings.enrolment_path)
    if enrolment is None:
        return None, None
    name = settings.node.name
    if name and name != enrolment.node:
        log.warning("node.name is %r in the settings; this machine is enrolled as %r", name, enrolment.node)
    _mend_password(settings.password_path, enrolment.broker_password)
    return enrolment, PrivateKey.load_or_create(settings.key_path, is_kept_twice=True)


def _mend_password(path: Path, password: str) -> None:
    """Write the broker's password again where its file is gone or blank; one that people changed stays."""
    try:
        is_there = path.exists() and path.read_bytes().strip(b"\0\n")
        if password and not is_there:
            log.warning("%s is gone or blank: it is written again", path)
            write_whole(path, f"{password}\n".encode())
    except OSError as error:  # who needs it will say what hinders
        log.warning("%s was not looked after: %s", path, error.strerror)


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


def queue_limits(settings: AgentSettings) -> QueueLimits:
    """Return the bounds of the queue that the settings ask for."""
    queue = settings.queue
    return QueueLimits(
        max_bytes=queue.max_bytes,
        free_floor_bytes=queue.min_free_bytes,
        max_log_bytes=queue.max_log_bytes,
        keep_ended=queue.keep_ended,
        synchronous=queue.synchronous,
    )


def _mqtt(settings: AgentSettings, enrolment: Enrolment | None) -> MqttSettings:
    """The broker's settings: the file's own words count more than what enrolment said."""
    mqtt = settings.mqtt
    if enrolment is None:
        return mqtt
    if not mqtt.url:
        mqtt = msgspec.structs.replace(mqtt, url=enrolment.broker_url)
    if not mqtt.username and enrolment.broker_username:
        mqtt = msgspec.structs.replace(
            mqtt,
            username=enrolment.broker_username,
            password_file=str(settings.password_path) if enrolment.broker_password else "",
        )
    return mqtt


def build_content(parts: Parts, remote: Remote | None = None) -> ContentCache:
    """Return the content cache, with the coordinator behind it on an enrolled node.

    remote: instead of the one that the settings name.
    """
    remote = remote or _remote(parts)

    async def referenced() -> frozenset[str]:
        return await asyncio.wrap_future(parts.writer.read(needed_contents))

    return ContentCache(
        parts.blobs,
        remote,
        clock=parts.clock,
        referenced=referenced,
        keep_s=parts.settings.content.keep_s,
        rng=parts.rng,
    )


def _remote(parts: Parts) -> Remote | None:
    if parts.enrolment is None or parts.key is None:
        return None
    from edge_agent.coordinator_http import CoordinatorContent

    settings = parts.settings.coordinator
    return CoordinatorContent(
        settings.url or parts.enrolment.coordinator_url,
        node=parts.enrolment.node,
        key=parts.key,
        ca=_path(settings.ca_file),
    )


def needed_contents(store: Store) -> frozenset[str]:
    """Return what unfinished tasks need, and what reports refer to that are not at the coordinator yet."""
    from edge_agent.uplink_rows import contents_of  # brings the link's forms: on enrolled nodes only

    names: set[str] = set()
    before = None
    while page := store.find(TaskFilter(states=tuple(OPEN), limit=500, before=before)):
        names.update(name for record in page for name in blobs_of(record.task))
        before = page[-1].task_id
    after = 0
    while rows := store.outbox(Lane.LIVE, after, limit=500, limit_bytes=8 << 20):
        names.update(name for row in rows for name in contents_of(row))
        after = rows[-1].seq
    names.update(store.meta(OWED) or ())
    return frozenset(names)


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
