"""How long the coordinator takes to place what this node hands over: from the offer's commit to the answer's.

Only trips that nothing but the decision took part in count: not those that a break of the link touched, nor
those of tasks that were told to wait until a node that can run them is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from skerry.clock import Clock
from skerry.ids import TaskId
from task_queue.operations import Answer, Changed, HandOver, Operation, RecordPlacement
from task_queue.task import State

_KEPT = 512


class RoundTrips:
    """The latest trips, in milliseconds on the boot clock."""

    def __init__(self, clock: Clock) -> None:
        """Begin with none."""
        self._clock = clock
        self._asked: dict[TaskId, float] = {}
        self._trips_ms: deque[float] = deque(maxlen=_KEPT)

    @property
    def latest_ms(self) -> tuple[float, ...]:
        """The latest trips, oldest first."""
        return tuple(self._trips_ms)

    def saw_commit(self, operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
        """Note the offers and the answers in one commit."""
        for operation, answer in zip(operations, answers, strict=True):
            match operation:
                case HandOver() if isinstance(answer, Changed) and answer.state is State.HANDED_OVER:
                    self._asked[operation.task_id] = self._clock.now().uptime_s
                case RecordPlacement():
                    asked_at = self._asked.pop(operation.task_id, None)
                    if asked_at is not None and operation.node:
                        took_s = self._clock.now().uptime_s - asked_at
                        self._trips_ms.append(round(took_s * 1000, 3))
                case _:
                    pass

    def link_changed(self) -> None:
        """Forget the trips under way: they would tell of the outage."""
        self._asked.clear()
