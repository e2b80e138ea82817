"""What the coordinator's HTTP API says: the documents that it writes and its clients read.

Pure values. States are text here, so that an older client can read a newer service's.
"""

from __future__ import annotations

from skerry.decision import Decision
from skerry.documents import Document
from skerry.messages import Outcome
from skerry.node import NodeRecord
from skerry.task import TaskSpec


class TokenMade(Document, frozen=True, kw_only=True):
    """A one-use enrolment token, shown this once; valid_s: for how long it can be used."""

    token: str
    valid_s: float
    coordinator_url: str = ""


class NodeList(Document, frozen=True, kw_only=True):
    """The register, by name."""

    nodes: tuple[NodeRecord, ...]


class LossView(Document, frozen=True, kw_only=True):
    """Rows that a node's store lost, of one class and for one reason, since that store began."""

    lost_class: str
    reason: str
    rows: int
    size_bytes: int = 0


class LossList(Document, frozen=True, kw_only=True):
    """What one node lost, by class and reason; empty: nothing."""

    node: str
    losses: tuple[LossView, ...]


class PlacementView(Document, frozen=True, kw_only=True):
    """One placement. ended: empty while it is current."""

    fence: str
    node: str
    placed_wall_s: float = 0.0
    ended: str = ""
    reason: str = ""
    ended_wall_s: float | None = None
    decision: Decision | None = None


class LedgerTaskView(Document, frozen=True, kw_only=True):
    """A task as its home coordinator sees it. task, decision and placements are left out of lists."""

    task_id: str
    state: str
    kind: str
    home_node: str = ""
    node: str = ""
    fence: str | None = None
    waits: str = ""
    excluded: dict[str, str]
    offered_wall_s: float = 0.0
    ended_wall_s: float | None = None
    attempts: int = 0
    outcome: Outcome | None = None
    decision: Decision | None = None
    placements: tuple[PlacementView, ...] = ()
    task: TaskSpec | None = None


class LedgerTaskPage(Document, frozen=True, kw_only=True):
    """Tasks, newest first. before: pass it to get the next page; empty on the last one."""

    tasks: tuple[LedgerTaskView, ...]
    before: str = ""


class DeadLetterView(Document, frozen=True, kw_only=True):
    """A row that could not be applied. body: its text, as far as it is text (at most 4096 characters)."""

    number: int
    node: str
    lane: str
    seq: int
    kind: str
    reason: str
    wall_s: float
    body: str


class DeadLetterPage(Document, frozen=True, kw_only=True):
    """Dead letters, newest first. before: pass it to get the next page; None on the last one."""

    dead_letters: tuple[DeadLetterView, ...]
    before: int | None = None


class StatusView(Document, frozen=True, kw_only=True):
    """The coordinator at a glance. placement_ms: p50 and p99 of the waits for a first place."""

    fleet: str
    version: str
    term: int
    ledger_epoch: str
    public_key: str
    is_broker_up: bool
    tasks: dict[str, int]
    nodes: dict[str, int]
    waiting: int
    placement_ms: dict[str, float]
    content_bytes: int
