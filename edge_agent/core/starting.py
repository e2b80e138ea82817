"""Filling free device slots: whose turn it is, whether its content is here, whether the node has room."""

from __future__ import annotations

from edge_agent.core.actions import FetchContent, LetContentGo
from edge_agent.core.deciding import leave
from edge_agent.core.entry import PENDING, Content, Entry, Phase
from edge_agent.core.lately import begun
from edge_agent.core.state import Lane, Turn
from edge_agent.core.storage import commit
from task_queue.operations import Operation, Start

#: Contents asked for ahead, beyond a device's slots, so that a slow fetch holds up no task behind it.
FETCH_AHEAD = 4


def start_what_can(turn: Turn) -> None:
    """Reserve room for every task that can start now, and have the starts committed together."""
    state = turn.state
    if state.is_stopping or not state.storage.takes_more:
        return
    starts: list[Operation] = []
    for device_id in sorted(state.lanes):
        lane = state.lanes[device_id]
        while lane.queue and lane.free_slots > 0 and (entry := _next_of(turn, lane)) is not None:
            entry.started_at, entry.passed_over_since = turn.uptime_s, None
            begun(lane, entry)
            state.move(entry, Phase.STARTING)
            starts.append(Start(task_id=entry.task_id, device=device_id, decision=entry.decision))
    if starts:
        commit(turn, *starts)


def _next_of(turn: Turn, lane: Lane) -> Entry | None:
    asked = 0
    starving = _starving(turn)
    for entry in _in_turn(turn, lane):
        if entry.content is not Content.PRESENT:
            asked += _ask_for_content(turn, entry, asked < lane.device.slots + FETCH_AHEAD)
            continue
        if starving is not None and entry is not starving:
            continue  # room is being kept for one that waited too long
        if turn.state.has_room(entry):
            return entry
        if entry.passed_over_since is None:
            entry.passed_over_since = turn.uptime_s
            turn.state.set_timer(entry, turn.uptime_s + turn.state.limits.starve_after_s)
    return None


def _in_turn(turn: Turn, lane: Lane) -> list[Entry]:
    """The queue in order, but one that stands there for too long first."""
    if not lane.queue:
        return []
    oldest = min(lane.queue, key=lambda entry: entry.seq)
    if turn.uptime_s - oldest.entered_at < turn.state.limits.starve_after_s:
        return list(lane.queue)
    return [oldest, *(entry for entry in lane.queue if entry is not oldest)]


def _starving(turn: Turn) -> Entry | None:
    """The task, of all devices, that was passed over for too long because it needs much."""
    limit = turn.uptime_s - turn.state.limits.starve_after_s
    passed = (
        entry
        for lane in turn.state.lanes.values()
        if lane.device.usable
        for entry in lane.queue
        if entry.passed_over_since is not None and entry.passed_over_since <= limit
    )
    return min(passed, key=lambda entry: entry.seq, default=None)


def _ask_for_content(turn: Turn, entry: Entry, may_ask: bool) -> int:
    if entry.content is Content.ABSENT and may_ask:
        within = turn.state.limits.content_s
        entry.content, entry.content_until = Content.FETCHING, turn.uptime_s + within + 5.0
        turn.state.set_timer(entry, entry.content_until)
        turn.act(FetchContent(task_id=entry.task_id, hashes=entry.hashes, within_s=within))
        return 1
    return int(entry.content is Content.FETCHING)


def content_ready(turn: Turn, entry: Entry) -> None:
    """A task's content is here: it may start when its turn comes."""
    entry.content, entry.content_until, entry.content_tries = Content.PRESENT, None, 0


def content_missing(turn: Turn, entry: Entry, message: str, *, is_permanent: bool) -> None:
    """A task's content could not be had: ask again later, or let the task leave."""
    state, limits = turn.state, turn.state.limits
    entry.content_message = message
    if entry.phase not in PENDING:
        return
    if is_permanent:
        leave(turn, entry, message)
        return
    delay = min(limits.content_retry_first_s * 2 ** min(entry.content_tries, 16), limits.content_retry_most_s)
    entry.content_tries += 1
    entry.content, entry.content_until = Content.FAILED, turn.uptime_s + delay
    state.set_timer(entry, entry.content_until)


def ask_again(turn: Turn, entry: Entry) -> None:
    """Forget that a task's content could not be had, so that it is asked for once more."""
    if entry.content in (Content.FAILED, Content.FETCHING):
        entry.content, entry.content_until = Content.ABSENT, None


def let_content_go(turn: Turn, entry: Entry) -> None:
    """Tell the content cache that this task needs nothing any more."""
    if entry.hashes and entry.content is not Content.ABSENT:
        turn.act(LetContentGo(task_id=entry.task_id))
