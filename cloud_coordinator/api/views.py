"""What the API says and takes: documents. Values only; states are text, so that old clients read new ones."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cloud_coordinator.ledger.values import Counter, DeadLetter, LedgerTask, Placement, TaskState
from skerry.decision import Decision
from skerry.messages import Outcome
from skerry.node import NodeRecord
from skerry.task import TaskSpec


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """Written in full: a reader sees which fields there are."""


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which token to make. node, region: the only ones it enrols; empty: any."""

    node: str = ""
    region: str = ""
    valid_s: Annotated[float, Meta(gt=0, le=366 * 86400)] | None = None


class TokenMade(_Document, frozen=True, kw_only=True):
    """A one-use token; it is shown this once."""

    token: str
    valid_s: float
    coordinator_url: str = ""


class NodeList(_Document, frozen=True, kw_only=True):
    """The register."""

    nodes: tuple[NodeRecord, ...]


class PlacementView(_Document, frozen=True, kw_only=True):
    """One placement. ended: empty while it is current."""

    fence: str
    node: str
    placed_wall_s: float
    ended: str
    reason: str
    ended_wall_s: float | None
    decision: Decision | None


class LedgerTaskView(_Document, frozen=True, kw_only=True):
    """A task as its home coordinator sees it. task, decision and placements are left out of lists."""

    task_id: str
    state: str
    kind: str
    home_node: str
    node: str
    fence: str | None
    waits: str
    excluded: dict[str, str]
    offered_wall_s: float
    ended_wall_s: float | None
    attempts: int
    outcome: Outcome | None
    decision: Decision | None = None
    placements: tuple[PlacementView, ...] = ()
    task: TaskSpec | None = None


class LedgerTaskPage(_Document, frozen=True, kw_only=True):
    """Tasks, newest first. before: pass it to get the next page; empty on the last one."""

    tasks: tuple[LedgerTaskView, ...]
    before: str = ""


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list."""

    state: TaskState | None = None
    node: str = ""
    home_node: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    before: str = ""


class DeadLetterView(_Document, frozen=True, kw_only=True):
    """A row that could not be applied. body: its text, as far as it is text (at most 4096 characters)."""

    number: int
    node: str
    lane: str
    seq: int
    kind: str
    reason: str
    wall_s: float
    body: str


class DeadLetterPage(_Document, frozen=True, kw_only=True):
    """Dead letters, newest first. before: pass it to get the next page; None on the last one."""

    dead_letters: tuple[DeadLetterView, ...]
    before: int | None = None


class LetterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters to list."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    before: int | None = None


class CounterList(_Document, frozen=True, kw_only=True):
    """What was counted, durably: refusals, losses, ends, by node and reason."""

    counters: tuple[Counter, ...]


class StatusView(_Document, frozen=True, kw_only=True):
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


def task_view(entry: LedgerTask) -> LedgerTaskView:
    """Return a task as lists show it."""
    return LedgerTaskView(
        task_id=entry.task_id,
        state=entry.state.value,
        kind=entry.kind,
        home_node=entry.home_node,
        node=entry.node,
        fence=str(entry.fence) if entry.fence else None,
        waits=entry.waits,
        excluded=entry.excluded,
        offered_wall_s=entry.received.wall_s,
        ended_wall_s=entry.ended_wall_s,
        attempts=entry.attempts,
        outcome=entry.outcome,
    )


def task_in_full(entry: LedgerTask, placements: list[Placement]) -> LedgerTaskView:
    """Return a task with its document, the offer's decision and every placement with its own."""
    return msgspec.structs.replace(
        task_view(entry),
        task=entry.task,
        decision=entry.decision,
        placements=tuple(
            PlacementView(
                fence=str(one.fence),
                node=one.node,
                placed_wall_s=one.placed_wall_s,
                ended=one.ended,
                reason=one.reason,
                ended_wall_s=one.ended_wall_s,
                decision=one.decision,
            )
            for one in placements
        ),
    )


def letter_view(letter: DeadLetter) -> DeadLetterView:
    """Return a dead letter for people."""
    return DeadLetterView(
        number=letter.number,
        node=letter.node,
        lane=letter.lane.value,
        seq=letter.seq,
        kind=letter.kind,
        reason=letter.reason,
        wall_s=letter.wall_s,
        body=letter.body.decode("utf-8", "replace")[:4096],
    )
