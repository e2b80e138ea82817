"""Whether the round demo went as it should: documents in, one sentence a problem out. Pure.

Owns what must be true of rounds, rollout and bad policies; knows nothing of processes or of how it was asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from skerry.documents import PolicyStatus
from skerry.policy_documents import PolicyVersionView, RolloutView
from skerry.round_documents import Participant, RoundView

#: A reply in one of these states is on the coordinator's disk.
_KEPT = frozenset({"received", "late", "accepted", "refused"})


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A bad policy and what stopped it. judged, rollout: of one that got so far.

    switched_off: which of the gate's checks it was spared; empty: none.
    """

    name: str
    is_refused: bool
    reason: str
    judged: PolicyVersionView | None = None
    rollout: RolloutView | None = None
    switched_off: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen. before_kill, after_kill: the run around the coordinator's death."""

    base: PolicyVersionView | None
    run: RoundView
    before_kill: RoundView
    after_kill: RoundView
    version: PolicyVersionView
    rollout: RolloutView
    attempts: tuple[Attempt, ...]
    nodes: Mapping[str, PolicyStatus]


def problems_of(record: Record, *, cut_off: str, canary: str) -> tuple[str, ...]:
    """Return what is not as it should be, empty when everything is."""
    return (
        *_of_the_run(record.run),
        *_of_the_late_reply(record.run, cut_off),
        *_of_the_kill(record.before_kill, record.after_kill, record.run),
        *_of_the_rollout(record, canary),
        *_of_the_bad(record.attempts),
    )


def _of_the_run(run: RoundView) -> Iterator[str]:
    if run.state != "done" or run.version != run.rounds:
        yield f"the run is {run.state} at version {run.version} of {run.rounds}: {run.reason}"
    asked = Counter((one.node, one.version) for one in run.participants)
    for (node, version), count in asked.items():
        if count > 1:
            yield f"{node} was asked {count} times for version {version}"
    counted = Counter(one.counted_in for one in run.participants if one.state == "accepted")
    for made in run.versions:
        if made.version and counted[made.version] != made.accepted:
            yield (
                f"version {made.version} says that {made.accepted} replies were merged, "
                f"{counted[made.version]} are marked so"
            )
        if made.version and made.accepted < run.quorum:
            yield f"version {made.version} was made of {made.accepted} replies, fewer than its quorum"


def _of_the_late_reply(run: RoundView, node: str) -> Iterator[str]:
    reply = find(run, node, version=1)
    if reply is None or not reply.is_late or reply.state != "accepted":
        yield f"{node}'s reply of round 2 was not taken late: {reply.state if reply else 'never asked'}"
        return
    if (reply.counted_in, reply.staleness) != (3, 1):
        yield f"{node}'s late reply is in version {reply.counted_in} with staleness {reply.staleness}"
    if not 0 < reply.weight <= stale_weight(reply.examples, reply.staleness) * (1 + 1e-9):
        yield f"{node}'s late reply of {reply.examples} examples has the weight {reply.weight:g}"


def _of_the_kill(before: RoundView, after: RoundView, end: RoundView) -> Iterator[str]:
    if before.has_ended:
        yield "the coordinator was killed after the run had ended"
    if after.version != before.version:
        yield f"the run resumed with version {after.version}, it had {before.version} when it was killed"
    later = {(one.node, one.version): one for one in end.participants}
    for one in before.participants:
        same = later.get((one.node, one.version))
        if same is None or (one.state in _KEPT and same.state not in _KEPT):
            yield f"{one.node}'s reply to version {one.version} was kept before the kill, and is gone"
    models = {made.version: made.model for made in end.versions}
    for made in before.versions:
        if models.get(made.version) != made.model:
            yield f"version {made.version} is another one than before the kill"


def _of_the_rollout(record: Record, canary: str) -> Iterator[str]:
    version, rollout = record.version, record.rollout
    if version.state not in ("ready", "unproven"):
        yield f"the run's policy was {version.state}: {version.reason}"
    if not version.checked:
        yield "the registry evaluated the run's policy on nothing"
    if version.manifest.lineage.run_id != record.run.name:
        yield f"the policy says that it comes from run {version.manifest.lineage.run_id or 'none'}"
    if rollout.state != "done" or rollout.canaries != (canary,):
        yield f"the rollout is {rollout.state} with canaries {', '.join(rollout.canaries)}: {rollout.reason}"
    for name, status in record.nodes.items():
        if status.policy != version.policy or not status.is_loaded:
            yield f"{name} does not run the run's policy: {status.state} {status.reason}"


def _of_the_bad(attempts: tuple[Attempt, ...]) -> Iterator[str]:
    for one in attempts:
        if one.name != "worse":
            if not one.is_refused:
                yield f"a policy that is {one.name} was taken"
            continue
        if one.is_refused or one.rollout is None or one.rollout.state != "rolled_back":
            yield f"the worse policy was not rolled back by a gate: {one.reason}"
        elif not any(node.evidence.get("candidate_decisions") for node in one.rollout.nodes):
            yield "the worse policy was rolled back without evidence"


def find(run: RoundView, node: str, *, version: int) -> Participant | None:
    """Return a node's part in the round that trained from `version`."""
    found = (one for one in run.participants if (one.node, one.version) == (node, version))
    return next(found, None)


def stale_weight(examples: int, staleness: int) -> float:
    """Return what a reply counts at most: n · (1 + staleness)^-0.5. Replies of one node share its weight."""
    return float(examples) / math.sqrt(1.0 + staleness)
