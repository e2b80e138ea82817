"""In which order a device takes what is reserved on it. Owns the rules' names and their keys."""

from __future__ import annotations

from enum import StrEnum


class QueueRule(StrEnum):
    """A rule turns each reserved task into a key: higher goes first, equals in order of arrival."""

    FIFO = "fifo"  #: as it came
    EDF = "edf"  #: earliest deadline first
    WSPT = "wspt"  #: weight / service time; what can no longer meet its deadline goes last
    PLACED = "placed"  #: where the scheduler put it; what can no longer meet its deadline goes last

    @property
    def is_doomed_last(self) -> bool:
        """Whether the rule puts what cannot meet its deadline behind the rest."""
        return self in (QueueRule.WSPT, QueueRule.PLACED)


def queue_key(rule: QueueRule, *, weight: float, runtime_s: float, due_s: float, turn: float) -> float:
    """Return a task's key.  due_s: its deadline on a clock that all tasks share.  turn: rises by arrival."""
    if rule is QueueRule.EDF:
        return -due_s
    if rule is QueueRule.WSPT:
        return weight / runtime_s
    return -turn
