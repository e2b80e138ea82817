"""What the API takes, and from the ledger's values to the documents that it says. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cloud_coordinator.ledger.values import Counter, DeadLetter, LedgerTask, Placement, TaskState
from skerry.documents import Document
from skerry.fleet_documents import DeadLetterView, LedgerTaskView, PlacementView


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which token to make. node, region: the only ones it enrols; empty: any."""

    node: str = ""
    region: str = ""
    valid_s: Annotated[float, Meta(gt=0, le=366 * 86400)] | None = None


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list."""

    state: TaskState | None = None
    node: str = ""
    home_node: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    before: str = ""


class ReleaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How to end a quarantine."""

    moved: bool = False


class LetterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters to list."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    before: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None


class CounterList(Document, frozen=True, kw_only=True):
    """What was counted, durably: refusals, losses, ends, by node and reason."""

    counters: tuple[Counter, ...]


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
