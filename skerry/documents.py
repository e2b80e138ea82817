"""What the agent's HTTP API says: the documents that it writes and its clients read.

Pure values. States are text here, so that an older client can read a newer service's.
"""

from __future__ import annotations

import msgspec

from skerry.decision import Decision
from skerry.messages import Outcome
from skerry.node import Inventory
from skerry.task import TaskSpec

#: The states in which a task stays.
ENDED = frozenset({"done", "dead", "expired", "cancelled", "unknown"})


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Written in full: a reader sees which fields there are."""


class AttemptView(Document, frozen=True, kw_only=True):
    """One try. ended: empty while it runs."""

    fence: str
    device: str
    started_wall_s: float
    ended: str = ""
    error: str = ""
    runtime_s: float = 0.0
    decision: Decision | None = None


class TaskView(Document, frozen=True, kw_only=True):
    """A task as its submitter sees it. task and attempts are left out of lists."""

    task_id: str
    state: str
    kind: str
    tenant: str
    attempt: int = 0  #: tries begun so far
    accepted_wall_s: float = 0.0
    ended_wall_s: float | None = None
    fence: str | None = None  #: under which it ended
    home_node: str = ""  #: set when a coordinator placed it here
    placed_on: str = ""  #: where it went when it was handed over
    waiting_for: str = ""
    outcome: Outcome | None = None
    decision: Decision | None = None  #: the latest one made before an attempt
    attempts: tuple[AttemptView, ...] = ()
    task: TaskSpec | None = None

    @property
    def has_ended(self) -> bool:
        """It stays as it is (a dead one can be replayed)."""
        return self.state in ENDED


class TaskPage(Document, frozen=True, kw_only=True):
    """Some tasks, newest first. before: give this as `before` for the next page; None at the end."""

    tasks: tuple[TaskView, ...]
    before: str | None = None


class TaskAccepted(Document, frozen=True, kw_only=True):
    """The task is on disk. is_new: False when its key was known; the id is the earlier task's then."""

    task_id: str
    is_new: bool


class TaskChanged(Document, frozen=True, kw_only=True):
    """A task is in another state, durably."""

    task_id: str
    state: str


class Explanation(Document, frozen=True, kw_only=True):
    """Why a task is where it is. text: in words; decisions: oldest first."""

    task_id: str
    state: str
    text: str
    decisions: tuple[Decision, ...] = ()


class DeviceLoad(Document, frozen=True, kw_only=True):
    """What a device has to do now. backlog_s: seconds of work reserved on it."""

    running: int = 0
    queued: int = 0
    backlog_s: float = 0.0


class LinkReport(Document, frozen=True, kw_only=True):
    """The connection to the coordinator. state: up, down or off; for_s: how long in this state."""

    state: str
    for_s: float = 0.0
    reason: str = ""
    broker: str = ""
    session: int = 0


class QueueReport(Document, frozen=True, kw_only=True):
    """The queue's counters: tasks by state, unsent messages by lane."""

    by_state: dict[str, int]
    outbox: dict[str, int]
    bytes_used: int
    bytes_limit: int | None = None


class ContentReport(Document, frozen=True, kw_only=True):
    """The content store's room."""

    bytes_used: int
    bytes_limit: int


class NodeReport(Document, frozen=True, kw_only=True):
    """One node as it sees itself. refused: counts by reason; alarms: what needs a person's eye, by name."""

    node: str
    fleet: str
    region: str
    version: str
    inventory: Inventory
    link: LinkReport
    queue: QueueReport
    site: str = ""
    load: dict[str, DeviceLoad] = {}  #: by device id
    content: ContentReport | None = None
    scheduler: str = ""
    rules: str = ""  #: revision of the rule set
    refused: dict[str, int] = {}
    alarms: dict[str, str] = {}
    #: The latest hand-overs that were answered without a break of the link: asked to answered, milliseconds.
    placement_ms: tuple[float, ...] = ()
    uptime_s: float = 0.0
    is_clock_trusted: bool = True


class PolicyStatus(Document, frozen=True, kw_only=True):
    """The learned policy on one node. state: off, fetching, refused, or where its gate stands."""

    policy: str  #: file hash; empty: the fallback decides
    version: str
    state: str
    fallback: str  #: the scheduler that decides otherwise
    rollout: str = ""
    reason: str = ""
    is_loaded: bool = False  #: it is asked now
    decisions: dict[str, int] = {}  #: by who decided: candidate, fallback
    failures: dict[str, int] = {}  #: decisions of the candidate that were not taken, by kind
    evidence: dict[str, float] = {}  #: figures of both arms, see the explanation of the gate


class BlobStored(Document, frozen=True, kw_only=True):
    """The content is on disk under its hash."""

    hash: str
    size_bytes: int
