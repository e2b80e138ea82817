"""The register's changes: births, presence, silence, quarantine, revocation, enrolment.

Owns the node's status. A node that is only silent keeps its work (leases.py decides on that).
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from cloud_coordinator.core import leases, losses, policies
from cloud_coordinator.core.actions import KeyChanged, Report
from cloud_coordinator.core.turn import NodeNow, Turn
from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.values import Token
from skerry.link.liveness import is_stale
from skerry.messages import Birth, Lane, State
from skerry.node import NodeRecord

replace = msgspec.structs.replace
#: Waiting tasks looked at when a node comes back; beyond that they are found at their next retry.
_LOOK_AT = 5000


def born(turn: Turn, node: NodeNow, birth: Birth) -> None:
    """A session began: what the node is now replaces what it was. Region and site stay as enrolled."""
    old = node.record
    if old.region != birth.region:
        turn.count("refused", node=old.name, reason="other_region")
        turn.act(
            Report("warning", f"says it is in region {birth.region}, enrolled in {old.region}", old.name)
        )
    if old.store_epoch and birth.store_epoch and birth.store_epoch != old.store_epoch:
        _store_changed(turn, old, birth)
    node.last_heard = turn.now
    node.state = None
    _write(
        turn,
        node,
        inventory=birth.inventory,
        boot_id=birth.boot_id,
        session=birth.session,
        version=birth.version[:64],
        store_epoch=birth.store_epoch[:64] or old.store_epoch,
        status="online",
    )
    mark = turn.ledger.mark(old.name, node.record.store_epoch, Lane.CONTROL)
    mark = replace(mark, session=birth.session, counter=turn.counter)
    turn.ledger.put_mark(old.name, node.record.store_epoch, Lane.CONTROL, mark)
    _give_another_chance(turn, old.name)
    policies.connected(turn, node)


def _store_changed(turn: Turn, old: NodeRecord, birth: Birth) -> None:
    """The node has another queue. One that was salvaged still holds what it names in its states.

    What it does not name any more runs out of its lease, as anywhere.
    """
    turn.count("stores_replaced", node=old.name)
    if old.store_epoch in birth.salvaged_from:
        losses.follow(turn.ledger, old.name, birth.store_epoch[:64])
        turn.act(Report("error", "its queue was damaged: what can be read goes on in a fresh one", old.name))
        return
    turn.act(Report("error", "came back with another queue: the old one was lost or replaced", old.name))
    leases.store_lost(turn, old.name)


def state_reported(turn: Turn, node: NodeNow, state: State) -> None:
    """Take the node's newest state and renew the leases of what it holds."""
    node.state = state
    node.last_heard = turn.now
    if node.record.status in ("stale", "lost"):
        _write(turn, node, status="online")
        plan_all(turn)
    leases.renew(turn, node, state)


def session_closed(turn: Turn, node: NodeNow) -> None:
    """The node went away in order, or its link broke: nothing moves, it may be back soon."""
    turn.act(Report("info", "its session ended", node.record.name))


def watch(turn: Turn) -> None:
    """Call silent nodes stale, and lost when a whole lease has passed."""
    for node in turn.memory.nodes.values():
        status = node.record.status
        if status not in ("online", "stale"):
            continue
        if turn.now.since(node.last_heard) >= turn.limits.lease_s:
            _write(turn, node, status="lost")
        elif status == "online" and is_stale(node.last_heard, turn.now, turn.limits.state_interval_s):
            _write(turn, node, status="stale")


def quarantined(turn: Turn, node: NodeNow, reason: str) -> None:
    """Two machines use one key: hear neither, keep their work where it is until an operator decides."""
    turn.count("quarantines", node=node.record.name)
    turn.act(Report("error", f"quarantined: {reason}", node.record.name))
    _write(turn, node, status="quarantined")


def released(turn: Turn, node: NodeNow, *, is_moved: bool) -> None:
    """An operator trusts the node again: the sessions that its copy has begun do not count.

    Its place stays its own machine's, so that a copy that is still about does not take it, unless it moved.
    """
    inventory = node.record.inventory
    if inventory and is_moved:
        inventory = replace(inventory, hardware_id="")
    _write(turn, node, status="stale", inventory=inventory)
    turn.act(KeyChanged(node.record, heard_upto(turn.ledger, node.record)))


def heard_upto(ledger: Ledger, record: NodeRecord) -> int:
    """Return the highest envelope of a node's newest session from which something was written."""
    marks = (ledger.mark(record.name, record.store_epoch, lane) for lane in Lane)
    return max((mark.counter for mark in marks if mark.session == record.session), default=0)


def revoked(turn: Turn, node: NodeNow) -> None:
    """An operator put the node out of the fleet."""
    _write(turn, node, public_key="", status="quarantined")
    turn.act(KeyChanged(node.record))
    leases.node_revoked(turn, node.record.name)


def enrolled(turn: Turn, record: NodeRecord) -> None:
    """A node joins, or joins again with a new key: whatever it was before, it begins anew."""
    node = NodeNow(record=record, last_heard=turn.now)
    known = turn.memory.nodes.get(record.name)
    if known is not None:
        node.reservations = known.reservations
        node.record = replace(record, store_epoch=known.record.store_epoch)
    turn.memory.nodes[record.name] = node
    _write(turn, node, last_seen_wall_s=turn.wall_s)
    turn.act(KeyChanged(node.record))
    turn.count("enrolments")


# --- tokens -------------------------------------------------------------------------------------------------


def digest_of(token_id: str, secret: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(f"{token_id}.{secret}".encode()).hexdigest()


def admit_token(turn: Turn, digest: str, *, valid_s: float, node: str = "", region: str = "") -> None:
    """Write a new one-use token, of which only the digest is known here."""
    turn.ledger.put_token(Token(digest=digest, made=turn.moment, valid_s=valid_s, node=node, region=region))
    turn.count("tokens_made")


def redeem(turn: Turn, digest: str, record: NodeRecord) -> str:
    """Enrol a node by its token; return "" or the reason against it, and then nothing changed.

    A repetition with the same key (the answer was lost) is granted again while the token is valid.
    """
    known = turn.ledger.token(digest)
    present = turn.memory.nodes.get(record.name)
    if known is None:
        return "this token is not known here: ask the operator for a new one"
    if known.made.age_s(turn.now, turn.wall_s) > known.valid_s:
        return "this token has expired: ask the operator for a new one"
    if known.node and known.node != record.name:
        return f"this token enrols {known.node}, not {record.name}"
    is_repetition = present is not None and present.record.public_key == record.public_key
    if known.region and known.region != record.region:
        return f"this token enrols into region {known.region}, not {record.region}"
    if known.used_by and not (known.used_by == record.name and is_repetition):
        return f"this token was used already, by {known.used_by}: ask the operator for a new one"
    if is_repetition:
        turn.ledger.put_token(replace(known, used_by=record.name))
        return ""
    if present is not None and present.record.public_key and known.node != record.name:
        return (
            f"{record.name} is enrolled with another key: choose another name, or ask the operator "
            f"for a token made for {record.name}, which replaces that key"
        )
    turn.ledger.put_token(replace(known, used_by=record.name))
    enrolled(turn, record)
    return ""


# --- inside -------------------------------------------------------------------------------------------------


def plan_all(turn: Turn) -> None:
    """Plan everything that waits: the fleet has changed for the better."""
    for task_id in turn.memory.queue.ids():
        turn.plan_soon(task_id)


def _give_another_chance(turn: Turn, name: str) -> None:
    """A node that starts anew may take what it refused before."""
    for task_id in turn.memory.queue.ids()[:_LOOK_AT]:
        entry = turn.ledger.task(task_id)
        if entry is not None and name in entry.excluded:
            excluded = {node: reason for node, reason in entry.excluded.items() if node != name}
            turn.ledger.put_task(replace(entry, excluded=excluded))
    plan_all(turn)


def _write(turn: Turn, node: NodeNow, **changes: Any) -> None:
    was = node.record
    node.record = replace(was, **{"last_seen_wall_s": turn.wall_s, **changes})
    turn.ledger.put_node(node.record)
    turn.memory.revision += 1
    if node.record.status != was.status:
        turn.count("node_status", node=was.name, reason=node.record.status)
        turn.act(Report("info", f"is {node.record.status} (was {was.status})", was.name))
