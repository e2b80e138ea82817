"""The demo's submitters: one thread a node, each id written to disk apart from any queue."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skerry.cli.demo.verdict import Submission
from skerry.cli.demo.workload import Kind
from skerry.client import Client
from skerry.errors import ServiceUnreachable

_ASK_AGAIN_S = 0.2


class SubmissionLog:
    """Ids as the submitters got them: one line each, appended and synced."""

    def __init__(self, path: Path) -> None:
        """Begin an empty log."""
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="ascii")
        self.entries: list[Submission] = []

    def add(self, entry: Submission) -> None:
        """Write one id down before anything else happens with it."""
        with self._lock:
            self._file.write(f"{entry.task_id} {entry.node} {entry.kind} {entry.number}\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self.entries.append(entry)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Submitter(threading.Thread):
    """Submits one node's share of the work, a task each `pause_s`."""

    def __init__(
        self, node: str, socket: Path, share: Sequence[Kind], log: SubmissionLog, pause_s: float
    ) -> None:
        """Describe it; start() begins."""
        super().__init__(name=f"submit-{node}", daemon=True)
        self.error: Exception | None = None
        self._node, self._socket, self._share = node, socket, share
        self._log, self._pause_s = log, pause_s
        self._stopping = threading.Event()

    def run(self) -> None:
        """Submit everything; what goes wrong is kept for the story to raise."""
        try:
            with Client(socket=self._socket) as client:
                for number, kind in enumerate(self._share):
                    if not self._submit(client, number, kind):
                        return
                    self._stopping.wait(self._pause_s)
        except Exception as error:  # a thread's error would be printed and lost: the story raises it
            self.error = error

    def stop(self) -> None:
        """End early."""
        self._stopping.set()

    def _submit(self, client: Client, number: int, kind: Kind) -> bool:
        """Ask until an agent has it; one that was killed meanwhile knows by the key what it had."""
        task = msgspec.structs.replace(kind.make(number), idempotency_key=f"{self._node}-{number}")
        while not self._stopping.is_set():
            try:
                task_id = client.submit(task).task_id
            except ServiceUnreachable:
                self._stopping.wait(_ASK_AGAIN_S)
            else:
                self._log.add(Submission(task_id=task_id, node=self._node, kind=kind.name, number=number))
                return True
        return False
