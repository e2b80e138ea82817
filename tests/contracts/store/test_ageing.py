"""The store's contract, nothing waits for ever: one claim in so many takes the oldest task of all."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from skerry.ids import TaskId
from task_queue.limits import AGEING_SHARE
from task_queue.testing import OpenStore, QueueDriver, memory_opener


def test_one_claim_in_so_many_takes_the_oldest_task(q: QueueDriver) -> None:
    old = [q.enqueue(priority=0), q.enqueue(priority=2)]
    urgent = [q.enqueue(priority=9) for _ in range(3 * AGEING_SHARE)]

    claimed = q.claim(2 * AGEING_SHARE)

    assert claimed[AGEING_SHARE - 1] == old[0]
    assert claimed[2 * AGEING_SHARE - 1] == old[1]
    others = [task_id for task_id in claimed if task_id not in old]
    assert others == urgent[: len(others)], "between them order is by priority"


def test_one_by_one_and_in_batches_the_order_is_the_same(opener: OpenStore) -> None:
    def order(window: int) -> list[int]:
        q = QueueDriver(memory_opener())
        ids = [q.enqueue(priority=n % 10) for n in range(60)]
        claimed: list[TaskId] = []
        while taken := q.claim(window):
            claimed += taken
        return [ids.index(task_id) for task_id in claimed]

    assert order(1) == order(7) == order(100)


def test_the_oldest_is_found_behind_those_that_are_claimed(q: QueueDriver) -> None:
    oldest = [q.enqueue(priority=0) for _ in range(3)]
    for _ in range(4 * AGEING_SHARE):
        q.enqueue(priority=9)

    claimed = q.claim(3 * AGEING_SHARE)

    assert [task_id for task_id in claimed if task_id in oldest] == oldest


@settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=st.lists(st.integers(0, 9), max_size=6),
    priority=st.integers(0, 9),
    rounds=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=12),
)
def test_every_task_is_claimed_within_a_bound_however_many_urgent_ones_arrive(
    before: list[int], priority: int, rounds: list[tuple[int, int]]
) -> None:
    """A task that finds m older ones is among the next 16·(m+1) that are claimed, if so many are."""
    q = QueueDriver(memory_opener())
    for each in before:
        q.enqueue(priority=each)
    task_id = q.enqueue(priority=priority)
    bound = AGEING_SHARE * (len(before) + 1)
    claims, turn = 0, 0
    while claims < bound:
        arrivals, window = rounds[turn % len(rounds)]
        for _ in range(arrivals + window):  # never fewer than are claimed: the flood has no end
            q.enqueue(priority=9)
        claimed = q.claim(window)
        claims += len(claimed)
        turn += 1
        if task_id in claimed:
            return
        for other in claimed:
            q.finish(other, q.start(other))
    raise AssertionError(f"{claims} tasks were claimed, the bound is {bound}")
