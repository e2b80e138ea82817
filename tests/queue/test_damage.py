"""A damaged file never stops the queue: it is set aside, what can be read goes on, nothing is done twice."""

from __future__ import annotations

from pathlib import Path

from task_queue.page_size import PAGE_BYTES
from task_queue.task import State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener


def a_queue(folder: Path) -> tuple[QueueDriver, dict[str, list[str]]]:
    """Return a closed queue with tasks in several states, and their ids by state."""
    q = QueueDriver(sqlite_opener(folder))
    done = [q.enqueue(argv=("echo", "x" * 50)) for _ in range(40)]
    q.drain()
    ready = [q.enqueue(argv=("echo", "x" * (50 if n % 10 else 9000))) for n in range(40)]
    return q, {"done": list(done), "ready": list(ready)}


def test_zeros_in_the_first_page_lose_no_task(tmp_path: Path) -> None:
    q, ids = a_queue(tmp_path)
    epoch = q.store.epoch
    q.store.close()
    path = tmp_path / "queue.db"
    data = bytearray(path.read_bytes())
    data[:PAGE_BYTES] = bytes(PAGE_BYTES)
    path.write_bytes(data)

    q.kill()

    assert [q.state(i) for i in ids["done"]] == [State.DONE] * 40
    assert [q.state(i) for i in ids["ready"]] == [State.READY] * 40
    assert q.store.epoch != epoch
    print(q.store.salvaged)
    assert q.drain() == ids["ready"]
    check_invariants(q.store)
    q.store.close()
