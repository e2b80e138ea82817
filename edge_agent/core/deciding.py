"""Deciding where a task in the window runs, waits or goes, on entry and again when something changed."""

from __future__ import annotations

from edge_agent.core.entry import PENDING, Content, Entry, Phase
from edge_agent.core.lately import placed
from edge_agent.core.ruling import Decider, Ruling
from edge_agent.core.state import Turn
from edge_agent.core.storage import commit
from skerry.node import Device
from skerry.task import blobs_of
from task_queue.operations import ClaimedTask, HandOver, Operation, Park, RefusePlacement


def admit(turn: Turn, claimed: ClaimedTask, decide: Decider) -> None:
    """Take a claimed task into the window and decide it."""
    entry = Entry(
        task_id=claimed.task_id,
        task=claimed.task,
        attempt=claimed.attempt,
        placement=claimed.placement,
        seq=claimed.seq,
        entered_at=turn.uptime_s,
        hashes=blobs_of(claimed.task),
        deadline_at=None if claimed.deadline_in_s is None else turn.uptime_s + claimed.deadline_in_s,
    )
    entry.content = Content.ABSENT if entry.hashes else Content.PRESENT
    turn.state.add(entry)
    decide_entry(turn, entry, decide)


def decide_entry(turn: Turn, entry: Entry, decide: Decider) -> None:
    """Put a pending task into a device's queue, let it wait, or let it leave this node."""
    state = turn.state
    ruling = decide(entry.task_id, entry.task, state.view(turn.uptime_s), turn.now)
    entry.decision = ruling.decision
    if ruling.device_id is not None and _fits_ever(turn, entry):
        state.move(entry, Phase.WAITING)  # out of the queue it may stand in, before its device changes
        entry.device_id, entry.runtime_s, entry.waits = ruling.device_id, ruling.runtime_s, 0
        entry.is_measured, entry.load_s = ruling.is_measured, ruling.load_s
        placed(state, entry)
        state.move(entry, Phase.QUEUED)
    elif ruling.is_permanent or not _fits_ever(turn, entry):
        leave(turn, entry, _why(turn, entry, ruling))
    else:
        _wait(turn, entry, ruling)


def _fits_ever(turn: Turn, entry: Entry) -> bool:
    facts, need = turn.state.facts, entry.task.resources
    return need.cpu_millicores <= facts.cpu_millicores and need.memory_bytes <= facts.memory_bytes


def _why(turn: Turn, entry: Entry, ruling: Ruling) -> str:
    facts, need = turn.state.facts, entry.task.resources
    if ruling.device_id is None:
        return ruling.decision.reason or f"no device of {facts.node} may run it"
    if need.memory_bytes > facts.memory_bytes:
        return f"it needs {need.memory_bytes} bytes of memory, {facts.node} has {facts.memory_bytes}"
    return f"it needs {need.cpu_millicores} CPU millicores, {facts.node} has {facts.cpu_millicores}"


def _wait(turn: Turn, entry: Entry, ruling: Ruling) -> None:
    state, limits = turn.state, turn.state.limits
    if entry.waits == 0:
        entry.waiting_since = turn.uptime_s
    waited = turn.uptime_s - entry.waiting_since
    may_leave = state.facts.is_enrolled or entry.placement is not None
    if may_leave and waited >= limits.handover_after_s:
        leave(turn, entry, f"{_why(turn, entry, ruling)} (for {waited:.0f} s)")
        return
    delay = min(limits.redecide_first_s * 2 ** min(entry.waits, 16), limits.redecide_most_s)
    entry.waits += 1
    state.move(entry, Phase.WAITING)
    entry.device_id = None
    state.move(entry, Phase.WAITING, until=turn.uptime_s + delay)


def leave(turn: Turn, entry: Entry, reason: str) -> None:
    """Give a task away that cannot run here: to the coordinator, or, where there is none, to a person."""
    operation: Operation
    if entry.placement is not None:
        operation = RefusePlacement(task_id=entry.task_id, reason=reason)
    elif turn.state.facts.is_enrolled:
        operation = HandOver(task_id=entry.task_id, reason=reason, decision=entry.decision)
    else:
        operation = Park(task_id=entry.task_id, reason=reason, decision=entry.decision)
    turn.state.move(entry, Phase.LEAVING)
    commit(turn, operation)


def devices_changed(turn: Turn, devices: tuple[Device, ...], decide: Decider) -> None:
    """Take the devices as they are now; decide again what stood in the queue of one that is out of use."""
    lanes = turn.state.lanes
    now = {device.device_id: device for device in devices}
    for device in devices:
        turn.state.set_device(device)
    for device_id, lane in lanes.items():
        if device_id not in now and lane.device.usable:
            lane.device = _gone(lane.device)
    redecide_all(turn, decide, only_stranded=True)


def _gone(device: Device) -> Device:
    fields = {name: getattr(device, name) for name in device.__struct_fields__}
    return Device(**{**fields, "usable": False, "reason": "it was unplugged"})


def redecide_all(turn: Turn, decide: Decider, *, only_stranded: bool = False) -> None:
    """Decide pending tasks again: all, or those that wait or whose device is out of use."""
    lanes = turn.state.lanes
    for entry in list(turn.state.entries.values()):
        lane = lanes.get(entry.device_id or "")
        is_stranded = lane is None or not lane.device.usable
        if entry.phase in PENDING and (is_stranded or not only_stranded):
            decide_entry(turn, entry, decide)
