"""The rollout's core: events in, commands to nodes out. One rollout at a time; every state has a way out.

Owns the book. Runs inside the coordinator's core, in its transaction: what a node is told is in its command
log with the same commit. Nothing here waits: a node that returns is told what is current then, and not what
it missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.values import Moment
from cloud_coordinator.rollout import registry
from cloud_coordinator.rollout.book import Book
from cloud_coordinator.rollout.progress import FAILED_STATES, Now, Step, next_step, progress_of
from cloud_coordinator.rollout.values import (
    FINAL,
    ROUTES,
    Current,
    NodePolicy,
    Progress,
    Rollout,
    RolloutSpec,
    RolloutState,
    VersionState,
)
from policy.gate.settings import GateSettings
from skerry.errors import PolicyError, SpecError
from skerry.messages import ActivatePolicy, GateEvidence, PolicyReport
from skerry.policy_manifest import encode_manifest

replace = msgspec.structs.replace
Tell = Callable[[str, ActivatePolicy], None]


class Rollouts:
    """Decides which node runs which policy."""

    def __init__(self, ledger: Ledger) -> None:
        """Take up what the ledger holds."""
        self.book = Book(ledger)

    # --- what an operator asks ------------------------------------------------------------------------

    def start(
        self, spec: RolloutSpec, at: Now, fleet: Fleet, tell: Tell, *, rollout_id: str, by: str
    ) -> Rollout:
        """Begin with the canaries.

        Raises PolicyError when it may not begin, saying why; SpecError for settings that no gate takes.
        """
        _check_gate(spec.gate)
        active = self.book.active
        if active is not None:
            raise PolicyError(
                f"rollout {active.rollout_id} is {active.state.value}: one at a time; abort it or wait for it"
            )
        version = registry.usable(self.book.version(spec.policy), may_be_unproven=spec.may_be_unproven)
        if version.policy == self.book.current.policy:
            raise PolicyError(f"policy {version.manifest.version} is what the fleet runs already")
        rollout = Rollout(
            rollout_id=rollout_id,
            spec=spec,
            policy=version.policy,
            previous=self.book.current.policy,
            state=RolloutState.CANARY,
            since=Moment(at.now, at.wall_s),
            canaries=_canaries(spec, fleet),
            started_by=by,
            started_wall_s=at.wall_s,
        )
        self.book.put_rollout(rollout)
        self._go_on(rollout, at, fleet, tell)
        return self.book.rollout(rollout_id)

    def pause(self, rollout_id: str, at: Now, *, by: str) -> Rollout:
        """Tell nobody anything new; gates on the nodes go on.  Raises PolicyError."""
        rollout = self._open(rollout_id)
        if rollout.state is RolloutState.PAUSED:
            paused = replace(rollout, waits_for="", reason=f"paused by {by}", since=Moment(at.now, at.wall_s))
            self.book.put_rollout(paused)
            return paused
        return self._move(rollout, Step(RolloutState.PAUSED, f"paused by {by}"), at)

    def resume(self, rollout_id: str, at: Now, fleet: Fleet, tell: Tell, *, by: str) -> Rollout:
        """Go on after a pause.  Raises PolicyError."""
        rollout = self._open(rollout_id)
        if rollout.state is not RolloutState.PAUSED or rollout.resumes_to is None:
            raise PolicyError(f"rollout {rollout_id} is {rollout.state.value}, not paused")
        resumed = self._move(rollout, Step(rollout.resumes_to, f"resumed by {by}"), at)
        self._go_on(resumed, at, fleet, tell)
        return self.book.rollout(rollout_id)

    def abort(self, rollout_id: str, at: Now, fleet: Fleet, tell: Tell, *, by: str) -> Rollout:
        """Stop, and send every node back to what the fleet ran before.  Raises PolicyError."""
        rollout = self._open(rollout_id)
        aborted = self._move(rollout, Step(RolloutState.ABORTED, f"aborted by {by}"), at)
        self._tell_all(at, fleet, tell)
        return aborted

    # --- what happens ---------------------------------------------------------------------------------

    def tick(self, at: Now, fleet: Fleet, tell: Tell) -> Rollout | None:
        """Look at the active rollout; return it when it changed its state."""
        active = self.book.active
        return self._go_on(active, at, fleet, tell) if active is not None else None

    def connected(self, node: str, at: Now, tell: Tell, *, store_epoch: str = "") -> None:
        """A node's session is open: tell it what it is to run now, if that is not what it knows."""
        known = self.book.node(node)
        has_forgotten = known.told is not None and known.store_epoch not in ("", store_epoch)
        if known.store_epoch != store_epoch:
            self.book.put_node(replace(known, store_epoch=store_epoch))
        if has_forgotten or self._wanted(node) != (known.policy, known.rollout):
            self._tell(node, at, tell)
        elif known.told is not None and not known.answered:
            told = Moment(at.now, at.wall_s)
            self.book.put_node(replace(known, told=told, store_epoch=store_epoch))

    def reported(
        self, node: str, said: PolicyReport | GateEvidence, at: Now, fleet: Fleet, tell: Tell
    ) -> Rollout | None:
        """Take a node's word; return the rollout whose state it changed."""
        known = self.book.node(node)
        if isinstance(said, PolicyReport) and said.rollout != known.rollout:
            self._stale(node, said, at, tell)
            return None
        if said.policy != known.policy:
            return None
        state = said.state if isinstance(said, PolicyReport) else said.gate_state
        evidence = said.evidence if isinstance(said, GateEvidence) else known.evidence
        heard = replace(
            known, answered=True, state=state, reason=said.reason[:500], evidence=evidence,
            heard_wall_s=at.wall_s,
        )  # fmt: skip
        if heard != known:
            self.book.put_node(heard)
        rollout = self.book.active or self.book.rollouts.get(self.book.current.rollout)
        return self._go_on(rollout, at, fleet, tell) if rollout is not None else None

    def progress(self, rollout: Rollout, at: Now, fleet: Fleet) -> dict[str, Progress]:
        """Return how far each node of the rollout's wave is."""
        is_canary_wave = RolloutState.CANARY in (rollout.state, rollout.resumes_to) or (
            rollout.state in FINAL and rollout.state is not RolloutState.DONE
        )
        members = rollout.canaries if is_canary_wave else tuple(fleet)
        return {
            name: progress_of(
                rollout,
                self.book.node_in(rollout.rollout_id, name),
                is_canary=is_canary_wave,
                is_connected=fleet.get(name, False),
                has_left=self._has_left(rollout, name),
                at=at,
            )
            for name in members
        }

    # --- inside ---------------------------------------------------------------------------------------

    def _has_left(self, rollout: Rollout, node: str) -> bool:
        """Whether a node runs something else by now, and not only has not been told yet."""
        runs, active = self.book.node(node).rollout, self.book.active
        is_over = rollout.state in FINAL and self.book.current.rollout != rollout.rollout_id
        is_in_another = active is not None and runs == active.rollout_id
        return runs != rollout.rollout_id and (is_over or is_in_another)

    def _open(self, rollout_id: str) -> Rollout:
        rollout = self.book.rollout(rollout_id)
        if rollout.state in FINAL:
            raise PolicyError(f"rollout {rollout_id} is {rollout.state.value} already")
        return rollout

    def _go_on(self, rollout: Rollout, at: Now, fleet: Fleet, tell: Tell) -> Rollout | None:
        """Take every step that is due, then tell the nodes whose turn it is."""
        begun = rollout.state
        for _ in RolloutState:  # no path through the states is longer
            step = next_step(rollout, self.progress(rollout, at, fleet), at)
            if step is None:
                break
            rollout = self._move(rollout, step, at)
        if rollout.state is not RolloutState.PAUSED:
            self._tell_all(at, fleet, tell)
        return rollout if rollout.state is not begun else None

    def _move(self, rollout: Rollout, step: Step, at: Now) -> Rollout:
        if step.state not in ROUTES[rollout.state]:
            raise PolicyError(f"rollout {rollout.rollout_id} cannot go from {rollout.state} to {step.state}")
        was_paused = rollout.state is RolloutState.PAUSED
        is_pause = step.state is RolloutState.PAUSED
        used_s = rollout.used_s if was_paused else rollout.used_s + at.age_s(rollout.since)
        keeps_wave = is_pause or (was_paused and step.state is rollout.resumes_to)
        moved = replace(
            rollout,
            state=step.state,
            since=Moment(at.now, at.wall_s),
            used_s=used_s if keeps_wave else 0.0,
            resumes_to=rollout.state if is_pause else None,
            waits_for=step.waits_for,
            reason=step.reason + self._words_of(step.about),
            ended_wall_s=at.wall_s if step.state in FINAL else None,
        )
        self.book.put_rollout(moved)
        self._settle(moved)
        return moved

    def _words_of(self, node: str) -> str:
        reason = self.book.node(node).reason if node else ""
        return f": {reason}" if reason else ""

    def _settle(self, rollout: Rollout) -> None:
        """What the end of a rollout means for the fleet and for the version."""
        book = self.book
        if rollout.state is RolloutState.DONE:
            book.put_current(Current(policy=rollout.policy, rollout=rollout.rollout_id))
        elif rollout.state in (RolloutState.ROLLED_BACK, RolloutState.ABORTED):
            if book.current.rollout == rollout.rollout_id:
                done = [r for r in book.rollouts.values() if r.state is RolloutState.DONE]
                before = [r for r in done if r.policy == rollout.previous]
                last = max(before, key=lambda r: r.started_wall_s, default=None)
                book.put_current(Current(policy=rollout.previous, rollout=last.rollout_id if last else ""))
            if rollout.state is RolloutState.ROLLED_BACK:
                version = book.version(rollout.policy)
                book.put_version(replace(version, state=VersionState.WITHDRAWN, reason=rollout.reason))

    def _wanted(self, node: str) -> tuple[str, str]:
        active = self.book.active
        if active is not None:
            wave = active.resumes_to or active.state
            if node in active.canaries or wave is RolloutState.FLEET:
                return active.policy, active.rollout_id
        return self.book.current.policy, self.book.current.rollout

    def _tell_all(self, at: Now, fleet: Fleet, tell: Tell) -> None:
        for name, is_connected in fleet.items():
            known = self.book.node(name)
            if is_connected and self._wanted(name) != (known.policy, known.rollout):
                self._tell(name, at, tell)

    def _stale(self, node: str, said: PolicyReport, at: Now, tell: Tell) -> None:
        """A word on something else than it was told last: said before it heard, or its store was lost."""
        known = self.book.node(node)
        if known.told is not None and known.answered and (said.policy, said.rollout) != self._wanted(node):
            self._tell(node, at, tell)

    def _tell(self, node: str, at: Now, tell: Tell) -> None:
        policy, rollout_id = self._wanted(node)
        rollout = self.book.rollouts.get(rollout_id)
        told = Moment(at.now, at.wall_s)
        epoch = self.book.node(node).store_epoch
        self._keep_last_words(node, rollout_id)
        self.book.put_node(
            NodePolicy(node=node, policy=policy, rollout=rollout_id, told=told, store_epoch=epoch)
        )
        manifest = encode_manifest(self.book.versions[policy].manifest).decode() if policy else ""
        tell(
            node,
            ActivatePolicy(
                rollout=rollout_id,
                manifest=manifest,
                gate=rollout.spec.gate if rollout and policy else {},
                must_restart=bool(rollout and policy and rollout.spec.may_be_unproven),
                previous=self.book.current.policy,
            ),
        )

    def _keep_last_words(self, node: str, next_rollout: str) -> None:
        """Why a rollout ended as it did must be there to read when its nodes have long gone back."""
        known = self.book.node(node)
        left = self.book.rollouts.get(known.rollout)
        if left is None or left.rollout_id == next_rollout:
            return
        if node in left.canaries or known.state in FAILED_STATES:
            self.book.put_left(known)


#: Node name → whether it is connected: those that may take part.
Fleet = Mapping[str, bool]


def _check_gate(gate: Mapping[str, float]) -> None:
    try:
        msgspec.convert(dict(gate), GateSettings, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(f"the gate's settings do not hold: {error}", field="gate") from error


def _canaries(spec: RolloutSpec, fleet: Fleet) -> tuple[str, ...]:
    """The named nodes, or the first connected ones by name."""
    unknown = sorted(set(spec.canaries) - set(fleet))
    if unknown:
        raise PolicyError(f"there is no node {', '.join(unknown)} that could be a canary")
    if spec.canaries:
        return tuple(dict.fromkeys(spec.canaries))
    connected = sorted(name for name, is_connected in fleet.items() if is_connected)
    if len(connected) < spec.canary_count:
        raise PolicyError(f"{spec.canary_count} canaries are asked for, {len(connected)} nodes are connected")
    return tuple(connected[: spec.canary_count])
