"""The core's invariants, checked after every event in tests: what must hold whatever has happened."""

from __future__ import annotations

from edge_agent.core.entry import ALIVE, HOLDING, PENDING, Content, Phase
from edge_agent.core.state import State


class InvariantBroken(AssertionError):
    """The core's state contradicts itself."""


def check(state: State) -> None:
    """Raise InvariantBroken, with the story so far, unless every invariant holds."""
    broken = [*_sums(state), *_queues(state), *_entries(state)]
    if broken:
        story = "\n".join(f"  {at:.3f} {what} {who}" for at, what, who in list(state.story)[-40:])
        raise InvariantBroken("\n".join(broken) + "\nstory:\n" + story)


def _sums(state: State) -> list[str]:
    entries = state.entries.values()
    holding = [entry for entry in entries if entry.phase in HOLDING]
    cpu = sum(entry.task.resources.cpu_millicores for entry in holding)
    memory = sum(entry.task.resources.memory_bytes for entry in holding)
    pending = sum(entry.phase in PENDING for entry in entries)
    most = state.limits.window * state.limits.window_stretch + state.limits.claim_batch
    found = [
        (state.used_cpu_millicores == cpu, f"used_cpu_millicores {state.used_cpu_millicores} != {cpu}"),
        (state.used_memory_bytes == memory, f"used_memory_bytes {state.used_memory_bytes} != {memory}"),
        (cpu <= state.facts.cpu_millicores, f"processor time overcommitted: {cpu}"),
        (memory <= state.facts.memory_bytes, f"memory overcommitted: {memory}"),
        (state.pending == pending, f"pending {state.pending} != {pending}"),
        (pending <= most, f"{pending} tasks in the window"),
    ]
    return [message for holds, message in found if not holds]


def _queues(state: State) -> list[str]:
    broken = []
    for device_id, lane in state.lanes.items():
        queued = [e for e in state.entries.values() if e.device_id == device_id and e.phase is Phase.QUEUED]
        running = [e for e in state.entries.values() if e.device_id == device_id and e.phase in HOLDING]
        if sorted(map(id, queued)) != sorted(map(id, lane.queue)):
            broken.append(f"queue of {device_id} does not match its entries")
        if [e.order for e in lane.queue] != sorted(e.order for e in lane.queue):
            broken.append(f"queue of {device_id} is out of order")
        if {e.task_id for e in running} != set(lane.running):
            broken.append(f"running on {device_id} does not match its entries")
        if len(running) > lane.device.slots:
            broken.append(f"{len(running)} attempts on {device_id}, which has {lane.device.slots} slots")
    return broken


def _entries(state: State) -> list[str]:
    """Each entry can go on by itself: it has a timer, a queue, a commit on its way, or a report kept."""
    storage = state.storage
    written = [op for operations in storage.in_flight.values() for op in operations]
    written += [*storage.unsaved, *storage.deferred]
    named = {getattr(op, "task_id", None) for op in written}
    due = {task_id for _at, task_id in state.timers}
    broken = []
    for task_id, entry in state.entries.items():
        if entry.phase in (Phase.STARTING, Phase.ENDING, Phase.LEAVING) and task_id not in named:
            broken.append(f"{task_id} is {entry.phase} and nothing is being committed for it")
        if entry.phase in ALIVE and (entry.fence is None or entry.until is None or task_id not in due):
            broken.append(f"{task_id} is {entry.phase} without a fence or a deadline")
        if entry.phase is Phase.WAITING and (entry.until is None or task_id not in due):
            broken.append(f"{task_id} waits for ever")
        if entry.content in (Content.FETCHING, Content.FAILED) and (
            entry.content_until is None or task_id not in due
        ):
            broken.append(f"{task_id} waits for its content for ever")
    return broken
