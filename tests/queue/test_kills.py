"""SIGKILL of a real process at random moments: what it was promised is there, and each end is there once.

The counts of docs/evidence/queue-torture.json come from the same code: `make torture ARGS=queue`.
"""

from __future__ import annotations

import pytest

from task_queue.testing import QueueDriver, memory_opener
from tests.chaos.queue_promises import Promises
from tests.chaos.queue_torture import bout_apart


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [20260, 20261])
def test_kills_at_random_moments_lose_nothing_and_end_nothing_twice(seed: int) -> None:
    bout = bout_apart(seed, 30)

    assert bout.violations == ()
    assert bout.kills == 30
    assert min(bout.accepted, bout.done, bout.reported) > 30, "too little was at stake"


LATER = f"{9:032x}"
HAD_ENDED = f"a {LATER} k", f"s {LATER} 1.1 0", f"d {LATER} 1.1"


@pytest.mark.parametrize(
    ("facts", "violation"),
    [
        ((f"a {LATER} -",), "is lost"),
        ((f"a {LATER} k", f"a {8:032x} k"), "names"),
        ((f"s {LATER} 1 0", f"s {LATER} 1 0"), "ran twice under"),
        ((f"s {LATER} 1 1", f"s {LATER} 2 1"), "may run once only"),
        ((*HAD_ENDED, f"s {LATER} 1.2 0"), "had ended and ran again"),
        ((*HAD_ENDED, f"d {LATER} 1.1"), "finished twice"),
        (("r 1 a", "r 1 b"), "report 1 spoke of"),
        (("r 1 a", "r 3 b"), "after report 1 came 3"),
        (("r 1 a", "r 2 a"), "reported twice"),
        (("m 5",), "the inbox was marked"),
        (("x error",), "ended by itself"),
    ],
)
def test_the_judge_of_the_kills_sees_each_broken_promise(facts: tuple[str, ...], violation: str) -> None:
    promises = Promises()

    for fact in facts:
        promises.hear(fact)
    driver = QueueDriver(memory_opener())
    promises.compare(driver.store, driver.clock.now(), with_invariants=True)

    assert any(violation in each for each in promises.violations), promises.violations


def test_the_judge_of_the_kills_sees_a_row_that_was_mixed_up_and_an_end_that_is_undone() -> None:
    driver = QueueDriver(memory_opener())
    task_id = driver.enqueue(argv=("echo", "of another task"))
    promises = Promises()

    for fact in (f"a {task_id} -", f"s {task_id} 1 0", f"d {task_id} 1"):
        promises.hear(fact)
    promises.compare(driver.store, driver.clock.now(), with_invariants=True)

    assert [each.partition(task_id)[2].split(":")[0] for each in promises.violations] == [
        " carries something else",
        " had ended as (<State.DONE",
    ]
