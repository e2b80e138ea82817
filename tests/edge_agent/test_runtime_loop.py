"""The core's shell: what shares a sync reaches the core at once, and each waiter gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from edge_agent.core.core import AgentCore
from edge_agent.core.events import Event, Observed
from edge_agent.runtime_loop import CoreLoop
from edge_agent.testing import FACTS
from skerry.clock import Instant
from skerry.errors import QueueError, StorageFailed
from skerry.testing import ManualClock
from task_queue.memory_store import MemoryStore
from task_queue.operations import Answer, Operation, PutMeta
from task_queue.testing import ROOMY
from task_queue.writer import StoreWriter


class GatedStore(MemoryStore):
    """A store whose commits wait for a gate; `poison` cannot be written."""

    gate = threading.Event()

    def apply(self, operations: Sequence[Operation], *, now: Instant) -> list[Answer]:
        """See Store."""
        assert self.gate.wait(30)
        if any(isinstance(one, PutMeta) and one.name == "poison" for one in operations):
            raise StorageFailed("this one cannot be written")
        return super().apply(operations, now=now)


class Listener(AgentCore):
    """The real core; keeps what other parts' commits it was shown."""

    def __init__(self) -> None:
        super().__init__(FACTS, _undecided, jitter=lambda bound: 0.0)
        self.observed: list[list[str]] = []

    def handle(self, event: Event, now: Instant) -> list[Any]:
        """See AgentCore."""
        if isinstance(event, Observed):
            self.observed.append([_name(one) for one in event.operations])
        return super().handle(event, now)


def _undecided(*_: object) -> Any:
    raise AssertionError("there is no task to decide about")


def _name(operation: Operation) -> str:
    assert isinstance(operation, PutMeta)
    return operation.name


def on_a_loop(work: Callable[[CoreLoop, Listener, GatedStore], Awaitable[None]]) -> None:
    """Run work with a core on a gated store; the gate is opened by `work`, or at its end."""

    async def run() -> None:
        clock = ManualClock()
        store = GatedStore(now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)
        store.gate = threading.Event()
        writer, core = StoreWriter(store, clock), Listener()
        loop = CoreLoop(core, writer, clock)
        try:
            await work(loop, core, store)
        finally:
            store.gate.set()
            loop.stop()
            await asyncio.to_thread(writer.close)

    asyncio.run(run())


def put(name: str) -> PutMeta:
    """Keep a value."""
    return PutMeta(name=name, value=1)


def test_the_core_hears_at_once_and_in_order_of_all_that_shared_a_sync() -> None:
    async def work(loop: CoreLoop, core: Listener, store: GatedStore) -> None:
        waiting = [asyncio.ensure_future(loop.commit(put(f"n{number}"))) for number in range(5)]
        await asyncio.sleep(0)
        store.gate.set()
        answers = await asyncio.gather(*waiting)

        assert [len(each) for each in answers] == [1] * 5
        assert core.observed == [[f"n{number}" for number in range(5)]]

    on_a_loop(work)


def test_a_commit_that_fails_is_kept_from_the_core_and_fails_for_its_waiter_alone() -> None:
    async def work(loop: CoreLoop, core: Listener, store: GatedStore) -> None:
        names = ("a", "poison", "b")
        waiting = [asyncio.ensure_future(loop.commit(put(name))) for name in names]
        await asyncio.sleep(0)
        store.gate.set()
        first, second, third = await asyncio.gather(*waiting, return_exceptions=True)

        assert isinstance(second, StorageFailed)
        assert isinstance(first, list)
        assert isinstance(third, list)
        assert core.observed == [["a", "b"]]

    on_a_loop(work)


def test_who_stops_waiting_does_not_take_its_commit_back() -> None:
    async def work(loop: CoreLoop, core: Listener, store: GatedStore) -> None:
        leaving = asyncio.ensure_future(loop.commit(put("left")))
        staying = asyncio.ensure_future(loop.commit(put("stays")))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        store.gate.set()
        await staying

        assert core.observed == [["left", "stays"]]
        assert store.meta("left") == 1

    on_a_loop(work)


def test_a_listener_that_breaks_keeps_nobody_waiting() -> None:
    broken: list[dict[str, Any]] = []

    async def work(loop: CoreLoop, core: Listener, store: GatedStore) -> None:
        def break_down(operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
            raise ValueError("a listener's own mistake")

        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        loop.seen.append(break_down)
        waiting = [asyncio.ensure_future(loop.commit(put(f"n{number}"))) for number in range(3)]
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.wait_for(asyncio.gather(*waiting), 30)

    on_a_loop(work)

    assert len(broken) >= 3  # the core's own commits are told to listeners, too
    assert {type(context["exception"]) for context in broken} == {ValueError}


def test_a_commit_after_the_writer_closed_is_refused() -> None:
    async def work(loop: CoreLoop, core: Listener, store: GatedStore) -> None:
        store.gate.set()
        await loop.commit(put("n"))
        await asyncio.to_thread(loop._writer.close)
        with pytest.raises(QueueError, match="closing"):
            await loop.commit(put("late"))

    on_a_loop(work)
