"""Decisions that explain themselves: what was weighed, what ruled it out, who decided. Pure values."""

from __future__ import annotations

import msgspec


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule's or filter's word on one candidate."""

    rule: str
    allowed: bool
    message: str = ""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device that could have been chosen; score and expectation are None where it was ruled out first."""

    node: str
    device: str
    device_class: str = "cpu"
    verdicts: tuple[Verdict, ...] = ()
    score: float | None = None  #: 0-100, higher is better
    expected_s: float | None = None  #: expected completion from now, seconds


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One placement or scheduling decision, kept with the attempt it led to.

    decided_by: `rule:<name>`, `baseline:<scheduler>`, `policy:<version>` or `coordinator:<method>`.
    """

    task_id: str
    decided_by: str
    node: str | None = None  #: None: no candidate was allowed here
    device: str | None = None
    reason: str = ""  #: one sentence for people
    candidates: tuple[Candidate, ...] = ()
    gate_state: str = "off"
    gap_to_bound: float | None = None
    uptime_s: float = 0.0
    wall_s: float = 0.0


def explain(decision: Decision) -> str:
    """Return the decision in words: who decided, what won and why each other candidate did not."""
    chosen = (
        f"{decision.device} on {decision.node}" if decision.device else (decision.node or "no device here")
    )
    lines = [f"{decision.decided_by} chose {chosen}: {decision.reason or 'no reason was recorded'}"]
    lines += [f"  - {_explain_candidate(candidate, decision)}" for candidate in decision.candidates]
    return "\n".join(lines)


def _explain_candidate(candidate: Candidate, decision: Decision) -> str:
    name = f"{candidate.device} ({candidate.device_class}) on {candidate.node}"
    against = [f"{v.message or 'refused'} [{v.rule}]" for v in candidate.verdicts if not v.allowed]
    if against:
        return f"{name}: ruled out: {'; '.join(against)}"
    expected = "" if candidate.expected_s is None else f", expected in {candidate.expected_s:.3f} s"
    score = "" if candidate.score is None else f", score {candidate.score:.0f}"
    won = candidate.device == decision.device and candidate.node == decision.node
    return f"{name}: {'chosen' if won else 'possible'}{expected}{score}"
