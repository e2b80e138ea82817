"""What producers feel when the queue gets full: refusals that say when to come again, and later answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.api.testing import StoreFacade, serving
from skerry.client import Client
from skerry.errors import QueueFull
from skerry.messages import Lane
from skerry.testing import a_task
from task_queue.limits import MIB, Limits
from task_queue.operations import AppendOutbox, Operation, TrimOutbox
from task_queue.watermarks import SHARES, Level

LIMITS = Limits(max_bytes=MIB)


class FullAgent:
    """An agent's API over a queue of 1 MiB that the test fills and empties."""

    def __init__(self, facade: StoreFacade, client: Client) -> None:
        self._facade = facade
        self.client = client

    def apply(self, *operations: Operation) -> None:
        self._facade._store.apply(operations, now=self._facade._clock.now())

    def fill_to(self, level: Level, *, beyond: float = 0.0) -> None:
        """Append reports until the level holds; beyond: a share of the budget more."""
        wanted = (SHARES[level] + beyond) * LIMITS.enqueue_bytes
        size = int(wanted - self._facade._store.usage().used_bytes) + 1
        for at in range(0, size, 4000):
            self.apply(AppendOutbox(lane=Lane.BACKLOG, kind="task.ended", body=b"1" * min(4000, size - at)))
        assert self._facade._store.depth().level is level

    def drain(self) -> None:
        self.apply(TrimOutbox(lane=Lane.BACKLOG, upto=1 << 40))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[FullAgent]:
    with (
        serving(tmp_path, token="t", limits=LIMITS) as (facade, _),
        Client(socket=tmp_path / "agent.sock") as client,
    ):
        yield FullAgent(facade, client)


@pytest.mark.parametrize(("level", "priority"), [(Level.SLOWED, 1), (Level.URGENT, 6), (Level.CLOSED, 9)])
def test_a_refusal_says_after_how_many_seconds_to_come_again(
    full: FullAgent, level: Level, priority: int
) -> None:
    full.fill_to(level)

    with pytest.raises(QueueFull, match="raise the queue's limit") as refused:
        full.client.submit(a_task(priority=priority))

    assert refused.value.retry_after_s == {Level.SLOWED: 2, Level.URGENT: 5, Level.CLOSED: 15}[level]


def test_a_client_that_may_wait_asks_again_and_is_accepted_once(
    full: FullAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.fill_to(Level.CLOSED)
    waited: list[float] = []

    def while_it_waits(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            full.drain()

    monkeypatch.setattr(time, "sleep", while_it_waits)
    handle = full.client.submit(a_task(), room_timeout_s=60)

    assert handle.is_new
    assert len(waited) == 2
    assert all(15 * 0.75 <= seconds <= 15 * 1.25 for seconds in waited), "not all at one moment"
    assert len(full.client.list().tasks) == 1


def test_a_client_gives_up_when_its_time_would_be_over(full: FullAgent) -> None:
    full.fill_to(Level.CLOSED)

    with pytest.raises(QueueFull):
        full.client.submit(a_task(), room_timeout_s=5)


def test_an_accepted_producer_is_answered_later_when_room_gets_short(full: FullAgent) -> None:
    full.fill_to(Level.SLOWED, beyond=0.03)

    begun = time.monotonic()
    full.client.submit(a_task(priority=4))
    slowed_s = time.monotonic() - begun

    assert slowed_s >= 0.25, "0.03 of the 0.10 between the levels, of one second"


def test_telemetry_of_the_agent_is_dropped_not_refused_and_counted(full: FullAgent) -> None:
    full.fill_to(Level.CLOSED)

    full.apply(*(AppendOutbox(lane=Lane.BACKLOG, kind="decision.recorded", body=b"{}") for _ in range(7)))

    assert [(loss.reason, loss.rows) for loss in full._facade._store.losses()] == [("refused", 7)]
