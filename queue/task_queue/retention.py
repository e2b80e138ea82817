"""What may become of a row of the outbox when room is short: one table from kind to class.

Owns the classes. Knows neither levels nor storage.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from skerry.messages import (
    DecisionRecorded,
    FederationReply,
    GateEvidence,
    LossReported,
    PlacementRefused,
    PolicyReport,
    StoreSalvaged,
    TaskEnded,
    TaskOffered,
    TaskWithdrawn,
    UpRow,
)


class RowClass(StrEnum):
    """Classes of outbox rows; only telemetry is ever evicted."""

    TASK = "task"  #: ends, offers, refusals, answers: kept until they are acknowledged
    STATE = "state"  #: the last word on something: kept until it is acknowledged, or superseded by its key
    TELEMETRY = "telemetry"  #: one observation among many: sampled, and evicted oldest first


_CLASS_OF: dict[type[UpRow], RowClass] = {
    TaskOffered: RowClass.TASK,
    TaskEnded: RowClass.TASK,
    PlacementRefused: RowClass.TASK,
    TaskWithdrawn: RowClass.TASK,
    FederationReply: RowClass.TASK,
    LossReported: RowClass.STATE,
    StoreSalvaged: RowClass.STATE,
    PolicyReport: RowClass.STATE,
    GateEvidence: RowClass.STATE,
    DecisionRecorded: RowClass.TELEMETRY,
}
CLASS_OF_KIND = {str(kind.__struct_config__.tag): row_class for kind, row_class in _CLASS_OF.items()}


def class_of(kind: str) -> RowClass:
    """Return the class of a kind of row; one that is not known is kept like a task's."""
    return CLASS_OF_KIND.get(kind, RowClass.TASK)


class Amount(NamedTuple):
    """So many rows, with so many bytes of body."""

    rows: int = 0
    size_bytes: int = 0

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """Return the sum; sign -1: the difference."""
        return Amount(self.rows + sign * other.rows, self.size_bytes + sign * other.size_bytes)


#: What was deleted or is held, by class.
Amounts = dict[RowClass, Amount]


def total(amounts: Amounts) -> Amount:
    """Return the sum over the classes."""
    result = Amount()
    for amount in amounts.values():
        result = result.plus(amount)
    return result
