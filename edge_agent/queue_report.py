"""What is said of a queue in full: depth, room, losses, last check. Of a running agent or a stopped one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from skerry.clock import Instant, is_wall_trusted
from skerry.queue_documents import LossView, QueueCheck, QueueDetails
from task_queue.inspection import schema_known
from task_queue.limits import Limits
from task_queue.recurring_row import RecurringRecord
from task_queue.store import Depth, Loss, Waiting
from task_queue.watermarks import Usage, fullness, level

#: Under this name the store keeps what the last check found.
LAST_CHECK = "queue_check"


class Inspectable(Protocol):
    """What is asked of a queue: every Store can answer, and so can the file of a stopped agent."""

    @property
    def epoch(self) -> str:
        """Random id of the store."""
        ...

    def depth(self) -> Depth:
        """Return the counters."""
        ...

    def losses(self) -> list[Loss]:
        """Return the loss ledger."""
        ...

    def usage(self) -> Usage:
        """Return what is taken of the disk."""
        ...

    def waiting(self) -> Waiting:
        """Return what is ready."""
        ...

    def recurring(self, *, now: Instant) -> list[RecurringRecord]:
        """Return the recurring tasks."""
        ...

    def meta(self, name: str) -> Any:
        """Return a value kept by name."""
        ...


def queue_details(
    queue: Inspectable, *, path: Path, limits: Limits, now: Instant, wall_s: float
) -> QueueDetails:
    """Return everything that is told of a queue. Ages are by the wall clock: none while it is not trusted."""
    depth, usage, waiting = queue.depth(), queue.usage(), queue.waiting()
    ballast = path.with_name(path.name + ".ballast")
    return QueueDetails(
        path=str(path),
        epoch=queue.epoch,
        schema=schema_known(),
        by_state={state.value: count for state, count in depth.by_state.items()},
        waiting_by_priority={str(p): n for p, n in sorted(waiting.by_priority.items(), reverse=True)},
        outbox={lane.value: count for lane, count in depth.outbox.items()},
        outbox_by_class={
            row_class.value: {"rows": amount.rows, "bytes": amount.size_bytes}
            for row_class, amount in depth.by_class.items()
        },
        level=level(usage, limits).name.lower(),
        fullness=round(fullness(usage, limits), 4),
        used_bytes=usage.used_bytes,
        file_bytes=usage.file_bytes,
        log_bytes=usage.log_bytes,
        free_bytes=usage.free_bytes,
        limit_bytes=limits.max_bytes,
        ballast_bytes=ballast.stat().st_size if ballast.exists() else 0,
        oldest_task=waiting.oldest,
        oldest_age_s=_age_s(waiting.oldest_wall_s, wall_s),
        recurring=len(queue.recurring(now=now)),
        losses=tuple(
            LossView(
                lost_class=loss.lost_class, reason=loss.reason, rows=loss.rows, size_bytes=loss.size_bytes
            )
            for loss in queue.losses()
        ),
        last_check=_last_check(queue.meta(LAST_CHECK)),
    )


def _age_s(since_wall_s: float | None, wall_s: float) -> float | None:
    if since_wall_s is None or not (is_wall_trusted(since_wall_s) and is_wall_trusted(wall_s)):
        return None
    return round(max(0.0, wall_s - since_wall_s), 3)


def _last_check(kept: Any) -> QueueCheck | None:
    return None if kept is None else msgspec.convert(kept, type=QueueCheck)


def recurring_figures(records: Sequence[RecurringRecord]) -> dict[str, float]:
    """Return what a node's recurring tasks add up to, for monitors; nothing while there are none."""
    if not records:
        return {}
    return {
        "accepted": float(sum(record.runs for record in records)),
        "missed": float(sum(record.missed for record in records)),
        "owed": float(sum(record.owed for record in records)),
    }
