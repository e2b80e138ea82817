"""What edge and cloud say to each other: one frozen struct a message body. Owns the wire names.

Unknown fields are ignored on reading (an older side meets a newer one); an unknown kind is dead-lettered.
Both directions use the same stream: rows with sequence numbers, sent in batches, acknowledged cumulatively by
the other side's application after its commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from skerry.decision import Decision
from skerry.decoding import Count, Number
from skerry.fence import Fence
from skerry.node import Inventory
from skerry.task import TaskSpec

PROTOCOL = 1


class Lane(StrEnum):
    """Three lanes; a lower one never delays a higher one, order holds inside each."""

    CONTROL = "control"
    LIVE = "live"
    BACKLOG = "backlog"


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message body."""


class Row(_Body, frozen=True, kw_only=True):
    """One message of a stream."""

    seq: Number
    kind: str
    body: msgspec.Raw
    key: str = ""  #: rows with one key stay in order


class StreamBatch(_Body, frozen=True, kw_only=True):
    """Rows of one lane. epoch: id of the sender's store. after: the row before the first, 0 at the start."""

    epoch: str
    lane: Lane
    after: Number
    rows: tuple[Row, ...]


class StreamAck(_Body, frozen=True, kw_only=True):
    """Everything of `lane` up to `upto` is committed at the receiver; `credit`: rows it takes beyond."""

    epoch: str
    lane: Lane
    upto: Number
    credit: Number = 2000
    retry_after_s: float = 0.0
    is_gap: bool = False  #: a batch came that does not follow `upto`: send again from there


class Birth(_Body, frozen=True, kw_only=True):
    """First word of a session. marks: last applied row of the coordinator's stream, by lane."""

    boot_id: str
    session: Number
    inventory: Inventory
    region: str
    site: str = ""
    version: str = ""
    protocol: Number = PROTOCOL
    store_epoch: str = ""
    command_epoch: str = ""
    marks: dict[str, int] = {}
    is_clock_trusted: bool = True
    number: Number = 0  #: how often this session was announced; the welcome repeats it
    process: str = ""  #: random id of the process that speaks: one session belongs to one process
    was: Number = 0  #: the session it had until it was told of a newer one; 0 when it never was
    term: Number = 0  #: the highest term of a coordinator that welcomed it
    #: Stores that were damaged, and whose readable rows the present one has taken over; the latest last.
    salvaged_from: tuple[str, ...] = ()


class Welcome(_Body, frozen=True, kw_only=True):
    """The coordinator's answer to a birth. marks: what it holds of the node's stream, by lane."""

    session: Number
    term: Number
    command_epoch: str
    marks: dict[str, int] = {}
    credit: Number = 2000
    version: str = ""
    state_interval_s: float = 5.0
    birth_number: Number = 0  #: of the birth that this answers; 0 from a side that does not count
    spread_s: float = 0.0  #: draw the delay of a reconnect from no less than this (fleet size ÷ allowed rate)


class Hint(_Body, frozen=True, kw_only=True):
    """What the coordinator asks of a node outside the streams. An empty boot_id means any boot."""

    boot_id: str = ""
    retry_after_s: float = 0.0  #: say nothing but presence for this long
    reason: str = ""  #: for people; not empty when something needs their attention
    must_be_born: bool = False  #: the coordinator does not know this session: say the birth again
    spread_s: float = 0.0  #: draw the moment of that birth from this: others are asked for theirs as well
    newest_session: Number = 0  #: a birth was refused, for this session is known; 0 says nothing
    process: str = ""  #: whose the newest session is, as far as it is known


class State(_Body, frozen=True, kw_only=True):
    """What a node is doing now; newer replaces older."""

    session: Number
    queued: Number
    running: Number
    outbox: Number
    free_cpu_millicores: Number
    free_memory_bytes: Number
    holds: tuple[str, ...] = ()  #: ids of the placed tasks it has and has not ended: renews their leases
    device_load: dict[str, float] = {}  #: seconds of work reserved, by device id
    number: Number = 0  #: of this report within the session; its acknowledgement repeats it


class StateAck(_Body, frozen=True, kw_only=True):
    """The coordinator has taken this report of this session: the leases it names count anew from there."""

    session: Number
    number: Number


class Presence(_Body, frozen=True, kw_only=True):
    """Retained; the broker publishes the offline form as the session's will."""

    session: Number
    online: bool


# --- rows of the node's stream (edge → cloud) -------------------------------------------------------------


class TaskOffered(_Body, frozen=True, kw_only=True, tag_field="kind", tag="task.offered"):
    """The node hands this task over; it keeps its row until the coordinator has committed it."""

    task_id: str
    task: TaskSpec
    reason: str = ""
    decision: Decision | None = None
    is_again: bool = False  #: it was offered to a ledger that is gone, which may have had it run


class Outcome(_Body, frozen=True, kw_only=True):
    """How a task ended. status: succeeded, failed, expired, cancelled, dead, unknown."""

    status: str
    result: Any = None  #: JSON values
    error: str = ""
    blobs: tuple[str, ...] = ()  #: content hashes that the result refers to
    node: str = ""
    device: str = ""
    device_class: str = ""
    decided_by: str = ""
    runtime_s: float = 0.0


class TaskEnded(_Body, frozen=True, kw_only=True, tag_field="kind", tag="task.ended"):
    """A task ended here. is_placed: under a coordinator's placement (so it commits under the fence)."""

    task_id: str
    task_kind: str
    fence: Fence
    outcome: Outcome
    is_placed: bool = False
    attempts: Number = 1


#: Why a placement comes back that was not begun in time. It says nothing against the node.
LEASE_RAN_OUT = "the placement's lease ran out"


class PlacementRefused(_Body, frozen=True, kw_only=True, tag_field="kind", tag="placement.refused"):
    """The node cannot run what was placed on it (rule, lost device, expired lease)."""

    task_id: str
    fence: Fence
    reason: str


class TaskWithdrawn(_Body, frozen=True, kw_only=True, tag_field="kind", tag="task.withdrawn"):
    """The submitter cancelled a task that was handed over."""

    task_id: str


class DecisionRecorded(_Body, frozen=True, kw_only=True, tag_field="kind", tag="decision.recorded"):
    """One decision, for the record."""

    decision: Decision


class LossReported(_Body, frozen=True, kw_only=True, tag_field="kind", tag="loss.reported"):
    """Rows that were evicted, expired, dead-lettered or not let in.

    is_total: the counts are of this store since its epoch began, so that a newer report replaces an older one
    and a repetition is harmless; otherwise they come on top of what was reported.
    """

    lost_class: str  #: telemetry, task, history, or the kind of a row
    reason: str
    count: Count
    size_bytes: Count = 0
    is_total: bool = False


class StoreSalvaged(_Body, frozen=True, kw_only=True, tag_field="kind", tag="store.salvaged"):
    """A damaged database was set aside and what could be read was kept. kept, lost: the same by table."""

    quarantined: str
    rows_kept: Count
    rows_lost: Count
    kept: dict[str, Count] = {}
    lost: dict[str, Count] = {}


class GateEvidence(_Body, frozen=True, kw_only=True, tag_field="kind", tag="gate.evidence"):
    """Figures of a policy under trial against the fallback, at each step of the gate."""

    policy: str  #: file hash
    gate_state: str  #: shadow, canary, partial, full or rolled_back
    evidence: dict[str, float] = {}
    reason: str = ""


class PolicyReport(_Body, frozen=True, kw_only=True, tag_field="kind", tag="policy.report"):
    """What became of a policy on this node.

    state: fetching, refused, a state of the gate, or off when the fallback decides because it was told so.
    """

    policy: str  #: file hash; empty: none
    state: str
    reason: str = ""
    rollout: str = ""  #: under which the node was told of it


class FederationReply(_Body, frozen=True, kw_only=True, tag_field="kind", tag="federation.reply"):
    """What a node's training made of an instruction. Exactly one of inline, update and error is set."""

    instruction_id: str
    run_id: str
    version: Number  #: the version it trained from
    num_examples: Number = 0
    inline: bytes = b""  #: a small packet of parameters
    update: str = ""  #: content hash of a larger one, which is with the coordinator before this row
    metrics: dict[str, float] = {}
    error: str = ""  #: why there is no update; `superseded`: a newer instruction came before it began


UpRow = (
    TaskOffered
    | TaskEnded
    | PlacementRefused
    | TaskWithdrawn
    | DecisionRecorded
    | LossReported
    | StoreSalvaged
    | GateEvidence
    | PolicyReport
    | FederationReply
)

# --- rows of the coordinator's stream to one node: its command log ------------------------------------------


class PlaceTask(_Body, frozen=True, kw_only=True, tag_field="kind", tag="place.task"):
    """Run this task under this placement. lease_s: powered-on seconds it stays valid if not renewed."""

    task_id: str
    task: TaskSpec
    fence: Fence
    home_node: str
    lease_s: float
    decision: Decision | None = None


class RevokePlacement(_Body, frozen=True, kw_only=True, tag_field="kind", tag="place.revoke"):
    """The placement is over: drop the task unless it has ended."""

    task_id: str
    fence: Fence
    reason: str = ""


class TaskPlaced(_Body, frozen=True, kw_only=True, tag_field="kind", tag="task.placed"):
    """To the home node: where its task went, or why it still waits (node is empty)."""

    task_id: str
    fence: Fence
    node: str
    decision: Decision


class TaskReturned(_Body, frozen=True, kw_only=True, tag_field="kind", tag="task.returned"):
    """To the home node: how the task it handed over ended."""

    task_id: str
    fence: Fence
    outcome: Outcome


class ActivatePolicy(_Body, frozen=True, kw_only=True, tag_field="kind", tag="policy.activate"):
    """Fetch this policy, check it, and let the gate try it; without a manifest: back to the fallback.

    The same one again changes nothing, and is answered with a report.
    """

    rollout: str = ""
    manifest: str = ""  #: the signed papers as JSON; empty: the fallback decides
    gate: dict[str, float] = {}  #: settings of the gate, where not the defaults
    must_restart: bool = False  #: begin the trial anew, though this version was rolled back here before
    previous: str = ""  #: file hash of what the fleet runs otherwise


class FederationRequest(_Body, frozen=True, kw_only=True, tag_field="kind", tag="federation.request"):
    """Train from one version of a model on what the node recorded; answered by a FederationReply.

    A newer one of the same run replaces one that was not begun. The same one again changes nothing.
    """

    instruction_id: str
    run_id: str
    version: Number
    model: str  #: content hash of the packet of parameters
    trainer: str
    config: dict[str, bool | int | float | str] = {}
    ttl_s: float = 0.0  #: powered-on seconds from its receipt after which nobody wants the answer
    seed: Number = 0


class FederationOver(_Body, frozen=True, kw_only=True, tag_field="kind", tag="federation.over"):
    """A run has ended: what was asked for it need not be done, nor answered."""

    run_id: str
    reason: str = ""


DownRow = (
    PlaceTask
    | RevokePlacement
    | TaskPlaced
    | TaskReturned
    | ActivatePolicy
    | FederationRequest
    | FederationOver
)


def row_of(message: UpRow | DownRow) -> tuple[str, bytes]:
    """Return (kind, body) of a stream message, ready for the outbox."""
    kind = type(message).__struct_config__.tag
    assert isinstance(kind, str)  # every member of the unions has a string tag
    return kind, msgspec.json.encode(message)
