"""The core's whole state as a document, and back: what a recording begins with, and a fingerprint to compare.

Owns which parts make up the state. The story and the source of random delays are not among them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

import msgspec

from edge_agent.core.entry import Entry
from edge_agent.core.limits import Limits
from edge_agent.core.redaction import redacted
from edge_agent.core.state import Facts, Lane, State, Storage
from policy.history import History
from skerry.ids import TaskId
from skerry.node import Device
from task_queue.operations import ClaimedTask

_encode = msgspec.json.Encoder().encode


class LaneNow(msgspec.Struct, frozen=True, kw_only=True):
    """One device's lane; its entries are named, for they are the window's own."""

    device: Device
    queue: tuple[TaskId, ...]
    queued_s: float
    running: tuple[TaskId, ...]
    history: History
    loaded: tuple[str, ...]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a core at one moment."""

    facts: Facts
    limits: Limits
    entries: tuple[Entry, ...]
    lanes: tuple[LaneNow, ...]
    successors: tuple[ClaimedTask, ...]
    pending: int
    used_cpu_millicores: int
    used_memory_bytes: int
    storage: Storage
    device_faults: dict[TaskId, int]
    want_claim: bool
    claim_in_flight: bool
    advance_at: float
    advance_in_flight: bool
    is_link_up: bool
    stop_at: float | None
    has_stopped: bool
    timers: tuple[tuple[float, TaskId], ...]
    counts: dict[str, int]


#: Fields that a snapshot and a state hold in the same form.
_PLAIN = tuple(
    name
    for name in Snapshot.__struct_fields__
    if name not in ("entries", "lanes", "successors", "timers", "facts", "limits")
)


def snapshot(state: State) -> Snapshot:
    """Return the state as it is now; it shares what the core changes: encode it before the next event."""
    return Snapshot(
        facts=state.facts,
        limits=state.limits,
        entries=tuple(state.entries.values()),
        lanes=tuple(_lane_now(lane) for lane in state.lanes.values()),
        successors=tuple(state.successors),
        timers=tuple(state.timers),
        **{name: getattr(state, name) for name in _PLAIN},
    )


def restore(taken: Snapshot, jitter: Callable[[float], float]) -> State:
    """Return the state that a snapshot shows.  jitter: see State."""
    entries = {entry.task_id: entry for entry in taken.entries}
    return State(
        taken.facts,
        taken.limits,
        jitter,
        entries=entries,
        lanes={lane.device.device_id: _lane(lane, entries) for lane in taken.lanes},
        successors=list(taken.successors),
        timers=list(taken.timers),
        story=deque(maxlen=taken.limits.story),
        **{name: getattr(taken, name) for name in _PLAIN},
    )


def fingerprint(state: State) -> str:
    """Return a hash of everything the core knows, but for what is redacted in a report."""
    document = redacted(msgspec.to_builtins(snapshot(state), enc_hook=str), is_sparse=True)
    return hashlib.blake2b(_encode(document), digest_size=12).hexdigest()


def _lane_now(lane: Lane) -> LaneNow:
    return LaneNow(
        device=lane.device,
        queue=tuple(entry.task_id for entry in lane.queue),
        queued_s=lane.queued_s,
        running=tuple(lane.running),
        history=lane.history,
        loaded=lane.loaded,
    )


def _lane(lane: LaneNow, entries: dict[TaskId, Entry]) -> Lane:
    return Lane(
        lane.device,
        queue=[entries[task_id] for task_id in lane.queue],
        queued_s=lane.queued_s,
        running={task_id: entries[task_id] for task_id in lane.running},
        history=lane.history,
        loaded=lane.loaded,
    )
