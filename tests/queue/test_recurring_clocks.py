"""Recurring tasks under clocks and power that do as they like: no time early, none twice, both stores alike.

Ended tasks are forgotten at once here, so that no idempotency key helps: the schedule itself must know.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from skerry.clock import is_wall_trusted
from skerry.recurring import RecurringSpec
from skerry.testing import a_task
from task_queue.operations import Advance, Advanced, DropRecurring, PutRecurring
from task_queue.testing import ROOMY, QueueDriver, check_invariants, memory_opener, sqlite_opener

FORGETFUL = msgspec.structs.replace(ROOMY, keep_ended=0, keep_ended_s=0.0)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
YEAR = 365 * 86400.0

SPECS: dict[str, dict[str, Any]] = {
    "minutes": {"cron": "*/7 * * * *", "missed": "all"},
    "hours": {"cron": "0 * * * *", "timezone": "Europe/Berlin", "missed": "once"},
    "beat": {"every_s": 45, "missed": "all", "missed_limit": 3},
    "calm": {"every_s": 600, "overlap": "allow"},
}
STEPS = (-3600.0, 3600.0, -61.0, 20 * YEAR, -2 * YEAR, -1.7e9)

Action = tuple[str, Any]
ACTIONS = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from([1.0, 30.0, 59.0, 420.0, 3600.0, 9000.0])),
    st.tuples(st.just("step"), st.sampled_from(STEPS)),
    st.tuples(st.just("right"), st.none()),
    st.tuples(st.just("reboot"), st.sampled_from([0.0, 1800.0, 86400.0])),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("drain"), st.none()),
    st.tuples(st.just("put"), st.sampled_from(sorted(SPECS))),
)


class Watched:
    """A store whose every fired time is judged."""

    def __init__(self, opener: Any) -> None:
        self.q = QueueDriver(opener, limits=FORGETFUL)
        self.q.clock.step_wall(NOON - self.q.clock.wall_s())
        self.ahead_s = 0.0  #: what the wall clock is wrong by
        self.fired: list[str] = []

    def do(self, action: Action) -> None:
        """Let something happen, then let time be looked at."""
        what, value = action
        q = self.q
        match what:
            case "advance":
                q.clock.advance(value)
            case "step":
                q.clock.step_wall(value)
                self.ahead_s += value
            case "right":
                q.clock.step_wall(-self.ahead_s)
                self.ahead_s = 0.0
            case "reboot":
                q.reboot(off_s=value)
            case "kill":
                q.kill()
            case "drain":
                q.drain()
            case "put":
                spec = RecurringSpec(name=value, task=a_task(), **SPECS[value])
                q.one(PutRecurring(recurring_id=q.ids.next(), spec=spec))
        self.look()

    def look(self) -> None:
        """Advance, and judge what came due."""
        wall_s = self.q.clock.wall_s()
        answer = self.q.one(Advance())
        assert isinstance(answer, Advanced)
        for task_id in answer.fired:
            key = self.q.record(task_id).task.idempotency_key or ""
            _, _, moment = key.partition("@")
            if not moment.startswith("on"):
                assert is_wall_trusted(wall_s), f"{key} was fired by a clock that is not trusted"
                at = datetime.strptime(moment, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC).timestamp()
                assert at <= wall_s, f"{key} was fired early, at {wall_s}"
            self.fired.append(key)


def run(opener: Any, actions: list[Action]) -> list[str]:
    """Return the keys of what a store fired, in order."""
    store = Watched(opener)
    for name in SPECS:
        store.do(("put", name))
    for action in actions:
        store.do(action)
    check_invariants(store.q.store)
    store.q.store.close()
    return store.fired


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(ACTIONS, min_size=5, max_size=50))
def test_no_time_is_fired_early_or_twice_whatever_clocks_and_power_do(actions: list[Action]) -> None:
    fired = run(memory_opener(), actions)

    assert len(set(fired)) == len(fired), "a time was fired twice"


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(ACTIONS, min_size=5, max_size=25))
def test_both_stores_fire_the_same(actions: list[Action]) -> None:
    with TemporaryDirectory() as folder:
        assert run(sqlite_opener(Path(folder)), actions) == run(memory_opener(), actions)


def test_a_day_of_good_clocks_fires_every_time_exactly_once() -> None:
    store = Watched(memory_opener())
    for name in ("minutes", "hours"):
        store.do(("put", name))
    for _ in range(24 * 60):
        store.do(("advance", 60.0))
        store.q.drain()

    by_name = {name: [key for key in store.fired if f":{name}@" in key] for name in SPECS}
    assert len(by_name["hours"]) == 24
    assert len(by_name["minutes"]) == 24 * 9  # 0, 7, … 56 of each hour
    store.q.one(DropRecurring(name="hours"))
