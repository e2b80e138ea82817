"""The wall clock steps between any two operations: every answer and every end is what it is without that.

On both stores, with restarts and suspends in between. The process itself: test_process_clocks.py; recurring
tasks, which may go by the wall clock: test_recurring_clocks.py.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, settings

from skerry.testing import ManualClock
from task_queue.operations import Answer
from task_queue.store import Store, TaskFilter
from task_queue.testing import OpenStore, memory_opener, sqlite_opener
from tests.queue.histories import History

HOUR_S, YEAR_S = 3600.0, 365.25 * 86400.0
STEPS_S = (HOUR_S, -HOUR_S, 20 * YEAR_S, -2 * YEAR_S)
IN_1970_S = 12.0
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Life:
    """One queue, its clock, and the history that it is given."""

    def __init__(self, opener: OpenStore, seed: int, *, wall_s: float | None = None) -> None:
        self.clock = ManualClock() if wall_s is None else ManualClock(wall_s=wall_s)
        self.history = History(self.clock, random.Random(seed), with_recurring=False)
        self._opener = opener
        self.store: Store = opener(self.clock)

    def go_on(self) -> list[Answer]:
        answers = self.store.apply(self.history.propose(), now=self.clock.now())
        self.history.hear(answers)
        return answers

    def suspend(self, seconds: float) -> None:
        self.clock.advance(seconds)  # the boot clock counts a suspend, and so does time in the queue

    def restart(self, *, is_reboot: bool) -> None:
        if is_reboot:
            self.clock.reboot(f"boot-{self.store.session + 1}", off_s=1000.0)
        self.store.close()
        self.store = self._opener(self.clock)
        self.history.restarted()

    def ends(self) -> list[tuple[object, ...]]:
        found = self.store.find(TaskFilter(limit=100_000))
        return [(each.task_id, each.state, each.attempt, each.fence, each.outcome) for each in found]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 30),
    starts_in_1970=st.booleans(),
    events=st.lists(
        st.sampled_from([*STEPS_S, "1970", "suspend", "restart", "reboot", "work", "work", "work"]),
        min_size=10,
        max_size=60,
    ),
)
def test_no_step_of_the_wall_clock_changes_an_answer_or_an_end(
    seed: int, starts_in_1970: bool, events: list[float | str]
) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        steady = Life(memory_opener(), seed)
        stepped = Life(sqlite_opener(Path(folder)), seed, wall_s=IN_1970_S if starts_in_1970 else None)

        for event in events:
            match event:
                case float():
                    stepped.clock.step_wall(event)
                case "1970":
                    stepped.clock.step_wall(IN_1970_S - stepped.clock.wall_s())
                case "suspend":
                    steady.suspend(2 * HOUR_S)
                    stepped.suspend(2 * HOUR_S)
                case "restart" | "reboot":
                    steady.restart(is_reboot=event == "reboot")
                    stepped.restart(is_reboot=event == "reboot")
                case _:
                    pass
            assert stepped.go_on() == steady.go_on()

        assert stepped.ends() == steady.ends()
        assert stepped.store.depth().by_state == steady.store.depth().by_state
        stepped.store.close()
