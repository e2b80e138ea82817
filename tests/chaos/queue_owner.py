"""A process that owns a queue and is never left in peace: several producers, a consumer and an uplink.

Everything it was promised, and everything it did, it says on a pipe, each line after the commit it speaks
of: whoever reads the pipe knows only acknowledged facts. It works until it is killed.
"""

from __future__ import annotations

import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skerry.clock import SystemClock
from skerry.ids import TaskIdSource
from skerry.lock import DirectoryLock
from skerry.messages import Lane, TaskEnded
from skerry.task import TaskSpec
from skerry.testing import a_task
from task_queue.limits import Limits
from task_queue.operations import (
    Advance,
    Answer,
    Claim,
    Claimed,
    Enqueue,
    Enqueued,
    Fail,
    Finish,
    MarkInbox,
    Operation,
    Start,
    Started,
    TrimOutbox,
)
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store
from task_queue.task import FINAL
from task_queue.testing import FAILED, SUCCEEDED
from task_queue.writer import StoreWriter

PRODUCERS = 4
#: Small enough to be compared whole after a kill, large enough that what a kill leaves is not pruned unseen.
LIMITS = Limits(ballast_bytes=0, control_ballast_bytes=0, free_floor_bytes=0, keep_ended=1000)
_MOST_OPEN = 300
_KEYS = 20_000
_SIZES = (10, 300, 5000)


def content_of(task_id: str, size: int) -> str:
    """Return what a task carries, made of its id: a row mixed up with another one shows."""
    return (task_id * (size // len(task_id) + 1))[:size]


class Owner:
    """One session on the queue."""

    def __init__(self, path: Path, seed: int, pipe: int) -> None:
        """Open the store.  pipe: the descriptor that facts are written to."""
        self._pipe = pipe
        self._seed = seed
        self._clock = SystemClock()
        self._store: Store = SqliteStore.open(
            path, now=self._clock.now(), wall_s=self._clock.wall_s, limits=LIMITS
        )
        self._writer = StoreWriter(self._store, self._clock)

    def work(self) -> None:
        """Work until killed."""
        self._say(f"o {self._store.session}")
        self._ask(Advance())  # the only one: nothing is pruned between two looks
        parts = [self._consume, self._uplink, *[self._produce] * PRODUCERS]
        for number, part in enumerate(parts):
            rng = random.Random(self._seed * 16 + number)
            threading.Thread(target=self._for_ever, args=(part, rng), daemon=True).start()
        threading.Event().wait()

    def _for_ever(self, part: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            while True:
                part(rng)
        except BaseException:
            self._say("x " + " | ".join(traceback.format_exc().splitlines()[-4:]))
            os._exit(1)

    def _say(self, *lines: str) -> None:
        """Write whole lines at once: a kill cannot cut them in two, nor another thread part them."""
        text = "".join(line + "\n" for line in lines).encode()
        assert len(text) <= 4096, "longer than what a pipe takes at once"
        os.write(self._pipe, text)

    def _ask(self, *ops: Operation) -> Sequence[Answer]:
        return self._writer.submit(ops).result()

    def _produce(self, rng: random.Random) -> None:
        by_state = self._store.depth().by_state
        if sum(count for state, count in by_state.items() if state not in FINAL) > _MOST_OPEN:
            time.sleep(0.002)  # the consumer shares this process: it needs the time
            return
        ids = TaskIdSource(self._clock.wall_s)
        asked = [ids.next() for _ in range(rng.choice((1, 1, 1, 16)))]
        ops = [Enqueue(task_id=task_id, task=_task(task_id, rng)) for task_id in asked]
        said = []
        for op, answer in zip(ops, self._ask(*ops), strict=True):
            assert isinstance(answer, Enqueued), answer
            word = "a" if answer.is_new else "k"  # accepted, or known: then its record may be gone
            said.append(f"{word} {answer.task_id} {op.task.idempotency_key or '-'}")
        self._say(*said)

    def _consume(self, rng: random.Random) -> None:
        (claimed,) = self._ask(Claim(limit=rng.choice((1, 4, 16))))
        assert isinstance(claimed, Claimed)
        if not claimed.tasks:
            time.sleep(0.001)  # nothing to do until the producers have had their turn
            return
        once = {task.task_id: task.task.effect == "at_most_once" for task in claimed.tasks}
        runs = self._ask(*(Start(task_id=task_id, device="cpu0") for task_id in once))
        started = [run for run in runs if isinstance(run, Started)]
        assert len(started) == len(once), runs
        self._say(*(f"s {run.task_id} {run.fence} {int(once[run.task_id])}" for run in started))
        failing = {run.task_id for run in started if rng.random() < 0.15}
        self._ask(*(self._end(run, run.task_id in failing) for run in started))
        self._say(*(f"d {run.task_id} {run.fence}" for run in started if run.task_id not in failing))

    def _end(self, run: Started, fails: bool) -> Operation:
        if fails:
            return Fail(task_id=run.task_id, fence=run.fence, outcome=FAILED)
        return Finish(task_id=run.task_id, fence=run.fence, outcome=SUCCEEDED)

    def _uplink(self, rng: random.Random) -> None:
        rows = self._store.outbox(Lane.BACKLOG, 0, limit=rng.choice((1, 20, 40)), limit_bytes=1 << 20)
        if not rows:
            time.sleep(0.001)  # nothing to report until something has ended
            return
        ended = [msgspec.json.decode(row.body, type=TaskEnded).task_id for row in rows]
        self._say(*(f"r {row.seq} {task_id}" for row, task_id in zip(rows, ended, strict=True)))
        upto = rows[-1].seq
        self._ask(
            TrimOutbox(lane=Lane.BACKLOG, upto=upto),
            MarkInbox(source="cloud", epoch="e", lane=Lane.CONTROL, upto=upto),
        )
        self._say(f"m {upto}")


def _task(task_id: str, rng: random.Random) -> TaskSpec:
    return a_task(
        ("echo", content_of(task_id, rng.choice(_SIZES))),
        priority=rng.randint(0, 9),
        retries=100,
        effect=rng.choice(("idempotent", "idempotent", "at_most_once")),
        ordering_key=rng.choice((None, None, "a", "b")),
        idempotency_key=rng.choice((None, None, f"k{rng.randrange(_KEYS)}")),
    )


def own(path: Path, seed: int, pipe: int) -> None:
    """Own the queue until killed; the entry of a forked process."""
    try:
        with DirectoryLock(path.parent):
            Owner(path, seed, pipe).work()
    except BaseException:
        os.write(pipe, ("x " + " | ".join(traceback.format_exc().splitlines()[-4:]) + "\n").encode())
    os._exit(1)
