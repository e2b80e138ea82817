"""Durable puts by waiting coroutines on the way that the agent really uses, in a process of its own.

`python -m benchmarks.queue.agent_path SPEC` (JSON) prints one document. Three ways: `writer` is the
StoreWriter alone; `agent` is the whole agent's submit, without HTTP, on a node that has a coordinator; `door`
the same on a node without one, which decides at the door whether it could ever run the task. The agent is
busy, as one that gathers a backlog is: its slots are taken and its window is full.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.harness import BenchmarkError
from benchmarks.queue.port import bodies
from benchmarks.queue.preload import counts
from benchmarks.queue.session import Lap, Session, producers_named
from benchmarks.queue.systems.skerry_store import LIMITS, task_of
from edge_agent.core.entry import Phase
from edge_agent.runtime import Agent
from edge_agent.runtime_build import open_parts
from edge_agent.settings import AgentSettings, LimitSettings
from skerry.clock import SystemClock
from skerry.ids import TaskIdSource
from skerry.task import CommandSpec, Resources, TaskSpec
from task_queue.operations import Enqueue, Enqueued
from task_queue.sqlite_store import SqliteStore
from task_queue.writer import StoreWriter

Way = Literal["writer", "agent", "door"]
#: Puts so many tasks at once.
Put = Callable[[int], Awaitable[object]]
#: Tasks that a producer of batches puts at a time.
BATCH = 100
#: Tasks that take the slots and fill the window before anything is measured.
_BUSY = 500
_SETTLE_S = 20.0
#: Puts before a lap is measured, so that the first commits' growth of the file is over.
_WARM_UP_S = 0.2


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Which way, how many waiters one after another, and how long each lap lasts.

    batchers: so many waiters that put BATCH tasks at a time.
    """

    way: Way
    directory: str
    waiters: tuple[int, ...]
    lap_s: float
    batchers: tuple[int, ...] = ()


async def run(spec: Spec) -> Session:
    """Measure each number of waiters."""
    began = time.perf_counter()
    async with _WAYS[spec.way](Path(spec.directory)) as put:
        opened_s = time.perf_counter() - began
        laps = [await _lap(put, count, spec.lap_s) for count in spec.waiters]
        laps += [await _lap(put, count, spec.lap_s, BATCH) for count in spec.batchers]
    return Session(reopen_s=opened_s, peak_bytes=0, laps=tuple(laps))


async def _lap(put: Put, waiters: int, lap_s: float, batch: int = 1) -> Lap:
    await _all_put(put, waiters, batch, time.perf_counter() + _WARM_UP_S)
    before, cpu, wall = counts(), time.process_time(), time.perf_counter()
    units = await _all_put(put, waiters, batch, wall + lap_s)
    wall_s, cpu_s, after = time.perf_counter() - wall, time.process_time() - cpu, counts()
    return Lap(
        work=producers_named(waiters, batch),
        units=units,
        wall_s=wall_s,
        cpu_s=cpu_s,
        syncs=after.syncs - before.syncs,
        log_bytes=after.log_bytes - before.log_bytes,
        other_bytes=after.other_bytes - before.other_bytes,
    )


async def _all_put(put: Put, waiters: int, batch: int, until: float) -> int:
    return sum(await asyncio.gather(*(_waiter(put, batch, until) for _ in range(waiters))))


async def _waiter(put: Put, batch: int, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        answer = await put(batch)
        for one in answer if isinstance(answer, list) else (answer,):
            if not isinstance(one, Enqueued):
                raise BenchmarkError(f"a put was refused: {one}")
        count += batch
    return count


@asynccontextmanager
async def _writer(directory: Path) -> AsyncIterator[Put]:
    clock = SystemClock()
    store = SqliteStore.open(directory / "queue.db", now=clock.now(), wall_s=clock.wall_s, limits=LIMITS)
    writer = StoreWriter(store, clock)
    ids, task = TaskIdSource(clock.wall_s), task_of(bodies(1)[0])

    def put(count: int) -> Awaitable[object]:
        return writer.commit(
            [Enqueue(task_id=ids.next(), task=task, wall_s=time.time()) for _ in range(count)]
        )

    try:
        yield put
    finally:
        await asyncio.to_thread(writer.close)
        store.close()


@asynccontextmanager
async def _agent(directory: Path, *, has_coordinator: bool) -> AsyncIterator[Put]:
    limits = LimitSettings(handover_after_s=3600.0)  # nothing is handed over while it is measured
    parts = open_parts(AgentSettings(data_dir=str(directory), limits=limits))
    parts.facts = msgspec.structs.replace(parts.facts, is_enrolled=has_coordinator)
    agent = Agent(parts)
    agent.start()
    try:
        await _make_busy(agent)
        task = task_of(bodies(1)[0])
        yield lambda count: agent.submit(task) if count == 1 else agent.submit_many([task] * count)
    finally:
        agent.request_stop(0.0)
        await agent.wait_stopped()
        await agent.close()


async def _make_busy(agent: Agent) -> None:
    task = TaskSpec(
        spec=CommandSpec(argv=("/bin/sleep", "3600")),
        kind="benchmark/sleep",
        priority=9,
        resources=Resources(cpu_millicores=1, memory_bytes=64 << 20, accelerator="none"),
    )
    await asyncio.gather(*(agent.submit(task) for _ in range(_BUSY)))
    deadline = time.monotonic() + _SETTLE_S
    while not _is_busy(agent):
        if time.monotonic() > deadline:
            raise BenchmarkError("the agent's slots were not taken in time")
        await asyncio.sleep(0.05)  # waiting for processes to start


def _is_busy(agent: Agent) -> bool:
    state = agent.core
    phases = [entry.phase for entry in state.entries.values()]
    is_full = all(lane.free_slots == 0 for lane in state.lanes.values())
    return bool(phases) and is_full and Phase.STARTING not in phases and not state.claim_in_flight


_WAYS: dict[str, Callable[[Path], AbstractAsyncContextManager[Put]]] = {
    "writer": _writer,
    "agent": lambda directory: _agent(directory, has_coordinator=True),
    "door": lambda directory: _agent(directory, has_coordinator=False),
}


def main(arguments: Sequence[str]) -> int:
    """Measure what the one argument says; print it."""
    spec = msgspec.json.decode(arguments[0], type=Spec)
    try:
        session = asyncio.run(run(spec))
    except BenchmarkError as error:
        session = Session(reopen_s=0.0, peak_bytes=0, laps=(), refused=str(error))
    sys.stdout.write(msgspec.json.encode(session).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
