# pyright: reportMissingImports=false
"""litequeue: SQLite, one table, one column for the state. durable: FULL is set after it has set NORMAL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from litequeue import LiteQueue


class Adapter:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Open it."""
        self._queue = LiteQueue(str(directory / "queue.db"))
        if durable:
            self._queue.conn.execute("PRAGMA synchronous = FULL")

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue. Several go into its own transaction."""
        if len(bodies) == 1:
            self._queue.put(bodies[0].decode())
            return
        with self._queue.transaction():
            for body in bodies:
                self._queue.put(body.decode())

    def cycle(self, count: int) -> int:
        """See Queue. A pop is a transaction of its own."""
        done = 0
        for _ in range(count):
            message = self._queue.pop()
            if message is None:
                break
            self._queue.done(message.message_id)
            done += 1
        return done

    def forget(self) -> None:
        """See Queue."""
        self._queue.prune()

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return ()

    def close(self) -> None:
        """See Queue."""
        self._queue.close()


def open_queue(directory: Path, durable: bool) -> Adapter:
    """Open a litequeue."""
    return Adapter(directory, durable)
