"""A decision as a story keeps it: the same facts in a third of the bytes, as JSON, times to the millisecond.

Names that a story repeats are left out: the task, of which it is, and a candidate's node where it is the
decision's own. It and its candidates are lists in a fixed order. Pure.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from skerry.decision import Candidate, Decision, Verdict
from skerry.ids import TaskId


class KeptCandidate(msgspec.Struct, frozen=True, array_like=True):
    """One candidate as it is read; see skerry.decision.Candidate. Defaults at the end are not written."""

    device: str
    device_class: str
    score: float | None = None
    expected_s: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    node: str = ""  #: where not the decision's


class KeptDecision(msgspec.Struct, frozen=True, array_like=True):
    """A decision without its task, as it is read: see Decision. Defaults at the end are not written."""

    by: str
    node: str | None = None
    device: str | None = None
    reason: str = ""
    uptime_s: float = 0.0
    wall_s: float = 0.0
    candidates: tuple[KeptCandidate, ...] = ()
    gate: str = "off"
    gap: float | None = None


class NamedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The same as earlier versions wrote it, with names."""

    by: str
    node: str | None = None
    device: str | None = None
    reason: str = ""
    candidates: tuple[KeptCandidate, ...] = ()
    gate: str = "off"
    gap: float | None = None
    uptime_s: float = 0.0
    wall_s: float = 0.0


def kept(decision: Decision | None) -> KeptDecision | None:
    """Return a decision as a story keeps it: written, a list is what a KeptDecision is."""
    return None if decision is None else cast("KeptDecision", _kept_decision(decision))


def _kept_decision(decision: Decision) -> list[Any]:
    """Return a decision as a list, without the defaults at its end."""
    node = decision.node
    times = round(decision.uptime_s, 3), round(decision.wall_s, 3)
    known = [decision.decided_by, node, decision.device, decision.reason, *times]
    candidates = [_kept_candidate(one, node) for one in decision.candidates]
    if decision.gate_state != "off" or decision.gap_to_bound is not None:
        return [*known, candidates, decision.gate_state, decision.gap_to_bound]
    return [*known, candidates] if candidates else known


def _kept_candidate(one: Candidate, node: str | None) -> list[Any]:
    """Return a candidate as a list, without the defaults at its end."""
    known = [one.device, one.device_class, one.score, one.expected_s]
    if one.node != node:
        return [*known, one.verdicts, one.node]
    return [*known, one.verdicts] if one.verdicts else known


def told(decision: KeptDecision | NamedDecision | None, task_id: TaskId) -> Decision | None:
    """Return the decision that a story keeps."""
    if decision is None:
        return None
    return Decision(
        task_id=task_id,
        decided_by=decision.by,
        node=decision.node,
        device=decision.device,
        reason=decision.reason,
        candidates=tuple(
            Candidate(
                node=one.node or decision.node or "",
                device=one.device,
                device_class=one.device_class,
                verdicts=one.verdicts,
                score=one.score,
                expected_s=one.expected_s,
            )
            for one in decision.candidates
        ),
        gate_state=decision.gate,
        gap_to_bound=decision.gap,
        uptime_s=decision.uptime_s,
        wall_s=decision.wall_s,
    )
