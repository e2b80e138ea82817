"""What the agent says of itself: a report for people, the state for the coordinator, figures for monitors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from edge_agent.core.entry import HOLDING
from edge_agent.core.state import State as CoreState
from edge_agent.queue_report import recurring_figures
from skerry import __version__
from skerry.clock import is_wall_trusted
from skerry.documents import ContentReport, DeviceLoad, LinkReport, NodeReport, QueueReport
from skerry.errors import StorageFailed
from skerry.link.edge import Phase
from skerry.messages import Birth, Lane, State
from skerry.metrics import Metrics
from task_queue.damage.salvage import EPOCHS
from task_queue.store import Depth, Store
from task_queue.task import State as TaskState
from task_queue.watermarks import Level

if TYPE_CHECKING:
    from edge_agent.runtime import Agent

_WAITING = (TaskState.READY, TaskState.DELAYED, TaskState.BLOCKED, TaskState.LEASED)


class StoreNow(msgspec.Struct, frozen=True):
    """Which store there is. heads: the highest row ever put into each lane of its outbox."""

    epoch: str
    salvaged_from: tuple[str, ...]
    heads: Mapping[Lane, int]


def device_loads(core: CoreState, uptime_s: float) -> dict[str, DeviceLoad]:
    """Return what each device has to do, by device id."""
    return {
        view.device.device_id: DeviceLoad(
            running=view.running, queued=view.queued, backlog_s=round(view.backlog_s, 3)
        )
        for view in core.view(uptime_s).devices
    }


def birth_of(agent: Agent, *, session: int, command_epoch: str) -> Birth:
    """Return the first word of this process's session."""
    parts = agent.parts
    return Birth(
        boot_id=parts.clock.now().boot_id,
        session=session,
        process=parts.rng.randbytes(8).hex(),
        inventory=agent.inventory_now(),
        region=parts.facts.region,
        site=parts.facts.site,
        version=__version__,
        store_epoch=parts.store.epoch,
        salvaged_from=tuple(parts.store.meta(EPOCHS) or ()),
        command_epoch=command_epoch,
        is_clock_trusted=is_wall_trusted(parts.clock.wall_s()),
    )


def store_now(agent: Agent) -> StoreNow:
    """Return which store there is now; only a fresh one is asked for more than its name."""
    store = agent.parts.store
    epoch = store.epoch
    if agent.uplink is None or epoch == agent.uplink.store_epoch:
        return StoreNow(epoch, (), {})
    return StoreNow(epoch, tuple(store.meta(EPOCHS) or ()), store.depth().written)


def damage_alarm(store: Store) -> dict[str, str]:
    """Return what to say of a database that was damaged while this process ran, or before it opened."""
    told = store.salvaged
    if told is None:
        return {}
    lost = ", ".join(f"{count} of {table}" for table, count in told.lost.items()) or "none"
    return {
        "damage": f"the queue's database was damaged: {told.rows_kept} rows were kept, lost: {lost}; the "
        f"damaged file is quarantine/{told.quarantined} in the data directory"
    }


def why_closed(store: Store) -> tuple[str, ...]:
    """Say why no task is taken in, whatever its priority; nothing while some would be."""
    try:
        depth = store.depth()
    except StorageFailed as error:
        return (str(error),)
    return (depth.shortage,) if depth.level >= Level.CLOSED else ()


async def state_of(agent: Agent) -> State:
    """Return what the node does now, for the coordinator."""

    def ask(store: Store) -> tuple[Depth, tuple[str, ...]]:
        return store.depth(), tuple(store.held_placements())

    depth, holds = await asyncio.wrap_future(agent.parts.writer.read(ask))
    core, facts = agent.core, agent.parts.facts
    loads = device_loads(core, agent.parts.clock.now().uptime_s)
    return State(
        session=_session_of(agent),
        queued=sum(depth.by_state.get(state, 0) for state in _WAITING),
        running=sum(entry.phase in HOLDING for entry in core.entries.values()),
        outbox=sum(depth.outbox.values()),
        free_cpu_millicores=max(0, facts.cpu_millicores - core.used_cpu_millicores),
        free_memory_bytes=max(0, facts.memory_bytes - core.used_memory_bytes),
        holds=holds,
        device_load={device_id: load.backlog_s for device_id, load in loads.items()},
    )


def _session_of(agent: Agent) -> int:
    return agent.parts.store.session if agent.uplink is None else agent.uplink.session


async def report_of(agent: Agent) -> NodeReport:
    """Return what the node has, does and knows of its link now."""
    parts = agent.parts
    depth = await asyncio.wrap_future(parts.writer.read(lambda store: store.depth()))
    now = parts.clock.now()
    return NodeReport(
        node=parts.facts.node,
        fleet=parts.enrolment.fleet if parts.enrolment is not None else "",
        region=parts.facts.region,
        site=parts.facts.site,
        version=__version__,
        inventory=agent.inventory_now(),
        link=link_report(agent),
        queue=QueueReport(
            by_state={state.value: count for state, count in depth.by_state.items()},
            outbox={lane.value: count for lane, count in depth.outbox.items()},
            bytes_used=depth.bytes_used,
            bytes_limit=parts.settings.queue.max_bytes,
        ),
        load=device_loads(agent.core, now.uptime_s),
        content=ContentReport(bytes_used=parts.blobs.used_bytes, bytes_limit=parts.blobs.quota_bytes),
        scheduler=parts.decider.scheduler.name,
        rules=parts.decider.guard.revision,
        refused=dict(agent.uplink.refused) if agent.uplink is not None else {},
        alarms={**agent.alarms_now(), **({"room": depth.shortage} if depth.shortage else {})},
        placement_ms=agent.uplink.round_trips.latest_ms if agent.uplink is not None else (),
        uptime_s=round(now.since(agent.started_at), 3),
        is_clock_trusted=is_wall_trusted(parts.clock.wall_s()),
    )


def link_report(agent: Agent) -> LinkReport:
    """Return how the connection to the coordinator stands."""
    if agent.uplink is None:
        return LinkReport(state="off", reason="this node is not enrolled: `skerry enrol` enrols it")
    is_up = agent.uplink.phase is Phase.WELCOMED
    return LinkReport(
        state="up" if is_up else "down",
        for_s=round(agent.parts.clock.now().since(agent.uplink.changed_at), 3),
        reason="" if is_up else agent.uplink.down_reason,
        broker=agent.parts.mqtt.url,
        session=agent.uplink.session,
    )


def register_figures(metrics: Metrics, agent: Agent) -> None:
    """Show the agent's figures to monitors, read when they ask."""
    store = agent.parts.store
    metrics.read_on_demand(
        "tasks",
        "Tasks by state.",
        "state",
        lambda: {s.value: float(n) for s, n in store.depth().by_state.items()},
    )
    metrics.read_on_demand(
        "outbox_rows",
        "Unsent messages.",
        "lane",
        lambda: {k.value: float(n) for k, n in store.depth().outbox.items()},
    )
    metrics.read_on_demand(
        "lost_rows",
        "Rows evicted, expired, dead-lettered or not let in, by class and reason.",
        "loss",
        lambda: {f"{loss.lost_class}: {loss.reason}": float(loss.rows) for loss in store.losses()},
    )
    metrics.read_on_demand(
        "salvaged_rows",
        "Rows of a damaged database that were kept or lost, since the agent started.",
        "row",
        lambda: (
            {"kept": float(told.rows_kept), "lost": float(told.rows_lost)} if (told := store.salvaged) else {}
        ),
    )
    metrics.read_on_demand(
        "recurring_runs",
        "Runs of recurring tasks: accepted, missed (could not begin in time), owed (will be made up for).",
        "run",
        lambda: recurring_figures(store.recurring(now=agent.parts.clock.now())),
    )
    metrics.read_on_demand(
        "queue_level",
        "How short the queue's room is, 0 (free) to 4 (closed).",
        "queue",
        lambda: {"tasks": float(store.depth().level)},
    )
    metrics.read_on_demand(
        "events",
        "What the agent counted.",
        "what",
        lambda: {k: float(n) for k, n in agent.core.counts.items()},
    )
    metrics.read_on_demand(
        "refused_messages",
        "Messages refused, by reason.",
        "reason",
        lambda: {k: float(n) for k, n in agent.uplink.refused.items()} if agent.uplink is not None else {},
    )
    metrics.read_on_demand(
        "link_up", "1 while the coordinator answers.", "link", lambda: {"coordinator": float(_is_up(agent))}
    )


def _is_up(agent: Agent) -> bool:
    return agent.uplink is not None and agent.uplink.phase is Phase.WELCOMED
