"""Policy versions, rollouts and what nodes say of them: frozen values, kept as documents in the ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from cloud_coordinator.ledger.values import Moment
from policy.gate.state import Stage
from skerry.policy_manifest import Comparison, PolicyManifest

Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(gt=0, le=366 * 86400)]


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    """A document."""


class VersionState(StrEnum):
    """What a version may be used for."""

    VETTING = "vetting"  #: it is being tried out in a process of its own
    READY = "ready"  #: it beats the fallback on scenarios held out from its training
    UNPROVEN = "unproven"  #: sound, but it was not shown to beat the fallback
    REFUSED = "refused"  #: it cannot be used: see the reason
    WITHDRAWN = "withdrawn"  #: a rollout of it was rolled back


class PolicyVersion(_Value, frozen=True, kw_only=True):
    """One version in the registry. Its file is in the content store under manifest.file_hash."""

    manifest: PolicyManifest  #: signed by this coordinator
    state: VersionState = VersionState.VETTING
    reason: str = ""
    added_by: str = ""
    added_wall_s: float = 0.0
    checked: tuple[Comparison, ...] = ()  #: what our own evaluation found

    @property
    def policy(self) -> str:
        """Its name everywhere: the file's hash."""
        return self.manifest.file_hash


class RolloutSpec(_Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a version is to be rolled out."""

    policy: str  #: file hash, or the beginning of its digits
    canaries: tuple[str, ...] = ()  #: nodes by name; empty: canary_count of those connected
    canary_count: Annotated[int, Meta(ge=1, le=1000)] = 1
    passes_at: Stage = Stage.FULL  #: where a canary's gate must be
    gate: dict[str, float] = {}  #: settings of the gate on the nodes
    canary_successes: Share = 1.0  #: share of canaries that must pass
    canary_failures: Share = 0.0  #: a larger share of failed canaries rolls back
    fleet_failures: Share = 0.2  #: the same for the whole fleet, also after the rollout is done
    wave_s: Seconds = 6 * 3600.0  #: what a wave may take, pauses left out
    silence_s: Seconds = 600.0  #: a connected node that was told and says nothing for so long has failed
    patience_s: Seconds = 3 * 86400.0  #: how long a pause may last before the rollout is rolled back
    may_be_unproven: bool = False  #: start although it was not shown to beat the fallback


class RolloutState(StrEnum):
    """Where a rollout is; every state but the last three has a deadline."""

    CANARY = "canary"  #: a few nodes try it; ends at wave_s
    FLEET = "fleet"  #: everyone is told; ends at wave_s
    PAUSED = "paused"  #: by an operator, or while a canary is disconnected; ends at patience_s
    DONE = "done"  #: it is what the fleet runs
    ROLLED_BACK = "rolled_back"  #: everyone was told to go back
    ABORTED = "aborted"  #: stopped by an operator; everyone was told to go back


#: States from which nothing moves any more.
FINAL = frozenset({RolloutState.DONE, RolloutState.ROLLED_BACK, RolloutState.ABORTED})

#: What may follow what; anything else is refused.
ROUTES: dict[RolloutState, frozenset[RolloutState]] = {
    RolloutState.CANARY: frozenset(
        {RolloutState.FLEET, RolloutState.PAUSED, RolloutState.ROLLED_BACK, RolloutState.ABORTED}
    ),
    RolloutState.FLEET: frozenset(
        {RolloutState.DONE, RolloutState.PAUSED, RolloutState.ROLLED_BACK, RolloutState.ABORTED}
    ),
    RolloutState.PAUSED: frozenset(
        {RolloutState.CANARY, RolloutState.FLEET, RolloutState.ROLLED_BACK, RolloutState.ABORTED}
    ),
    RolloutState.DONE: frozenset({RolloutState.ROLLED_BACK}),
    RolloutState.ROLLED_BACK: frozenset(),
    RolloutState.ABORTED: frozenset(),
}


class Rollout(_Value, frozen=True, kw_only=True):
    """One rollout. Whether a node takes part follows from canaries and state; nothing else is kept of it."""

    rollout_id: str
    spec: RolloutSpec
    policy: str
    previous: str  #: what the fleet ran before; empty: the fallback
    state: RolloutState
    since: Moment  #: since when it is in this state
    canaries: tuple[str, ...]
    used_s: float = 0.0  #: of the wave's time before the last pause
    resumes_to: RolloutState | None = None
    waits_for: str = ""  #: the disconnected canary that a pause waits for; empty: an operator's pause
    reason: str = ""
    started_by: str = ""
    started_wall_s: float = 0.0
    ended_wall_s: float | None = None


class NodePolicy(_Value, frozen=True, kw_only=True):
    """What a node was told of policies, and what it said."""

    node: str
    policy: str = ""  #: what it was told to run; empty: the fallback
    rollout: str = ""
    told: Moment | None = None  #: when, or when it was connected again since
    store_epoch: str = ""  #: of the node's queue when it was told: another one has forgotten it
    answered: bool = False
    state: str = ""  #: its last word: a state of the gate, fetching, refused, off
    reason: str = ""
    evidence: dict[str, float] = {}
    heard_wall_s: float = 0.0


class Current(_Value, frozen=True, kw_only=True):
    """What the fleet runs where no rollout says otherwise. Empty: the fallback."""

    policy: str = ""
    rollout: str = ""


class Progress(StrEnum):
    """How far a node is in a rollout."""

    WAITING = "waiting"  #: not told yet
    TOLD = "told"
    TRYING = "trying"
    PASSED = "passed"
    FAILED = "failed"  #: refused there, or rolled back by its gate
    SILENT = "silent"  #: told, connected, and no word for too long: counts as failed
    AWAY = "away"  #: disconnected: neither failed nor passed
    LEFT = "left"  #: told something else since; its last word here is not kept, or neither pass nor failure
