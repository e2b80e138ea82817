"""The round demo's record as plain values: what `--json` prints and what the tables show. Pure."""

from __future__ import annotations

from typing import Any

from skerry.cli.demo.round_verdict import Attempt, Record
from skerry.documents import PolicyStatus
from skerry.policy_documents import NodeProgress, PolicyVersionView, RolloutView
from skerry.round_documents import Participant, RoundVersion, RoundView

#: The figures of a gate that say how both did.
_FIGURES = (
    "candidate_tasks",
    "fallback_tasks",
    "candidate_cost",
    "fallback_cost",
    "candidate_latency",
    "fallback_latency",
    "agreed_share",
    "harm_e_value",
)


def report_of(record: Record) -> dict[str, Any]:
    """Return the parts that the round demo adds to the plain demo's document."""
    return {
        "rounds": [_round(record.run, made) for made in record.run.versions if made.version],
        "run": _run(record),
        "policy": _version(record.version),
        "rollout": {
            **_rollout(record.rollout),
            "at_the_end": {name: _node_status(status) for name, status in sorted(record.nodes.items())},
        },
        "bad_policies": [_attempt(one) for one in record.attempts],
    }


def _run(record: Record) -> dict[str, Any]:
    run, base = record.run, record.base
    return {
        "name": run.name,
        "state": run.state,
        "trainer": run.trainer,
        "strategy": run.strategy,
        "quorum": run.quorum,
        "deadline_s": run.deadline_s,
        "begun_with": f"shipped policy {base.version}, {base.state}"
        if base
        else "an actor like min-increase",
        "killed_at_version": record.before_kill.version,
        "resumed_at_version": record.after_kill.version,
        "refused_replies": [
            {"node": one.node, "code": one.code, "reason": one.reason, "count": one.count}
            for one in run.refused
        ],
    }


def _round(run: RoundView, made: RoundVersion) -> dict[str, Any]:
    """One round: the replies that its version was made of, and what became of the others it asked for."""
    concerned = [
        one
        for one in run.participants
        if one.counted_in == made.version or (one.version == made.version - 1 and one.counted_in is None)
    ]
    others = [p for p in run.participants if p.version == made.version - 1 and p not in concerned]
    return {
        "version": made.version,
        "accepted": made.accepted,
        "refused": made.refused,
        "merged_wall_s": round(made.wall_s, 1),
        "participants": [_participant(one) for one in concerned],
        "came_too_late": [one.node for one in others],
        "metrics": {name: round(value, 6) for name, value in sorted(made.metrics.items())},
    }


def _participant(one: Participant) -> dict[str, Any]:
    return {
        "node": one.node,
        "trained_from": one.version,
        "state": one.state,
        "is_late": one.is_late,
        "staleness": one.staleness,
        "examples": one.examples,
        "weight": round(one.weight, 3),
        "reason": one.reason,
    }


def _version(version: PolicyVersionView) -> dict[str, Any]:
    return {
        "policy": version.policy,
        "state": version.state,
        "reason": version.reason,
        "checked": [
            {
                "devices": one.devices,
                "scenarios": one.scenarios,
                "against": one.against,
                "ratio": round(one.ratio, 4),
                "low": round(one.low, 4),
                "high": round(one.high, 4),
            }
            for one in version.checked
        ],
    }


def _rollout(rollout: RolloutView) -> dict[str, Any]:
    ended = rollout.ended_wall_s or rollout.started_wall_s
    return {
        "rollout": rollout.rollout_id,
        "state": rollout.state,
        "reason": rollout.reason,
        "canaries": list(rollout.canaries),
        "took_s": round(ended - rollout.started_wall_s, 1),
        "nodes": [_progress(one) for one in rollout.nodes],
    }


def _progress(one: NodeProgress) -> dict[str, Any]:
    evidence = {name: one.evidence[name] for name in _FIGURES if name in one.evidence}
    return {
        "node": one.node,
        "progress": one.progress,
        "gate": one.state,
        "reason": one.reason,
        "evidence": evidence,
    }


def _node_status(status: PolicyStatus) -> dict[str, Any]:
    return {"policy": status.version, "gate": status.state, "decisions": dict(status.decisions)}


def _attempt(one: Attempt) -> dict[str, Any]:
    found: dict[str, Any] = {
        "policy": one.name,
        "outcome": "refused" if one.is_refused else one.rollout.state if one.rollout else "taken",
        "reason": one.reason,
        "switched_off": one.switched_off,
    }
    if one.judged is not None:
        found["judged"] = _version(one.judged)
    if one.rollout is not None:
        found["rollout"] = _rollout(one.rollout)
    return found
