"""A field report run again: the same core, told the same, must answer the same, hash by hash.

Owns the comparison. Rulings and delays are given from the report: rules, policies and chance do not run
again.
"""

from __future__ import annotations

import io
import zipfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import msgspec

from edge_agent.core.core import AgentCore
from edge_agent.core.ruling import Ruling
from edge_agent.core.snapshot import fingerprint, restore
from edge_agent.flight import BROKE, Moment, Opening, hash_of
from edge_agent.flight_report import About
from policy.port import NodeView
from skerry.clock import Instant
from skerry.errors import SkerryError, SpecError
from skerry.ids import TaskId
from skerry.task import TaskSpec


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first event that the core answered otherwise. number: of the event in its segment, from 1."""

    segment: str
    number: int
    event: str
    what: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of running a report again. fingerprints: hashes of the whole state that were compared.

    broke: what broke the core at the end of a segment, then and now.
    """

    node: str
    version: str
    segments: int
    events: int
    fingerprints: int
    broke: str = ""
    divergence: Divergence | None = None


class _Broke(SkerryError):
    """The core broke here, as it did then."""


class _Exhausted(SkerryError):
    """The core asked for something that the report does not hold."""


class _Given:
    """Rulings and delays, in the order in which they were given then."""

    def __init__(self) -> None:
        self.rulings: deque[Ruling] = deque()
        self.draws: deque[float] = deque()

    def rule(self, task_id: TaskId, task: TaskSpec, node: NodeView, now: Instant) -> Ruling:
        if not self.rulings or self.rulings[0].decision.task_id != task_id:
            raise _Exhausted(f"it decides task {task_id}, which it did not then")
        return self.rulings.popleft()

    def draw(self, bound: float) -> float:
        if not self.draws:
            raise _Exhausted(f"it draws a delay up to {bound:g} s, which it did not then")
        return self.draws.popleft()


def replay_report(data: bytes) -> Replayed:
    """Run a report again up to its first divergence.  Raises SpecError for bytes that are no report."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        about = msgspec.json.decode(archive.read("about.json"), type=About)
        names = sorted(name for name in archive.namelist() if name.endswith(".jsonl"))
        lines = {name: archive.read(name).splitlines() for name in names}
    except (zipfile.BadZipFile, KeyError, msgspec.MsgspecError) as error:
        raise SpecError(f"this is not a report of a Skerry agent: {error}") from error
    events = fingerprints = 0
    broke, divergence = "", None
    for name, text in lines.items():
        ran = _Segment(name)
        divergence = ran.run(text)
        events, fingerprints, broke = events + ran.seen, fingerprints + ran.compared, broke or ran.broke
        if divergence is not None:
            break
    return Replayed(
        node=about.node,
        version=about.version,
        segments=len(names),
        events=events,
        fingerprints=fingerprints,
        broke=broke,
        divergence=divergence,
    )


def load_report(path: Path) -> bytes:
    """Return a report's bytes.  Raises SpecError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SpecError(f"the report {path} cannot be read: {error.strerror}") from error


class _Segment:
    """One segment. seen: events.  compared: fingerprints.  broke: what broke the core, as it did then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.seen = self.compared = 0
        self.broke = ""

    def run(self, lines: Iterable[bytes]) -> Divergence | None:
        """Give the core every event; return where it parts from the recording."""
        given, rest = _Given(), iter(lines)
        try:
            opening = msgspec.json.decode(next(rest), type=Opening, dec_hook=_path)
            core = AgentCore(opening.state.facts, given.rule, jitter=given.draw, limits=opening.state.limits)
            core.state = restore(opening.state, given.draw)
        except (StopIteration, msgspec.MsgspecError) as error:
            raise SpecError(f"{self._name} of this report cannot be read: {error}") from error
        for line in rest:
            moment = msgspec.json.decode(line, type=Moment, dec_hook=_path)
            self.seen += 1
            try:
                what = _differs(core, given, moment)
            except _Broke as broke:
                self.broke = str(broke)
                return None
            if what:
                event = type(moment.event).__name__
                return Divergence(segment=self._name, number=self.seen, event=event, what=what)
            self.compared += bool(moment.state)
        return None


def _differs(core: AgentCore, given: _Given, moment: Moment) -> str:
    """Give the core one event; return what differs, empty when nothing does."""
    given.rulings.extend(moment.rulings)
    given.draws.extend(moment.draws)
    try:
        actions = core.handle(moment.event, moment.now)
    except _Exhausted as error:
        return str(error)
    except Exception as error:  # whatever broke the core then is to break it now
        what = f"{type(error).__name__}: {error}"
        if moment.actions == BROKE:
            raise _Broke(what) from error
        return f"it breaks: {what}"
    if moment.actions == BROKE:
        return "it does not break, as it did then"
    if hash_of(actions) != moment.actions:
        return f"it asks for {', '.join(type(action).__name__ for action in actions) or 'nothing'}"
    if given.rulings or given.draws:
        return "it decides less than it did then"
    if moment.state and fingerprint(core.state) != moment.state:
        return "its state is another one"
    return ""


def _path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(kind)
