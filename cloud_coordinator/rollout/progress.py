"""How far each node is in a rollout, and what that means for it. Pure: values in, a step out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cloud_coordinator.ledger.values import Moment
from cloud_coordinator.rollout.values import NodePolicy, Progress, Rollout, RolloutState
from policy.gate.state import Stage
from skerry.clock import Instant

#: A gate's stages in the order in which a candidate goes through them.
ORDER = (Stage.SHADOW, Stage.CANARY, Stage.PARTIAL, Stage.FULL)
FAILED_STATES = frozenset({"refused", Stage.ROLLED_BACK.value, "off"})
LOST = frozenset({Progress.FAILED, Progress.SILENT})
#: What stays true of a node that has left a rollout.
_ENDS = LOST | {Progress.PASSED}


@dataclass(frozen=True)
class Now:
    """Now, as the rollout's times are compared with it."""

    now: Instant
    wall_s: float

    def age_s(self, moment: Moment) -> float:
        """Return the seconds since a moment, over restarts too."""
        return moment.age_s(self.now, self.wall_s)


@dataclass(frozen=True)
class Step:
    """Where a rollout goes now, and why. waits_for: the node that a pause waits for.

    about: the node whose own words say more.
    """

    state: RolloutState
    reason: str
    waits_for: str = ""
    about: str = ""


def progress_of(
    rollout: Rollout, known: NodePolicy, *, is_canary: bool, is_connected: bool, has_left: bool, at: Now
) -> Progress:
    """Return how far a node is. In the fleet's wave it has passed once its gate has taken the policy up.

    has_left: it was told something else since; how far it came is what it was then.
    """
    if has_left:
        then = Now(rollout.since.instant, rollout.since.wall_s)
        came = _progress_of(rollout, known, is_canary=is_canary, is_connected=True, at=then)
        return came if came in _ENDS else Progress.LEFT
    return _progress_of(rollout, known, is_canary=is_canary, is_connected=is_connected, at=at)


def _progress_of(
    rollout: Rollout, known: NodePolicy, *, is_canary: bool, is_connected: bool, at: Now
) -> Progress:
    if known.rollout == rollout.rollout_id and known.answered:
        if known.state in FAILED_STATES:
            return Progress.FAILED
        enough = rollout.spec.passes_at if is_canary else Stage.SHADOW
        if known.state in ORDER and ORDER.index(Stage(known.state)) >= ORDER.index(enough):
            return Progress.PASSED
        return Progress.TRYING if is_connected else Progress.AWAY
    if not is_connected:
        return Progress.AWAY
    if known.rollout != rollout.rollout_id or known.told is None:
        return Progress.WAITING
    return Progress.SILENT if at.age_s(known.told) > rollout.spec.silence_s else Progress.TOLD


def next_step(rollout: Rollout, found: Mapping[str, Progress], at: Now) -> Step | None:
    """Decide what follows from how far the wave's nodes are; None: go on as now."""
    if rollout.state in (RolloutState.ROLLED_BACK, RolloutState.ABORTED):
        return None
    lost = sorted(node for node, one in found.items() if one in LOST)
    is_canary_wave = rollout.state is RolloutState.CANARY or rollout.resumes_to is RolloutState.CANARY
    allowed = rollout.spec.canary_failures if is_canary_wave else rollout.spec.fleet_failures
    if lost and len(lost) > allowed * len(found):
        return Step(RolloutState.ROLLED_BACK, _lost_words(lost, found), about=lost[0])
    step: Callable[[Rollout, Mapping[str, Progress], Now], Step | None] | None = {
        RolloutState.PAUSED: _paused,
        RolloutState.CANARY: _canary,
        RolloutState.FLEET: _fleet,
    }.get(rollout.state)
    return step(rollout, found, at) if step else None


def _lost_words(lost: list[str], found: Mapping[str, Progress]) -> str:
    words = ", ".join(f"{node} ({found[node].value})" for node in lost[:5])
    return f"{len(lost)} of {len(found)} nodes failed: {words}"


def _paused(rollout: Rollout, found: Mapping[str, Progress], at: Now) -> Step | None:
    assert rollout.resumes_to is not None
    node = rollout.waits_for
    if node and found.get(node) is not Progress.AWAY:
        return Step(rollout.resumes_to, f"{node} is connected again")
    paused_s = at.age_s(rollout.since)
    if paused_s <= rollout.spec.patience_s:
        return None
    why = f"{node} was disconnected" if node else "it was paused"
    return Step(RolloutState.ROLLED_BACK, f"{why} for {paused_s:.0f} s, longer than patience_s allows")


def _canary(rollout: Rollout, found: Mapping[str, Progress], at: Now) -> Step | None:
    passed = sum(one is Progress.PASSED for one in found.values())
    if passed >= max(1, math.ceil(rollout.spec.canary_successes * len(found))):
        return Step(RolloutState.FLEET, f"{passed} of {len(found)} canaries passed")
    used_s = rollout.used_s + at.age_s(rollout.since)
    if used_s > rollout.spec.wave_s:
        why = f"only {passed} of {len(found)} canaries passed within {rollout.spec.wave_s:.0f} s"
        return Step(RolloutState.ROLLED_BACK, why)
    away = sorted(node for node, one in found.items() if one is Progress.AWAY)
    if away:
        return Step(RolloutState.PAUSED, f"{away[0]} is disconnected", waits_for=away[0])
    return None


def _fleet(rollout: Rollout, found: Mapping[str, Progress], at: Now) -> Step | None:
    open_ = [node for node, one in found.items() if one in (Progress.WAITING, Progress.TOLD, Progress.TRYING)]
    passed = sum(one is Progress.PASSED for one in found.values())
    away = sum(one is Progress.AWAY for one in found.values())
    is_late = rollout.used_s + at.age_s(rollout.since) > rollout.spec.wave_s
    if (open_ or not passed) and not is_late:
        return None
    late = len(open_) + sum(one in LOST for one in found.values())
    if late > rollout.spec.fleet_failures * len(found):
        return Step(RolloutState.ROLLED_BACK, f"{late} of {len(found)} nodes did not take it up in time")
    later = f"; {away} disconnected ones follow when they return" if away else ""
    return Step(RolloutState.DONE, f"{passed} of {len(found)} nodes took it up{later}")
