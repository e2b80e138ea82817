"""What nodes say they lost. Owns the newest totals of each node, and the counter that operators see.

A node reports running totals of one store, so a repeated or an overtaken report adds nothing; a new store
(another epoch) begins again at zero, unless it was salvaged from the old one; what that lost stays counted.
"""

from __future__ import annotations

import msgspec

from cloud_coordinator.core.turn import Turn
from cloud_coordinator.ledger.port import Ledger
from skerry.fleet_documents import LossView
from skerry.messages import LossReported

_KIND = "losses"
#: Reasons kept of one node; a node that says more is not believed further.
LIMIT = 200


class _Told(msgspec.Struct, kw_only=True):
    """What the store of one epoch has told, by class and reason."""

    epoch: str
    totals: dict[str, LossView] = {}


def take(turn: Turn, node: str, epoch: str, said: LossReported) -> None:
    """Count what is new in a report."""
    lost_class, reason = said.lost_class[:64], said.reason[:128]
    key = f"{lost_class}: {reason}"
    by = said.count
    if said.is_total:
        total = LossView(lost_class=lost_class, reason=reason, rows=said.count, size_bytes=said.size_bytes)
        by = _replace(turn, node, epoch, key, total)
    if by > 0:
        turn.count("lost", node=node, reason=key, by=by)


def follow(ledger: Ledger, node: str, epoch: str) -> None:
    """The node's store was salvaged into another one, which counts on from its totals."""
    told = _told(ledger, node)
    if told.totals:
        told.epoch = epoch
        ledger.put_document(_KIND, node, msgspec.json.encode(told))


def _replace(turn: Turn, node: str, epoch: str, key: str, total: LossView) -> int:
    """Keep a newer total and return how many rows it adds."""
    told = _told(turn.ledger, node)
    if told.epoch != epoch:
        told = _Told(epoch=epoch)
    before = told.totals.get(key)
    if before is None and len(told.totals) >= LIMIT:
        turn.count("refused", node=node, reason="loss.reported")
        return 0
    by = total.rows - (before.rows if before else 0)
    if by > 0:
        told.totals[key] = total
        turn.ledger.put_document(_KIND, node, msgspec.json.encode(told))
    return by


def of_node(ledger: Ledger, node: str) -> tuple[LossView, ...]:
    """Return what the node's present store has lost, by class and reason."""
    totals = _told(ledger, node).totals
    return tuple(totals[key] for key in sorted(totals))


def _told(ledger: Ledger, node: str) -> _Told:
    body = ledger.document(_KIND, node)
    return _Told(epoch="") if body is None else msgspec.json.decode(body, type=_Told)
