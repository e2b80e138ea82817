"""The core's timers: every phase that waits has its way out taken when its time comes."""

from __future__ import annotations

import heapq

from edge_agent.core.attempts import overdue
from edge_agent.core.deciding import decide_entry
from edge_agent.core.entry import ALIVE, Content, Entry, Phase
from edge_agent.core.ruling import Decider
from edge_agent.core.starting import ask_again, content_missing
from edge_agent.core.state import State, Turn


def run_timers(turn: Turn, decide: Decider) -> None:
    """Look at each entry whose timer is due; a timer that was overtaken by events does nothing.

    The first one is not that of an entry that has left: the shell would wake up for it.
    """
    timers, entries = turn.state.timers, turn.state.entries
    while timers and (timers[0][0] <= turn.uptime_s or timers[0][1] not in entries):
        _due, task_id = heapq.heappop(timers)
        entry = entries.get(task_id)
        if entry is not None:
            _look_at(turn, entry, decide)


def _look_at(turn: Turn, entry: Entry, decide: Decider) -> None:
    if entry.content_until is not None and turn.uptime_s >= entry.content_until:
        _content_due(turn, entry)
    if entry.until is None or turn.uptime_s < entry.until:
        return
    entry.until = None
    if entry.phase in ALIVE:
        overdue(turn, entry)
    elif entry.phase is Phase.WAITING:
        decide_entry(turn, entry, decide)


def _content_due(turn: Turn, entry: Entry) -> None:
    if entry.content is Content.FETCHING:
        content_missing(turn, entry, "its content did not come in time", is_permanent=False)
    else:
        ask_again(turn, entry)


def next_due(state: State) -> float:
    """Return the uptime of the next thing that time will ask for."""
    storage = state.storage
    dues = [due for due in (storage.retry_at, storage.deferred_until) if due is not None]
    if state.timers:
        dues.append(state.timers[0][0])
    if storage.is_ok and not state.advance_in_flight and not state.has_stopped:
        dues.append(state.advance_at)
    if state.stop_at is not None and not state.has_stopped:
        late = state.stop_at + 3 * state.limits.stop_s
        is_running = any(entry.phase is Phase.RUNNING for entry in state.entries.values())
        dues.append(state.stop_at if is_running else late)
    return min(dues, default=float("inf"))
