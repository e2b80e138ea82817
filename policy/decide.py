"""One decision: filter, guard, scheduler, in that order, kept as a `Decision` that explains itself.

Owns the order and the words. Must not know of queues, fences or what is done with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TypeVar

from policy.device_plan import with_key
from policy.filters import FILTER_NAMES, TEMPORARY_FILTERS, device_verdicts
from policy.port import Guard, LiveGuard, NodeView, Scheduler
from policy.profile import RuntimeProfile
from skerry.clock import Instant
from skerry.decision import Candidate, Decision, Verdict
from skerry.node import Device
from skerry.task import TaskSpec

#: How many candidates are put to the rules about the present moment at a time, best first.
LIVE_BATCH = 16
#: Verdicts of rules about the present moment bear this before the rule's name.
LIVE_PREFIX = "now:"

T = TypeVar("T")
Rules = Callable[[TaskSpec, NodeView, Sequence[Device]], list[tuple[Verdict, ...]]]


class Obstacle(StrEnum):
    """What a decision means for the task on this node."""

    NONE = "none"  #: a device was chosen
    TEMPORARY = "temporary"  #: some device could run it once its present trouble is over: wait
    PERMANENT = "permanent"  #: no device here will be allowed it while node and rules stay as they are


def decide(
    task_id: str,
    task: TaskSpec,
    view: NodeView,
    *,
    guard: Guard,
    scheduler: Scheduler,
    profile: RuntimeProfile,
    now: Instant,
    wall_s: float,
) -> Decision:
    """Decide which of the node's devices runs the task, or that none may (device is None; see obstacle_of).

    Filters rule out what cannot run it, rules what may not, and the scheduler picks among the rest.
    """
    weighing = _Weighing(task, view, guard, scheduler, profile)
    index = weighing.choose()
    candidates = weighing.candidates()
    chosen = None if index is None else view.devices[index].device.device_id
    return Decision(
        task_id=task_id,
        decided_by=f"rule:{_foremost_rule(candidates)}" if chosen is None else f"baseline:{scheduler.name}",
        node=None if chosen is None else view.node,
        device=chosen,
        reason=_why_none(candidates) if chosen is None else weighing.reason,
        candidates=candidates,
        uptime_s=now.uptime_s,
        wall_s=wall_s,
    )


def obstacle_of(decision: Decision) -> Obstacle:
    """Tell what a decision means here: run, wait for a device, or hand the task over."""
    if decision.device is not None:
        return Obstacle.NONE
    waits = any(all(_is_temporary(v) for v in c.verdicts if not v.allowed) for c in decision.candidates)
    return Obstacle.TEMPORARY if waits else Obstacle.PERMANENT


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, size at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class _Weighing:
    """The devices of one node while one decision is made; indices are into view.devices."""

    def __init__(
        self, task: TaskSpec, view: NodeView, guard: Guard, scheduler: Scheduler, profile: RuntimeProfile
    ) -> None:
        self.task, self.view, self.guard, self.scheduler = task, view, guard, scheduler
        self.runtime_s = [profile.expected_s(task, one.device) for one in view.devices]
        self.reason = ""
        self._scores: dict[int, float] = {}
        self._expected_s: dict[int, float] = {}
        self._verdicts = [device_verdicts(task, one.device, view) for one in view.devices]
        self._ask(guard.verdicts, [i for i, against in enumerate(self._verdicts) if not against])

    def choose(self) -> int | None:
        """Return the device that the scheduler picks among those that nothing rules out."""
        allowed = self._allowed(range(len(self.view.devices)))
        if not allowed:
            return None
        best = self._pick(allowed)
        # To tell whether a guard is a LiveGuard takes as long as a decision's arithmetic: not asked in vain.
        if not getattr(self.guard, "has_live_rules", False):
            return best
        assert isinstance(self.guard, LiveGuard)
        order = sorted(allowed, key=lambda i: (i != best, -self._scores[i], self._device(i).device_id))
        for batch in batched(order, LIVE_BATCH):
            self._ask(self.guard.live_verdicts, batch)
            if passed := self._allowed(batch):
                return self._pick(passed)
        return None

    def candidates(self) -> tuple[Candidate, ...]:
        """Return every device with what was said of it; the score only where nothing rules it out."""
        return tuple(self._candidate(i) for i in range(len(self.view.devices)))

    def _pick(self, indices: Sequence[int]) -> int:
        runtime_s = [self.runtime_s[i] for i in indices]
        rule = self.view.queue_rule
        views = [
            with_key(self.task, self.view.devices[i], run, rule)
            for i, run in zip(indices, runtime_s, strict=True)
        ]
        choice = self.scheduler.choose(self.task, views, runtime_s)
        self.reason = choice.reason
        self._scores.update(zip(indices, choice.scores, strict=True))
        self._expected_s.update(zip(indices, choice.expected_s, strict=True))
        return indices[choice.index]

    def _ask(self, rules: Rules, indices: Sequence[int]) -> None:
        if indices:
            said = rules(self.task, self.view, [self._device(i) for i in indices])
            for i, verdicts in zip(indices, said, strict=True):
                self._verdicts[i] += verdicts

    def _allowed(self, indices: Sequence[int]) -> list[int]:
        return [i for i in indices if all(verdict.allowed for verdict in self._verdicts[i])]

    def _device(self, index: int) -> Device:
        return self.view.devices[index].device

    def _candidate(self, index: int) -> Candidate:
        allowed = all(verdict.allowed for verdict in self._verdicts[index])
        return Candidate(
            node=self.view.node,
            device=self._device(index).device_id,
            device_class=self._device(index).device_class,
            verdicts=self._verdicts[index],
            score=self._scores.get(index) if allowed else None,
            expected_s=self._expected_s.get(index) if allowed else None,
        )


def _is_temporary(verdict: Verdict) -> bool:
    return verdict.rule in TEMPORARY_FILTERS or verdict.rule.startswith(LIVE_PREFIX)


def _denials(candidates: Sequence[Candidate]) -> Iterator[Verdict]:
    return (verdict for one in candidates for verdict in one.verdicts if not verdict.allowed)


def _foremost_rule(candidates: Sequence[Candidate]) -> str:
    """A rule before a filter (it spoke of what could run the task), then the most frequent, then by name."""
    names = [verdict.rule for verdict in _denials(candidates)]
    ranked = sorted((name in FILTER_NAMES, -names.count(name), name) for name in set(names))
    return ranked[0][2] if ranked else "no-device"


def _why_none(candidates: Sequence[Candidate]) -> str:
    said = dict.fromkeys(verdict.message or verdict.rule for verdict in _denials(candidates))
    return f"no device here can run it: {'; '.join(said) or 'this node has no devices'}"
