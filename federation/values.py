"""What a federated run is made of: its specification, instructions, replies and verdicts. Pure values.

A run makes versions 1, 2, … of one model out of version 0. An instruction asks one node to improve one
version; a reply answers exactly one instruction. Parameters travel as `wire` packets, by hash or inline.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Literal

import msgspec

Scalar = bool | int | float | str
#: What an update may weigh inside a reply; a larger one goes by content hash.
INLINE_LIMIT_BYTES = 32 * 1024
#: An outage of 72 hours and an hour to spare.
DEFAULT_TTL_S = 73 * 3600.0


class RunState(StrEnum):
    """Where a run is. `done`, `failed` and `cancelled` are final."""

    CREATED = "created"  #: written down; its worker has not asked for nodes yet
    WAITING = "waiting"  #: too few eligible nodes; the reason and the end of patience are stated
    RUNNING = "running"  #: instructions are out or replies are being merged
    DONE = "done"  #: all versions are made
    FAILED = "failed"  #: cannot go on; the reason is stated
    CANCELLED = "cancelled"  #: someone asked for its end


FINAL_RUN_STATES = frozenset({RunState.DONE, RunState.FAILED, RunState.CANCELLED})

#: state → states that may follow. A state may be entered again from itself to renew its reason.
RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.CREATED: frozenset(
        {RunState.CREATED, RunState.WAITING, RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}
    ),
    RunState.WAITING: frozenset({RunState.WAITING, RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.RUNNING: frozenset(
        {RunState.RUNNING, RunState.WAITING, RunState.DONE, RunState.FAILED, RunState.CANCELLED}
    ),
    RunState.DONE: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}


class ReplyState(StrEnum):
    """Where an instruction and its reply are: one row, so a reply counts once at most."""

    OPEN = "open"  #: handed to the courier, no reply yet
    SUPERSEDED = "superseded"  #: a newer instruction for the same node replaced it before a reply came
    RECEIVED = "received"  #: its reply is stored, its version still open
    LATE = "late"  #: its reply is stored, and came after its version closed or after it was superseded
    ACCEPTED = "accepted"  #: merged into the version named in `counted_in`
    REFUSED = "refused"  #: not merged, for the reason named


FINAL_REPLY_STATES = frozenset({ReplyState.ACCEPTED, ReplyState.REFUSED})

#: state → states that may follow.
REPLY_TRANSITIONS: dict[ReplyState, frozenset[ReplyState]] = {
    ReplyState.OPEN: frozenset(
        {ReplyState.SUPERSEDED, ReplyState.RECEIVED, ReplyState.LATE, ReplyState.REFUSED}
    ),
    ReplyState.SUPERSEDED: frozenset({ReplyState.LATE, ReplyState.REFUSED}),
    ReplyState.RECEIVED: frozenset({ReplyState.LATE, ReplyState.ACCEPTED, ReplyState.REFUSED}),
    ReplyState.LATE: frozenset({ReplyState.ACCEPTED, ReplyState.REFUSED}),
    ReplyState.ACCEPTED: frozenset(),
    ReplyState.REFUSED: frozenset(),
}


class CohortRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which nodes take part: enrolled, opted in, seen lately. An empty `nodes` admits every such node."""

    seen_within_s: float = 73 * 3600.0
    nodes: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    limit: int = 10_000  #: at most so many, in an order drawn from the run's seed


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run shall do. Fixed from its creation on."""

    run_id: str  #: may stand in a topic: see skerry.ids.check_name
    trainer: Literal["null", "toy", "ppo"] = "ppo"
    strategy: Literal["synchronous", "buffered"] = "synchronous"
    rounds: int = 3  #: versions to make
    quorum: int = 2  #: accepted replies without which no version is made
    deadline_s: float = 600.0  #: powered-on seconds from a version's first instruction until it closes
    patience_s: float = 24 * 3600.0  #: powered-on seconds to wait for `quorum` eligible nodes
    ttl_s: float = DEFAULT_TTL_S  #: a node drops an instruction that is older than this
    seed: int = 0
    base: str = ""  #: content hash of the packet with version 0; empty: the trainer's own initial parameters
    base_policy: str = ""  #: file hash of the policy the packet was made from, for the lineage
    cohort: CohortRule = CohortRule()
    max_staleness: int = 3  #: a reply to a version further behind than this is refused
    buffer: int = 2  #: strategy `buffered`: accepted replies that make a version
    server_rate: float = 1.0  #: share of the mean update that is applied
    max_examples: int = 1_000_000  #: a reply that claims more is refused
    #: handed to every trainer with each instruction
    config: dict[str, Scalar] = {}


class Instruction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Asks one node to train from one version. A newer one for the node replaces an older one not begun."""

    id: str  #: 32 hex digits, the same each time the same (run, version, node) is asked
    run_id: str
    version: int  #: the version to train from
    node: str
    model: str  #: content hash of the packet that holds the version
    trainer: str
    config: dict[str, Scalar]
    ttl_s: float  #: from the receiver's own receipt, powered-on seconds
    seed: int = 0


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node's answer. Exactly one of `inline`, `update` and `error` is set.

    The node is the one that the courier authenticated, not one that the sender claims.
    """

    instruction_id: str
    run_id: str
    node: str
    base_version: int
    num_examples: int = 0
    inline: bytes = b""  #: a packet of at most INLINE_LIMIT_BYTES
    update: str = ""  #: content hash of a larger packet
    metrics: dict[str, float] = {}
    error: str = ""  #: why there is no update; "superseded" when a newer instruction replaced this one


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The reply takes part. weight: before normalisation.  scale: below 1 when its update was clipped."""

    weight: float
    staleness: int = 0
    norm: float = 0.0
    scale: float = 1.0


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The reply takes no part. code: what it is counted under.  reason: a sentence for people."""

    code: str
    reason: str


Verdict = Accepted | Refused


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the register as the choice of participants sees it."""

    name: str
    region: str = ""
    has_opted_in: bool = False
    is_trusted: bool = True  #: enrolled and not quarantined
    seen_ago_s: float = 0.0  #: infinite when it was never seen


def instruction_id(run_id: str, version: int, node: str) -> str:
    """Return the id of the one instruction that asks this node for this version: pushing twice asks once."""
    return hashlib.sha256(f"{run_id}\n{version}\n{node}".encode()).hexdigest()[:32]


def node_number(node: str) -> int:
    """Return the number by which Flower's code knows a node: 62 bits of its name's hash, never 0 or 1."""
    return int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big") >> 2 | 2
