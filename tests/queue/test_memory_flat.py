"""A queue that has seen many tasks takes no more memory than one that has seen few."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: What a leak of a hundred bytes a task would come to, and more than an allocator's moods.
ALLOWED_BYTES = 3_000_000
ROUNDS, TASKS = 3, 12_000

PROGRAM = """
import os, sys
from pathlib import Path
from skerry.messages import Lane
from skerry.testing import ManualClock, a_task
from task_queue.limits import Limits
from task_queue.operations import Advance, Enqueue, TrimOutbox
from task_queue.sqlite_store import SqliteStore
from task_queue.testing import QueueDriver

ROOMY = dict(ballast_bytes=0, control_ballast_bytes=0, free_floor_bytes=0)
LIMITS = Limits(**ROOMY, keep_ended=500, remember_ended=500, remember_s=1.0)
def open_store(clock):
    return SqliteStore.open(Path(sys.argv[1]), now=clock.now(), wall_s=clock.wall_s, limits=LIMITS)

queue = QueueDriver(open_store)
for _ in range(int(sys.argv[2])):
    for _ in range(int(sys.argv[3]) // 200):
        queue.apply(*(Enqueue(task_id=queue.ids.next(), task=a_task()) for _ in range(200)))
        queue.drain()
        rows = queue.store.outbox(Lane.BACKLOG, 0, limit=1000, limit_bytes=1 << 24)
        queue.clock.advance(10.0)
        queue.apply(TrimOutbox(lane=Lane.BACKLOG, upto=rows[-1].seq), Advance())
    pages = int(open("/proc/self/statm").read().split()[1])
    print(pages * os.sysconf("SC_PAGE_SIZE"), flush=True)
"""


def test_memory_does_not_grow_with_the_tasks_that_have_been(tmp_path: Path) -> None:
    fast = Path("/dev/shm")  # nothing here depends on power: memory saves the syncs' time
    place = (fast if fast.is_dir() else tmp_path) / f"flat-{tmp_path.name}-{tmp_path.stat().st_ino}"
    place.mkdir()
    try:
        command = [sys.executable, "-c", PROGRAM, str(place / "queue.db"), str(ROUNDS), str(TASKS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        for path in place.iterdir():
            path.unlink()
        place.rmdir()

    assert done.returncode == 0, done.stderr
    after_first, *_, after_last = (int(line) for line in done.stdout.split())
    assert after_last - after_first < ALLOWED_BYTES
