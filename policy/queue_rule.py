"""In which order a device takes what is reserved on it. Owns the rules' names and their keys."""

from __future__ import annotations

from enum import StrEnum


class QueueRule(StrEnum):
    """A rule turns each reserved task into a key: higher goes first, equals in order of arrival."""

    FIFO = "fifo"  #: as it came
    EDF = "edf"  #: earliest deadline first
    WSPT = "wspt"  #: weight / service time; what can no longer meet its deadline goes last
    PRIORITY = "priority"  #: highest priority first, then the shortest
    PLACED = "placed"  #: where the scheduler put it; what can no longer meet its deadline goes last

    @property
    def is_doomed_last(self) -> bool:
        """Whether the rule puts what cannot meet its deadline behind the rest."""
        return self in (QueueRule.WSPT, QueueRule.PLACED)


#: Priorities this far apart, in seconds, are never bridged by run times.
_LONGEST_S = 1e9
_SHORTEST_S = 1e-9


def queue_key(
    rule: QueueRule, *, weight: float, runtime_s: float, due_s: float, turn: float, priority: int = 0
) -> float:
    """Return a task's key.  due_s: its deadline on a clock that all tasks share.  turn: rises by arrival."""
    if rule is QueueRule.PRIORITY:
        return priority * _LONGEST_S - runtime_s
    if rule is QueueRule.EDF:
        return -due_s
    if rule is QueueRule.WSPT:
        return weight / max(runtime_s, _SHORTEST_S)
    return -turn
