"""The same site as a plain event loop: one episode, plain values, `Scheduler.choose` for every decision.

Slow and simple on purpose: it is what the array engine is held against, decision by decision and bit by bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from policy.features import CLASSES
from policy.history import LEARN, RECENT
from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights, Terms, cost
from policy.port import Choice, DeviceView, Offer, Reserved
from policy.queue_rule import QueueRule, queue_key
from skerry.node import Device
from skerry.task import OnnxSpec, TaskSpec
from twin.fleet.kinds import KINDS
from twin.fleet.scenario import OFFLOAD, Episode

Choose = Callable[[TaskSpec, Sequence[DeviceView], Sequence[float]], Choice]


@dataclass(slots=True)
class Ended:
    """What became of one task."""

    device: int
    start_s: float = 0.0
    finish_s: float = 0.0
    energy_j: float = 0.0
    was_cold: bool = False


@dataclass(slots=True)
class _Queued:
    task: int
    kind: int
    service_s: float
    tail_s: float
    load_s: float
    weight: float
    due_s: float
    scale_s: float
    key: float


@dataclass(slots=True)
class _Lane:
    free_at: float = 0.0
    expected_free: float = 0.0
    is_busy: bool = False
    queue: list[_Queued] = field(default_factory=list)
    resident: set[int] = field(default_factory=set)
    used_at: dict[int, float] = field(default_factory=dict)
    memory_mb: float = 0.0
    prediction: float = 1.0
    recent_share: float = 0.0
    recent_misses: float = 0.0
    last_factor: float = 0.0
    last_missed: bool = False


def model_name(kind: int) -> str:
    """Return the model that a kind of task needs, as tasks name it."""
    return f"sha256:{kind:064x}"


class Oracle:
    """One episode under one queue rule; run() plays it to its end."""

    def __init__(
        self,
        episode: Episode,
        choose: Choose,
        rule: QueueRule,
        weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    ) -> None:
        """choose: a scheduler's single form."""
        self._e, self._choose, self._rule, self._weights = episode, choose, rule, weights
        self._lanes = [self._lane(d) for d in range(len(episode.device_class))]
        self.ended: dict[int, Ended] = {}

    def run(self) -> list[Ended]:
        """Return what became of every task, in order of arrival."""
        arrivals = [float(at) for at in self._e.arrival_s]
        events: list[tuple[float, int, int]] = [(at, 1, task) for task, at in enumerate(arrivals)]
        heapq.heapify(events)  # at one moment, ends (0) come before arrivals (1)
        while events:
            now, what, which = heapq.heappop(events)
            if what == 1:
                which = self._arrive(which, now)
            else:
                self._settle(self._lanes[which])
            lane = self._lanes[which]
            if lane.queue and not lane.is_busy:
                self._begin(which, now)
                heapq.heappush(events, (lane.free_at, 0, which))
        return [self.ended[task] for task in range(len(arrivals))]

    def cost(self) -> float:
        """Return the episode's cost per task."""
        e = self._e
        total = 0.0
        for task, ended in self.ended.items():
            latency_s = ended.finish_s - float(e.arrival_s[task])
            is_late = ended.finish_s > float(e.arrival_s[task]) + float(e.deadline_s[task])
            reference_s = KINDS[int(e.kind[task])].reference_s * float(e.size[task])
            terms = Terms(
                reference_s,
                latency_s / float(e.deadline_s[task]),
                ended.energy_j,
                float(e.weight[task]) * is_late,
            )
            total += cost(terms, self._weights)
        return total / len(self.ended)

    def _lane(self, d: int) -> _Lane:
        resident = {k for k in range(len(KINDS)) if int(self._e.resident[d]) >> k & 1}
        return _Lane(
            resident=resident,
            used_at=dict.fromkeys(range(len(KINDS)), 0.0),
            memory_mb=sum(float(KINDS[k].model_mb) for k in resident),
        )

    def _arrive(self, task: int, now: float) -> int:
        """Decide on one task and reserve its device; return the device."""
        kind = int(self._e.kind[task])
        allowed = [d for d in range(len(self._lanes)) if self._e.supported[d, kind]]
        views = [self._view(d, task, now) for d in allowed]
        runtime_s = [self._service_s(d, task) for d in allowed]
        choice = self._choose(self._spec(task), views, runtime_s)
        chosen = allowed[choice.index]
        new = self._queued(chosen, task, views[choice.index].offer.key)
        queue = self._lanes[chosen].queue
        place = choice.place
        if place is None:
            place = sum(other.key >= new.key for other in queue)
        queue.insert(place, new)
        self.ended[task] = Ended(device=chosen)
        for d, lane in enumerate(self._lanes):
            lane.recent_share *= 1.0 - RECENT
            if d == chosen:
                lane.recent_share += RECENT
        return chosen

    def _begin(self, d: int, now: float) -> None:
        """Start what the rule puts first on a free device."""
        lane, e = self._lanes[d], self._e
        one = lane.queue.pop(self._next(lane, now))
        is_cold = one.kind not in lane.resident
        self._make_resident(lane, d, one.kind, now)
        load_s = float(e.load_s[d, one.kind]) if is_cold else 0.0
        load_j = float(e.load_j[d, one.kind]) if is_cold else 0.0
        factor = float(e.noise[one.task])
        ended = self.ended[one.task]
        lane.expected_free = now + (load_s + one.service_s)
        lane.free_at = now + (load_s + one.service_s * factor)
        lane.is_busy = True
        lane.last_factor = factor
        ended.start_s, ended.finish_s = now, lane.free_at + one.tail_s
        lane.last_missed = ended.finish_s > one.due_s
        ended.energy_j = float(e.unit_j[d, one.kind]) * float(e.size[one.task]) * factor + load_j
        ended.was_cold = load_s > 0

    def _next(self, lane: _Lane, now: float) -> int:
        if not self._rule.is_doomed_last:
            return 0
        for index, one in enumerate(lane.queue):
            load_s = 0.0 if one.kind in lane.resident else one.load_s
            if now + (load_s + one.service_s) + one.tail_s <= one.due_s:
                return index
        return 0

    def _make_resident(self, lane: _Lane, d: int, kind: int, now: float) -> None:
        """Load a model, putting out the least recently used as far as memory needs it."""
        lane.used_at[kind] = now
        if kind in lane.resident:
            return
        need = float(KINDS[kind].model_mb)
        while lane.memory_mb + need > float(self._e.memory_mb[d]) and lane.resident:
            oldest = min(lane.resident, key=lambda k: (lane.used_at[k], k))
            lane.resident.remove(oldest)
            lane.memory_mb -= KINDS[oldest].model_mb
        lane.resident.add(kind)
        lane.memory_mb += need

    def _settle(self, lane: _Lane) -> None:
        lane.is_busy = False
        lane.prediction += LEARN * (lane.last_factor - lane.prediction)
        lane.recent_misses += RECENT * (lane.last_missed - lane.recent_misses)

    def _service_s(self, d: int, task: int) -> float:
        return float(self._e.unit_s[d, self._e.kind[task]]) * float(self._e.size[task])

    def _queued(self, d: int, task: int, key: float) -> _Queued:
        e, kind = self._e, int(self._e.kind[task])
        return _Queued(
            task=task,
            kind=kind,
            service_s=self._service_s(d, task),
            tail_s=float(e.tail_s[d, kind]),
            load_s=float(e.load_s[d, kind]),
            weight=float(e.weight[task]),
            due_s=float(e.arrival_s[task]) + float(e.deadline_s[task]),
            scale_s=float(e.deadline_s[task]),
            key=key,
        )

    def _spec(self, task: int) -> TaskSpec:
        kind = int(self._e.kind[task])
        return TaskSpec(
            spec=OnnxSpec(model=model_name(kind), inputs={}),
            kind=KINDS[kind].name,
            priority=int(self._e.priority[task]),
            deadline_s=float(self._e.deadline_s[task]),
        )

    def _view(self, d: int, task: int, now: float) -> DeviceView:
        """Return what a scheduler may know of a device: nothing of the noise, nothing of what comes."""
        lane, e, kind = self._lanes[d], self._e, int(self._e.kind[task])
        remaining_s = max(lane.expected_free - now, 0.0) if lane.is_busy else 0.0
        service_s = self._service_s(d, task)
        offer = Offer(
            load_s=float(e.load_s[d, kind]),
            tail_s=float(e.tail_s[d, kind]),
            energy_j=float(e.unit_j[d, kind]) * float(e.size[task]),
            load_j=float(e.load_j[d, kind]),
            key=queue_key(
                self._rule,
                weight=float(e.weight[task]),
                runtime_s=service_s,
                due_s=float(e.arrival_s[task]) + float(e.deadline_s[task]),
                turn=float(task),
            ),
        )
        return DeviceView(
            device=self._device(d),
            backlog_s=_backlog_s(lane, remaining_s, now, self._rule.is_doomed_last),
            running=int(lane.is_busy),
            queued=len(lane.queue),
            remaining_s=remaining_s,
            reserved=tuple(_reserved(one, now) for one in lane.queue),
            is_doomed_last=self._rule.is_doomed_last,
            offer=offer,
            is_offload=int(e.device_class[d]) == OFFLOAD,
            resident=tuple(model_name(k) for k in sorted(lane.resident)),
            free_memory_share=1.0 - lane.memory_mb / float(e.memory_mb[d]),
            prediction=lane.prediction,
            recent_share=lane.recent_share,
            recent_misses=lane.recent_misses,
        )

    def _device(self, d: int) -> Device:
        name = CLASSES[int(self._e.device_class[d])]
        return Device(
            device_id=f"{d:03}",
            device_class="cpu" if name == "offload" else name,  # type: ignore[arg-type]  # one of CLASSES
            name=name,
            executors=("onnx",),
            emulated=True,
        )


def _reserved(one: _Queued, now: float) -> Reserved:
    return Reserved(
        runtime_s=one.service_s,
        load_s=one.load_s,
        tail_s=one.tail_s,
        model=model_name(one.kind),
        weight=one.weight,
        deadline_s=one.due_s - now,
        scale_s=one.scale_s,
        key=one.key,
    )


def _backlog_s(lane: _Lane, remaining_s: float, now: float, is_doomed_last: bool) -> float:
    """Seconds until all that is reserved is expected to be done."""
    end_s, doomed_s, planned = remaining_s, 0.0, set(lane.resident)
    for one in lane.queue:
        span = (0.0 if one.kind in planned else one.load_s) + one.service_s
        planned.add(one.kind)
        if is_doomed_last and end_s + span + one.tail_s > one.due_s - now:
            doomed_s += span
        else:
            end_s += span
    return end_s + doomed_s
