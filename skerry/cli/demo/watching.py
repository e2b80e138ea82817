"""What the agents say of themselves while the demo runs, sampled by a thread."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from skerry.client import Client
from skerry.documents import ENDED, NodeReport
from skerry.errors import SkerryError

_INTERVAL_S = 0.25


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One agent at one moment. waiting: tasks that have not ended; outbox: messages not yet acknowledged."""

    is_up: bool = False
    link: str = "off"
    waiting: int = 0
    done: int = 0
    outbox: int = 0

    @property
    def backlog(self) -> int:
        """What this node still owes: tasks and messages."""
        return self.waiting + self.outbox


class Watch(threading.Thread):
    """Samples every agent four times a second."""

    def __init__(self, sockets: dict[str, Path]) -> None:
        """Describe it; start() begins."""
        super().__init__(name="watch", daemon=True)
        self._sockets = sockets
        self._stopping = threading.Event()
        self.samples: dict[str, Sample] = dict.fromkeys(sockets, Sample())
        self.backlog_max = 0

    def run(self) -> None:
        """Sample until stopped."""
        while not self._stopping.wait(_INTERVAL_S):
            self.sample()

    def sample(self) -> None:
        """Take one sample of each."""
        self.samples = {node: _ask(node, path, self.samples[node]) for node, path in self._sockets.items()}
        self.backlog_max = max(self.backlog_max, sum(s.backlog for s in self.samples.values()))

    def stop(self) -> None:
        """End, waiting for the last sample."""
        self._stopping.set()
        self.join()

    @property
    def is_drained(self) -> bool:
        """Every agent is up, linked, and owes nothing."""
        return all(s.is_up and s.link == "up" and s.backlog == 0 for s in self.samples.values())


def _ask(node: str, socket: Path, last: Sample) -> Sample:
    try:
        with Client(socket=socket, timeout_s=2.0) as client:
            return _sample_of(client.node())
    except SkerryError:
        return msgspec.structs.replace(last, is_up=False, link="off")  # killed, or too busy to answer now


def _sample_of(report: NodeReport) -> Sample:
    states = report.queue.by_state
    return Sample(
        is_up=True,
        link=report.link.state,
        waiting=sum(count for state, count in states.items() if state not in ENDED),
        done=states.get("done", 0),
        outbox=sum(report.queue.outbox.values()),
    )
