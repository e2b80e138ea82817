"""The flight recorder: what the core was told and what it answered, in a bounded ring of files.

The core is pure, so that its events, the rulings it was given and the delays it drew are enough to run it
again elsewhere. Payloads are on this disk already; what leaves the machine is redacted (see report.py). Owns
the form and the bound; a recording that fails is ended with a word in the log, never the agent.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from edge_agent.core.actions import Action, Commit, Notify
from edge_agent.core.core import AgentCore
from edge_agent.core.events import Event
from edge_agent.core.ruling import Decider, Ruling
from edge_agent.core.snapshot import Snapshot, fingerprint, snapshot
from policy.port import NodeView
from skerry.clock import Instant
from skerry.ids import TaskId
from skerry.task import TaskSpec

log = logging.getLogger(__name__)

#: Events between two fingerprints of the whole state; in the first of a segment they are closer.
FINGERPRINT_EVERY = 512
#: Gathered before it is compressed and written, bytes and seconds: what a kill takes from a recording.
CHUNK_BYTES = 64 * 1024
WRITE_AFTER_S = 5.0
#: Segments that a full ring has room for.
SEGMENTS = 4
#: Short ones, of processes that ended soon, are at most so many.
MOST_SEGMENTS = 64
_EARLY = frozenset(2**n for n in range(9))
_NUMBERS = "{:08d}.flight"
#: Stands for the answer to an event that broke the core.
BROKE = "broke"


class Moment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event: what came in with it, and a hash of what came out. state: fingerprint, now and then."""

    now: Instant
    event: Event
    rulings: tuple[Ruling, ...] = ()
    draws: tuple[float, ...] = ()
    actions: str = ""
    state: str = ""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a segment."""

    version: str
    state: Snapshot


def _plain(value: Any) -> Any:
    """Write what a document has no form for: the path of a result's file."""
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


class Recorder:
    """Stands between a core and its shell: hands everything on, and writes it down."""

    def __init__(self, folder: Path, max_bytes: int, *, version: str) -> None:
        """max_bytes: of all segments together, 0 for none; the oldest make room for a new one."""
        self._folder = folder
        self._segment_bytes = max(CHUNK_BYTES, max_bytes // SEGMENTS)
        self._wrote_at = 0.0
        self._version = version
        self._rulings: list[Ruling] = []
        self._draws: list[float] = []
        self._chunk = bytearray()
        self._file: IO[bytes] | None = None
        self._has_begun = False
        self._written = 0
        self._count = 0
        self._is_on = max_bytes > 0

    def decider(self, decide: Decider) -> Decider:
        """Return the same decider, its rulings written down."""

        def recorded(task_id: TaskId, task: TaskSpec, node: NodeView, now: Instant) -> Ruling:
            ruling = decide(task_id, task, node, now)
            self._rulings.append(ruling)
            return ruling

        return recorded

    def jitter(self, draw: Callable[[float], float]) -> Callable[[float], float]:
        """Return the same draws, written down."""

        def recorded(bound: float) -> float:
            value = draw(bound)
            self._draws.append(value)
            return value

        return recorded

    def handle(self, core: AgentCore, event: Event, now: Instant) -> list[Action]:
        """Have the core take an event. One that breaks it is the last of the recording, and on the disk."""
        if self._is_on and not self._has_begun:
            self._wrote_at = now.uptime_s
            self._guarded(lambda: self._begin_segment(core))
        self._rulings.clear()
        self._draws.clear()
        try:
            actions = core.handle(event, now)
        except Exception:
            if self._is_on:
                self._guarded(lambda: self._note_broken(event, now))
            raise
        if self._is_on:
            self._guarded(lambda: self._note(core, event, now, actions))
        return actions

    def flush(self) -> None:
        """Write what is gathered."""
        if self._is_on:
            self._guarded(self._write_chunk)

    def close(self) -> None:
        """Write what is gathered and end the recording."""
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """End the recording as a killed process does: what is gathered is not written."""
        self._is_on = False
        if self._file is not None:
            self._file.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, ValueError, NotImplementedError) as error:
            self._is_on = False
            log.warning("nothing more is recorded until the next start: %s", error)

    def _note(self, core: AgentCore, event: Event, now: Instant, actions: list[Action]) -> None:
        self._count += 1
        is_due = self._count % FINGERPRINT_EVERY == 0 or self._count in _EARLY
        self._chunk += self._line(event, now, hash_of(actions), fingerprint(core.state) if is_due else "")
        if len(self._chunk) >= CHUNK_BYTES or now.uptime_s - self._wrote_at >= WRITE_AFTER_S:
            self._wrote_at = now.uptime_s
            self._write_chunk()
        if self._written >= self._segment_bytes:
            self._begin_segment(core)

    def _note_broken(self, event: Event, now: Instant) -> None:
        self._chunk += self._line(event, now, BROKE, "")
        self._write_chunk()

    def _line(self, event: Event, now: Instant, actions: str, state: str) -> bytes:
        rulings, draws = tuple(self._rulings), tuple(self._draws)
        moment = Moment(now=now, event=event, rulings=rulings, draws=draws, actions=actions, state=state)
        return _encode(moment) + b"\n"

    def _begin_segment(self, core: AgentCore) -> None:
        """Begin with the state as it is; there is a file once there is something to write.

        So an agent that ends again and again at its start leaves the older segments alone.
        """
        if self._file is not None:
            self._write_chunk()
            self._file.close()
        self._file = None
        self._has_begun = True
        self._written = 0
        self._count = 0
        self._chunk = bytearray(_encode(Opening(version=self._version, state=snapshot(core.state))) + b"\n")

    def _open_file(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        known = segments(self._folder)
        newest = int(known[-1].stem) if known else 0
        sizes = [path.stat().st_size for path in known]
        while known and (len(sizes) >= MOST_SEGMENTS or sum(sizes) > (SEGMENTS - 1) * self._segment_bytes):
            known.pop(0).unlink()
            del sizes[0]
        number = newest + 1
        return (self._folder / _NUMBERS.format(number)).open("wb", buffering=0)

    def _write_chunk(self) -> None:
        if not self._chunk:
            return
        if self._file is None:
            self._file = self._open_file()
        data = zlib.compress(bytes(self._chunk), 1)
        self._file.write(len(data).to_bytes(4, "big") + data)
        self._written += 4 + len(data)
        self._chunk.clear()


def hash_of(actions: list[Action]) -> str:
    """Return a hash of actions: what is to be done to which task, not what is in it."""
    if not actions:
        return ""
    words = "\n".join([_words(action) for action in actions])
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def _words(action: Action) -> str:
    if isinstance(action, Notify):
        return f"Notify {action.task_id} {action.state}"
    if isinstance(action, Commit):
        inner = [f"{type(op).__name__} {getattr(op, 'task_id', '')}" for op in action.operations]
        return f"Commit {action.token} {', '.join(inner)}"
    subject = getattr(action, "task_id", getattr(action, "name", ""))
    return (
        f"{type(action).__name__} {subject} {getattr(action, 'device_id', '')} {getattr(action, 'fence', '')}"
    )


def segments(folder: Path) -> list[Path]:
    """Return the files of a recording, the oldest first."""
    return sorted(folder.glob("*.flight"))


def lines_of(data: bytes) -> Iterator[bytes]:
    """Yield a segment's lines; one that a kill cut short ends with its last whole chunk."""
    at = 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunk = data[at + 4 : at + 4 + size]
        if len(chunk) < size:
            return
        yield from zlib.decompress(chunk).split(b"\n")[:-1]
        at += 4 + size
