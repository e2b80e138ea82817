# pyright: reportMissingImports=false
"""huey's SqliteStorage. A dequeue deletes the row: there is neither lease nor acknowledgement to measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huey.storage import SqliteStorage


class Adapter:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Open it."""
        self._storage = SqliteStorage(filename=str(directory / "huey.db"), fsync=durable)

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue."""
        for body in bodies:
            self._storage.enqueue(body)

    def cycle(self, count: int) -> int:
        """See Queue."""
        for done in range(count):
            if self._storage.dequeue() is None:
                return done
        return count

    def fill(self, bodies: Sequence[bytes]) -> None:
        """Put many in one transaction, with the statement of `enqueue`."""
        with self._storage.db(commit=True) as cursor:
            cursor.executemany(
                "insert into task (queue, data, priority) values (?, ?, 0)",
                [(self._storage.name, body) for body in bodies],
            )

    def forget(self) -> None:
        """See Queue: nothing is kept."""

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return ()

    def close(self) -> None:
        """See Queue."""
        self._storage.close()


def open_queue(directory: Path, durable: bool) -> Adapter:
    """Open a SqliteStorage."""
    return Adapter(directory, durable)
