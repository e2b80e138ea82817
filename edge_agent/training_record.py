"""What the node records of its own work for local training: arrivals and how they ran. Stays on the node.

Owns a bounded ring in a database of its own, which may be lost at any time: nothing waits for it, and every
failure is only logged. The form that a trainer reads is federation.experience's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw
import msgspec

from federation.experience import EXPERIENCE_NAME, DeviceSeen, Experience, RunSeen, TaskSeen
from policy.profile import Measured
from skerry.clock import Clock
from skerry.ids import TaskId
from skerry.node import Device
from task_queue.operations import Answer, Changed, Enqueue, Enqueued, Fail, Finish, Operation
from task_queue.task import State

log = logging.getLogger(__name__)

RING = 10_000
#: Arrivals whose end has not been seen; the oldest are forgotten.
OPEN_LIMIT = 20_000
FLUSH_EVERY_S = 5.0
#: Between two boots passes a time that nobody measured.
BOOT_GAP_S = 1.0
_SHORTEST_S, _LONGEST_S = 1e-6, 1e7
_MOST_RATIO = 1e3
_ENDED = (State.DONE, State.DEAD)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (n INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS clock (one INTEGER PRIMARY KEY CHECK (one = 1), boot_id TEXT, base_s REAL);
"""


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One task that ended here. at_s: of its arrival, powered-on seconds of this record."""

    kind: str
    executor: str
    at_s: float
    priority: int
    deadline_s: float | None
    device: str = ""
    runtime_s: float = 0.0
    status: str = ""


class Recorder:
    """Listens to commits. `flush` and `write` block and are called on another thread, one at a time."""

    def __init__(self, path: Path, clock: Clock, *, ring: int = RING) -> None:
        """Open the ring, or begin a new one when it cannot be used."""
        self._path, self._clock, self._ring = path, clock, ring
        self._open: OrderedDict[TaskId, Seen] = OrderedDict()
        self._fresh: list[Seen] = []
        self._lock = asyncio.Lock()
        self._db: apsw.Connection | None = None
        self._base_s = -clock.now().uptime_s
        try:
            self._begin()
        except (apsw.Error, OSError) as error:
            log.warning("what was recorded for training cannot be read and is recorded anew: %s", error)
            self._begin_anew()

    def seen(self, operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
        """Look at a commit."""
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, Enqueue):
                if isinstance(answer, Enqueued) and answer.is_new:
                    self._arrived(answer.task_id, operation)
            elif isinstance(operation, Finish | Fail) and _state_of(answer) in _ENDED:
                self._ended(operation)

    async def keep_writing(self) -> None:
        """Write what was seen now and then; never returns."""
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what was seen since the last time."""
        async with self._lock:
            fresh, self._fresh = self._fresh, []
            if fresh:
                await asyncio.to_thread(self._write, fresh)

    async def close(self) -> None:
        """Write the rest and close."""
        await self.flush()
        async with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    async def export(self, directory: Path, devices: Iterable[Device], measured: Iterable[Measured]) -> None:
        """Write the record as a trainer reads it; nothing when nothing is recorded."""
        await self.flush()
        async with self._lock:
            await asyncio.to_thread(self._export, directory, tuple(devices), tuple(measured))

    # --- inside ---------------------------------------------------------------------------------------

    def _arrived(self, task_id: TaskId, operation: Enqueue) -> None:
        task = operation.task
        self._open[task_id] = Seen(
            kind=task.kind,
            executor=str(task.spec.__struct_config__.tag),
            at_s=self._clock.now().uptime_s + self._base_s,
            priority=task.priority,
            deadline_s=task.deadline_s,
        )
        if len(self._open) > OPEN_LIMIT:
            self._open.popitem(last=False)

    def _ended(self, operation: Finish | Fail) -> None:
        arrival = self._open.pop(operation.task_id, None)
        if arrival is None:
            return  # it came before this process: when is not known
        outcome = operation.outcome
        seen = msgspec.structs.replace(
            arrival, device=outcome.device, runtime_s=outcome.runtime_s, status=outcome.status
        )
        self._fresh.append(seen)
        del self._fresh[: -self._ring]

    def _begin(self) -> None:
        self._db = db = apsw.Connection(str(self._path))
        db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;" + _SCHEMA).fetchall()
        now = self._clock.now()
        known = db.execute("SELECT boot_id, base_s FROM clock").fetchone()
        if known is not None and known[0] == now.boot_id:
            self._base_s = float(str(known[1]))
        else:
            last = self._rows(db, newest=1)
            self._base_s = (last[0].at_s + BOOT_GAP_S if last else 0.0) - now.uptime_s
            db.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", (now.boot_id, self._base_s))

    def _begin_anew(self) -> None:
        self._db = None
        try:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._begin()
        except (apsw.Error, OSError) as error:
            self._db = None
            log.warning("nothing is recorded for training: %s", error)

    def _write(self, fresh: list[Seen]) -> None:
        if self._db is None:
            return
        try:
            with self._db:
                self._db.executemany(
                    "INSERT INTO seen (body) VALUES (?)", [(msgspec.json.encode(one),) for one in fresh]
                )
                self._db.execute("DELETE FROM seen WHERE n <= (SELECT max(n) FROM seen) - ?", (self._ring,))
        except (apsw.Error, OSError) as error:
            log.warning("%d tasks are not recorded for training: %s", len(fresh), error)

    def _rows(self, db: apsw.Connection, newest: int) -> list[Seen]:
        query = "SELECT body FROM (SELECT n, body FROM seen ORDER BY n DESC LIMIT ?) ORDER BY n"
        found = db.execute(query, (newest,)).fetchall()
        return [msgspec.json.decode(bytes(body), type=Seen) for (body,) in found]  # type: ignore[arg-type]

    def _export(self, directory: Path, devices: tuple[Device, ...], measured: tuple[Measured, ...]) -> None:
        if self._db is None:
            return
        try:
            experience = experience_of(self._rows(self._db, self._ring), devices, measured)
        except (apsw.Error, msgspec.MsgspecError) as error:
            log.warning("what was recorded for training cannot be read: %s", error)
            return
        if experience is not None:
            (directory / EXPERIENCE_NAME).write_bytes(msgspec.json.encode(experience))


def experience_of(
    seen: Sequence[Seen], devices: Sequence[Device], measured: Sequence[Measured]
) -> Experience | None:
    """Return the record in a trainer's form, None when there is nothing in it.

    A device has the kinds it ran, at their mean; and those that it could run by its executor, estimated from
    another device's figures and the speeds of both. Only tasks that some device here can run are listed.
    """
    runs = _runs(seen, measured)
    kinds = {one.kind: one.executor for one in seen}
    described = [
        DeviceSeen(
            device_class=device.device_class,
            runs={k: run for k, e in kinds.items() if (run := _run_on(device, k, e, runs)) is not None},
        )
        for device in devices
    ]
    runnable = {kind for device in described for kind in device.runs}
    tasks = sorted((one for one in seen if one.kind in runnable), key=lambda one: one.at_s)
    if not tasks:
        return None
    begin = tasks[0].at_s
    listed = tuple(_task(one, begin, runs) for one in tasks if one.at_s - begin <= _LONGEST_S)
    return Experience(devices=tuple(described), tasks=listed)


def _state_of(answer: Answer) -> State | None:
    return answer.state if isinstance(answer, Changed) else None


_Runs = dict[tuple[str, str], tuple[float, float]]  # (kind, device) → (mean run time, device's speed or 0)


def _runs(seen: Sequence[Seen], measured: Sequence[Measured]) -> _Runs:
    found: _Runs = {(one.kind, one.device): (one.mean_s, one.speed) for one in measured}
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for one in seen:
        if one.status == "succeeded" and one.device:
            times[one.kind, one.device].append(one.runtime_s)
    for key, all_of in times.items():
        speed = found[key][1] if key in found else 1.0
        found[key] = (max(sum(all_of) / len(all_of), _SHORTEST_S), speed)
    return found


def _run_on(device: Device, kind: str, executor: str, runs: _Runs) -> RunSeen | None:
    own = runs.get((kind, device.device_id))
    if own is not None:
        return _run(own[0], device)
    elsewhere = next((value for (of, _), value in runs.items() if of == kind), None)
    if elsewhere is None or not device.usable or executor not in device.executors:
        return None
    mean_s, speed = elsewhere
    return _run(mean_s * speed / max(device.speed, _SHORTEST_S) if executor == "onnx" else mean_s, device)


def _run(mean_s: float, device: Device) -> RunSeen:
    runtime_s = min(max(mean_s, _SHORTEST_S), _LONGEST_S)
    return RunSeen(runtime_s=runtime_s, energy_j=min(runtime_s * (device.power_w or 0.0), 1e9))


def _task(one: Seen, begin_s: float, runs: _Runs) -> TaskSeen:
    mean_s = runs.get((one.kind, one.device), (0.0, 0.0))[0]
    has_ratio = one.status == "succeeded" and mean_s > 0 and one.runtime_s > 0
    return TaskSeen(
        kind=one.kind,
        at_s=max(0.0, one.at_s - begin_s),
        priority=one.priority,
        deadline_s=min(one.deadline_s, _LONGEST_S) if one.deadline_s else None,
        ratio=min(max(one.runtime_s / mean_s, 1e-6), _MOST_RATIO) if has_ratio else 1.0,
    )
