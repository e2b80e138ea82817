# pyright: reportMissingImports=false
"""persist-queue's SQLiteAckQueue. Its level is the one SQLite was built with (FULL, checked); no batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from persistqueue import Empty, SQLiteAckQueue

from benchmarks.harness import BenchmarkError

_FULL = 2


class _Bytes:
    """Bodies as they are: no serialiser is measured."""

    @staticmethod
    def dumps(value: bytes) -> bytes:
        return value

    @staticmethod
    def loads(data: bytes) -> bytes:
        return data


class Adapter:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Open it with the connections that threads need."""
        self._queue = SQLiteAckQueue(str(directory), multithreading=True, serializer=_Bytes)
        ((level,),) = self._queue._putter.execute("PRAGMA synchronous").fetchall()
        if durable and level != _FULL:
            raise BenchmarkError(f"persist-queue runs at synchronous={level} here, not at FULL")

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue."""
        for body in bodies:
            self._queue.put(body)

    def cycle(self, count: int) -> int:
        """See Queue."""
        done = 0
        for _ in range(count):
            try:
                item = self._queue.get(block=False, raw=True)
            except Empty:
                break
            self._queue.ack(id=item["pqid"])
            done += 1
        return done

    def fill(self, bodies: Sequence[bytes]) -> None:
        """Put many in one transaction, with the statement of `put`."""
        with self._queue._putter as transaction:
            transaction.executemany(self._queue._sql_insert, [(body, time.time()) for body in bodies])

    def forget(self) -> None:
        """See Queue."""
        self._queue.clear_acked_data(max_delete=100_000, keep_latest=0)

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return ()

    def close(self) -> None:
        """See Queue."""
        self._queue.close()


def open_queue(directory: Path, durable: bool) -> Adapter:
    """Open a SQLiteAckQueue."""
    return Adapter(directory, durable)
