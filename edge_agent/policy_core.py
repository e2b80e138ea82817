"""What a node holds of policies and what it says of them: orders in, operations on its store out. Pure.

Owns the held policy's state. Must not know how files are fetched or run; the shell tells it how that went.
"""

from __future__ import annotations

from typing import Any

import msgspec

from policy.gate.core import Gate, new_trial
from policy.gate.settings import GateSettings
from policy.gate.state import GateState, Stage
from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights
from skerry.errors import PolicyError
from skerry.messages import ActivatePolicy, GateEvidence, Lane, PolicyReport, UpRow, row_of
from skerry.policy_manifest import PolicyManifest, decode_manifest, verify_manifest
from task_queue.operations import AppendOutbox, Operation, PutMeta

#: Evidence is said at each step of the gate, and after so many compared cells.
CELLS_A_ROW = 5
#: Under this name the store keeps what became of the last order.
HELD = "policy.held"
OFF, FETCHING, REFUSED, READY = "off", "fetching", "refused", "ready"


class Held(msgspec.Struct, kw_only=True):
    """The last order and what became of it."""

    rollout: str = ""
    policy: str = ""  #: file hash; empty: the fallback decides
    manifest: str = ""
    state: str = OFF  #: off, fetching, refused or ready: then the gate's stage says more
    reason: str = ""
    gate: GateState = msgspec.field(default_factory=GateState)


class PolicyCore:
    """One node's policy: which it is to run, whether it may, and its trial."""

    def __init__(self, held: Any, trusted_key: str, weights: ObjectiveWeights = DEFAULT_WEIGHTS) -> None:
        """held: what the store kept, None for nothing.  trusted_key: whose signature counts, hex."""
        self.held = Held() if held is None else msgspec.convert(held, Held)
        self.gate = Gate(self.held.gate, weights)
        self._trusted_key = trusted_key
        self._said: list[UpRow] = []
        self._evidence_at = (self.held.gate.stage, self.held.gate.stage_cells // CELLS_A_ROW)
        self._is_changed = False

    @property
    def state(self) -> str:
        """What is said of it: off, fetching, refused, or the gate's stage."""
        stage = self.held.gate.stage
        return stage.value if self.held.state == READY or stage is Stage.ROLLED_BACK else self.held.state

    @property
    def manifest(self) -> PolicyManifest | None:
        """The papers of the policy it is to run, None for the fallback."""
        return decode_manifest(self.held.manifest.encode()) if self.held.manifest else None

    @property
    def needs_file(self) -> bool:
        """The policy's file is to be fetched (or found here), checked and loaded."""
        return self.held.state in (FETCHING, READY) and self.held.gate.stage is not Stage.ROLLED_BACK

    def order(self, order: ActivatePolicy, *, seed: int) -> None:
        """Take an order: one that is in force already is answered and changes nothing.

        seed: of the gate's draws, if a new trial begins.
        """
        try:
            manifest = decode_manifest(order.manifest.encode()) if order.manifest else None
            settings = msgspec.convert(order.gate, GateSettings, strict=False)
        except (PolicyError, msgspec.ValidationError) as error:
            self._replace(Held(rollout=order.rollout, state=REFUSED, reason=str(error)[:500]))
            return
        policy = manifest.file_hash if manifest else ""
        held = self.held
        is_anew = order.must_restart and order.rollout != held.rollout
        if policy == held.policy and held.state != REFUSED and not is_anew:
            held.rollout = order.rollout
            self._report()
            return
        fresh = Held(rollout=order.rollout, policy=policy, manifest=order.manifest, state=OFF)
        if manifest is not None:
            against = verify_manifest(manifest, (self._trusted_key,))
            fresh.state, fresh.reason = (REFUSED, against) if against else (FETCHING, "")
            fresh.gate = GateState() if against else new_trial(policy, settings, seed)
        self._replace(fresh)

    def loaded(self) -> None:
        """The policy passed every check here and can be asked."""
        self.held.state, self.held.reason = READY, ""
        self._report()

    def refuse(self, reason: str) -> None:
        """The policy cannot be used here."""
        self.held.state, self.held.reason = REFUSED, reason[:500]
        self._report()

    def started(self) -> None:
        """The agent has begun: say what it runs, in case the coordinator knows it otherwise.

        Commit what follows before the policy is loaded: it may be what ends the process.
        """
        if self.needs_file:
            self.gate.started()
        if self.held.rollout or self.held.policy:
            self._report()

    def stopped(self) -> None:
        """The agent stops in order."""
        if self.needs_file:
            self.gate.stopped()

    def operations(self) -> list[Operation]:
        """Return what is to be committed by now, once: rows to say, and the state they belong to."""
        stage = self.held.gate.stage
        now_at = (stage, self.held.gate.stage_cells // CELLS_A_ROW)
        if now_at != self._evidence_at and self.held.policy:
            self._evidence_at = now_at
            self._said.append(
                GateEvidence(
                    policy=self.held.policy,
                    gate_state=stage.value,
                    evidence=self.gate.evidence(),
                    reason=self.held.gate.reason[:500],
                )
            )
        if not (self._said or self._is_changed or self.gate.is_worth_keeping):
            return []
        rows = [_outbox(message) for message in self._said]
        self._said, self._is_changed, self.gate.is_worth_keeping = [], False, False
        return [PutMeta(name=HELD, value=msgspec.to_builtins(self.held)), *rows]

    def _replace(self, held: Held) -> None:
        self.held = held
        self.gate = Gate(held.gate, self.gate.weights)
        self._evidence_at = (held.gate.stage, held.gate.stage_cells // CELLS_A_ROW)
        self._report()

    def _report(self) -> None:
        self._is_changed = True
        reason = self.held.reason or self.held.gate.reason
        self._said.append(
            PolicyReport(
                policy=self.held.policy, state=self.state, reason=reason[:500], rollout=self.held.rollout
            )
        )


def _outbox(message: UpRow) -> AppendOutbox:
    kind, body = row_of(message)
    # What was not sent yet is out of date: of a long time alone only the last word is kept.
    newest = f"evidence:{message.policy}" if isinstance(message, GateEvidence) else ""
    return AppendOutbox(lane=Lane.CONTROL, kind=kind, body=body, key="policy", coalesce=newest)
