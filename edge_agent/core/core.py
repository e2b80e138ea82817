"""The agent's core: `handle(event, now) -> actions`. Owns which part answers which event; holds all state.

Everything that changes the state is called from here, with the moment given. The shell performs the actions
and asks `next_due_in_s` when to tick. What happened is kept as a short story for reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from edge_agent.core.actions import Action, ClearAlarm, Stopped
from edge_agent.core.answers import take_answer
from edge_agent.core.attempts import ended, stop
from edge_agent.core.deciding import admit, devices_changed, redecide_all
from edge_agent.core.entry import ALIVE, HOLDING, PENDING, Content, Phase
from edge_agent.core.events import (
    AttemptEnded,
    CommitFailed,
    Committed,
    ContentMissing,
    ContentReady,
    DevicesChanged,
    Event,
    LinkChanged,
    Observed,
    RulesChanged,
    StopRequested,
    Ticked,
)
from edge_agent.core.limits import Limits
from edge_agent.core.ruling import Decider
from edge_agent.core.starting import ask_again, content_missing, content_ready, start_what_can
from edge_agent.core.state import Facts, State, Turn
from edge_agent.core.storage import commit, commit_failed, commit_worked, retry
from edge_agent.core.timers import next_due, run_timers
from skerry.clock import Instant
from task_queue.operations import Advance, Claim, Release


class AgentCore:
    """Turns what happens into what is to be done. One owner calls it, in the order of events."""

    def __init__(
        self,
        facts: Facts,
        decide: Decider,
        *,
        jitter: Callable[[float], float],
        limits: Limits | None = None,
    ) -> None:
        """jitter: an upper bound in seconds → a random delay between 0 and it."""
        limits = limits or Limits()
        self.state = State(facts, limits, jitter, story=deque(maxlen=limits.story))
        self._decide = decide

    def handle(self, event: Event, now: Instant) -> list[Action]:
        """Take one event and return what is to be done, in order."""
        turn = Turn(self.state, now, now.uptime_s)
        self.state.story.append((turn.uptime_s, type(event).__name__, _subject(event)))
        self._take(turn, event)
        self._go_on(turn)
        return turn.actions

    def next_due_in_s(self, now: Instant) -> float:
        """Return in how many seconds the core wants a tick at the latest."""
        return max(0.0, next_due(self.state) - now.uptime_s)

    def _take(self, turn: Turn, event: Event) -> None:
        match event:
            case Committed():
                operations = commit_worked(turn, event.token)
                for operation, answer in zip(operations, event.answers, strict=True):
                    take_answer(turn, operation, answer, self._decide)
            case CommitFailed():
                commit_failed(turn, event.token, event.message)
            case Observed():
                for operation, answer in zip(event.operations, event.answers, strict=True):
                    take_answer(turn, operation, answer, self._decide)
            case AttemptEnded():
                self._attempt_ended(turn, event)
            case ContentReady() | ContentMissing():
                self._content(turn, event)
            case DevicesChanged():
                devices_changed(turn, event.devices, self._decide)
            case RulesChanged():
                redecide_all(turn, self._decide)
            case LinkChanged():
                self._link_changed(turn, event.is_up)
            case StopRequested():
                self._stop(turn, event.grace_s)
            case Ticked():
                pass

    def _go_on(self, turn: Turn) -> None:
        """What every event is followed by: due timers, starts, claims, and the end of a stop."""
        run_timers(turn, self._decide)
        state, storage = self.state, self.state.storage
        if storage.retry_at is not None and turn.uptime_s >= storage.retry_at:
            retry(turn)
        if storage.deferred_until is not None and turn.uptime_s >= storage.deferred_until:
            deferred, storage.deferred, storage.deferred_until = storage.deferred, [], None
            commit(turn, *deferred)
        while state.successors:
            admit(turn, state.successors.pop(), self._decide)
        start_what_can(turn)
        self._look_at_time(turn)
        self._claim(turn)
        self._finish_stop(turn)

    def _look_at_time(self, turn: Turn) -> None:
        state = self.state
        if state.advance_in_flight or not state.storage.is_ok or state.has_stopped:
            return
        if turn.uptime_s >= state.advance_at:
            state.advance_in_flight = True
            commit(turn, Advance())

    def _claim(self, turn: Turn) -> None:
        state = self.state
        if state.claim_in_flight or state.is_stopping or not state.want_claim or not state.storage.takes_more:
            return
        room = self._room()
        if room > 0:
            state.claim_in_flight, state.want_claim = True, False
            commit(turn, Claim(limit=room))

    def _room(self) -> int:
        """How many tasks to claim: the window's free room, in batches; beyond it when a device idles."""
        state, limits = self.state, self.state.limits
        is_idle = any(lane.free_slots > 0 and not lane.queue for lane in state.lanes.values())
        room = limits.window - state.pending
        if room > 0 and (is_idle or room >= min(limits.claim_batch, limits.window)):
            return room
        return (
            max(0, min(limits.claim_batch, limits.window * limits.window_stretch - state.pending)) * is_idle
        )

    def _attempt_ended(self, turn: Turn, event: AttemptEnded) -> None:
        entry = self.state.entries.get(event.task_id)
        if entry is None or entry.phase not in ALIVE or entry.fence != event.fence:
            self.state.count("attempts_unknown")
            return
        if entry.phase is Phase.LOST:
            turn.act(ClearAlarm(name=f"lost:{entry.device_id}"))
        ended(turn, entry, event)

    def _content(self, turn: Turn, event: ContentReady | ContentMissing) -> None:
        entry = self.state.entries.get(event.task_id)
        if entry is None or entry.content is not Content.FETCHING:
            return
        if isinstance(event, ContentReady):
            content_ready(turn, entry)
        else:
            content_missing(turn, entry, event.message, is_permanent=event.is_permanent)

    def _link_changed(self, turn: Turn, is_up: bool) -> None:
        """A session that comes up wakes every waiting timer."""
        self.state.is_link_up = is_up
        if not is_up:
            return
        for entry in self.state.entries.values():
            if entry.content is Content.FAILED:
                ask_again(turn, entry)

    def _stop(self, turn: Turn, grace_s: float) -> None:
        state = self.state
        stop_at = turn.uptime_s + grace_s
        state.stop_at = stop_at if state.stop_at is None else min(state.stop_at, stop_at)
        for entry in [e for e in state.entries.values() if e.phase in PENDING]:
            state.move(entry, Phase.LEAVING)
            commit(turn, Release(task_id=entry.task_id))

    def _finish_stop(self, turn: Turn) -> None:
        state = self.state
        if state.stop_at is None or state.has_stopped:
            return
        if turn.uptime_s >= state.stop_at:
            for entry in [e for e in state.entries.values() if e.phase is Phase.RUNNING]:
                stop(turn, entry, "shutdown")
        is_quiet = not any(e.phase in HOLDING or e.phase is Phase.ENDING for e in state.entries.values())
        is_late = turn.uptime_s >= state.stop_at + 3 * state.limits.stop_s
        if (is_quiet and not state.storage.in_flight) or is_late:
            state.has_stopped = True
            turn.act(Stopped())


def _subject(event: Event) -> str:
    match event:
        case AttemptEnded():
            return f"{event.task_id} {event.fence} {event.report.status}"
        case ContentReady() | ContentMissing():
            return event.task_id
        case Committed() | CommitFailed():
            return str(event.token)
        case _:
            return ""
