"""Many sites at once: reservation on arrival, queues kept by rule, one decision per arriving task.

Owns time and what happens on devices. Must not know who decides. All state is [episodes, devices]; results do
not depend on which episodes share a batch: sums run in a fixed order and padding adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.features import features
from policy.history import LEARN, RECENT
from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights, Terms, reward
from policy.queue_rule import QueueRule
from policy.situation import Arrival, Plan, Situation, Waiting, plan
from twin.fleet.batch import Batch, batch_of
from twin.fleet.kinds import KINDS
from twin.fleet.metrics import Metrics, metrics_of
from twin.fleet.queues import DEADLINE, KEY, KIND, LOAD, RATE, SERVICE, TAIL, WEIGHT, Queues
from twin.fleet.scenario import Scenario

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MODEL_MB = np.array([float(k.model_mb) for k in KINDS])
_REFERENCE_S = np.array([k.reference_s for k in KINDS])


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step brought. terms: [episodes, 4] in the order of policy.objective.TERMS, not weighed."""

    reward: Floats  #: [episodes]
    terms: Floats
    done: bool


class Fleet:
    """A batch of episodes that are stepped together.

    reset() → observe() → step(actions) until done.  Every episode of a scenario has the same number of tasks.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        queue_rule: QueueRule = QueueRule.WSPT,
        weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    ) -> None:
        """seed: with an episode's number it decides everything."""
        self.scenario, self.seed, self.rule, self.weights = scenario, seed, queue_rule, weights
        self._situation: Situation | None = None
        self._plan: Plan | None = None

    def reset(self, episodes: Sequence[int]) -> None:
        """Start these episodes; a number given several times gives copies of one stream."""
        self.start(batch_of(self.scenario, self.seed, episodes))

    def start(self, batch: Batch) -> None:
        """Start a batch that was drawn (or recorded) elsewhere."""
        self.batch = batch
        shape = batch.device_class.shape
        tasks = batch.arrival_s.shape
        self.turn = 0
        self.now: Floats = batch.arrival_s[:, 0].copy()
        self.queues = Queues(*shape)
        self.free_at: Floats = np.zeros(shape)
        self._expected_free: Floats = np.zeros(shape)
        self._unsettled: Floats = np.zeros(shape)  # real / expected of what runs or ran last; 0: taken in
        self._run_missed: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        self.resident: Ints = batch.resident.copy()
        self._used_at: Floats = np.zeros((*shape, len(KINDS)))
        self._memory_used: Floats = _bits(batch.resident).astype(np.float64) @ _MODEL_MB
        self._memory_used[~batch.present] = 0.0
        self.prediction: Floats = np.ones(shape)
        self.recent_share: Floats = np.zeros(shape)
        self.recent_misses: Floats = np.zeros(shape)
        self.device: Ints = np.full(tasks, -1, dtype=np.int64)
        self.start_s: Floats = np.full(tasks, np.nan)
        self.finish_s: Floats = np.full(tasks, np.nan)
        self.energy_j: Floats = np.zeros(tasks)
        self.was_cold: NDArray[np.bool_] = np.zeros(tasks, dtype=bool)
        self.busy_s: Floats = np.zeros(shape)
        self._terms: Floats = np.zeros((shape[0], 4))
        self._forget()

    @property
    def done(self) -> bool:
        """Whether every task has been decided."""
        return self.turn >= int(self.batch.arrival_s.shape[1])

    def situation(self) -> Situation:
        """Return what the schedulers see of the tasks that arrive now."""
        if self._situation is None:
            self._situation = self._see()
        return self._situation

    def plan(self) -> Plan:
        """Return what each device would mean for the arriving task, and it for the others."""
        if self._plan is None:
            self._plan = plan(self.situation(), self.weights)
        return self._plan

    def observe(self) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.float32]]:
        """Return (rows [episodes, devices, F], mask [episodes, devices], context [episodes, C])."""
        rows, context = features(self.situation(), self.plan(), self.weights)
        return rows, self.situation().mask, context

    def step(self, actions: Ints, places: Ints | None = None) -> Step:
        """Reserve the chosen device for each arriving task and go to the next arrival, or to the end.

        places: positions in the queues, for the rule `placed`.  Raises ValueError for a masked device.
        """
        e = np.arange(len(self.now))
        if not self.situation().mask[e, actions].all():
            raise ValueError("an action names a device that is masked")
        self._terms[:] = 0.0
        self._reserve(e, np.asarray(actions, dtype=np.int64), places)
        self.turn += 1
        self._forget()
        self._advance(np.full(len(e), np.inf) if self.done else self.batch.arrival_s[:, self.turn])
        terms = self._terms.copy()
        return Step(reward=reward(Terms(*terms.T), self.weights), terms=terms, done=self.done)

    def metrics(self) -> Metrics:
        """Return the figures of each finished episode."""
        return metrics_of(self)

    def _forget(self) -> None:
        self._situation, self._plan = None, None

    def _see(self) -> Situation:
        b, k = self.batch, self.turn
        held = self.queues.longest
        values, now = self.queues.values[:, :held], self.now[:, None]
        busy = self.free_at > now
        return Situation(
            mask=b.supported[np.arange(len(now)), :, b.kind[:, k]],
            device_class=b.device_class,
            arrival=self._arriving(),
            waiting=Waiting(
                service_s=values[SERVICE],
                tail_s=values[TAIL],
                load_s=values[LOAD],
                model=self.queues.names[KIND, :held],
                weight=values[WEIGHT],
                deadline_s=values[DEADLINE] - now,
                rate=values[RATE],
                key=values[KEY],
            ),
            running=busy.astype(np.int64),
            queued=self.queues.length,
            remaining_s=np.where(busy, np.maximum(self._expected_free - now, 0.0), 0.0),
            resident=self.resident,
            free_memory=1.0 - self._memory_used / b.memory_mb,
            prediction=self.prediction,
            recent_share=self.recent_share,
            recent_misses=self.recent_misses,
            doomed_last=self.rule.is_doomed_last,
        )

    def _arriving(self) -> Arrival:
        b, k, e = self.batch, self.turn, np.arange(len(self.now))
        kind, size = b.kind[:, k], b.size[:, k][:, None]
        service = b.unit_s[e, :, kind] * size
        supported = b.supported[e, :, kind]
        return Arrival(
            weight=b.weight[:, k],
            deadline_s=b.deadline_s[:, k],
            scale_s=b.deadline_s[:, k],
            model=kind,
            service_s=service,
            tail_s=b.tail_s[e, :, kind],
            load_s=b.load_s[e, :, kind],
            energy_j=b.unit_j[e, :, kind] * size,
            load_j=b.load_j[e, :, kind],
            key=self._key(service, supported),
        )

    def _key(self, service: Floats, supported: NDArray[np.bool_]) -> Floats:
        b, k = self.batch, self.turn
        if self.rule is QueueRule.EDF:
            due = b.arrival_s[:, k] + b.deadline_s[:, k]
            return np.broadcast_to(-due[:, None], service.shape)
        if self.rule is QueueRule.WSPT:
            return np.where(supported, b.weight[:, k][:, None] / np.where(supported, service, 1.0), 0.0)
        return np.full(service.shape, -float(k))

    def _reserve(self, e: Ints, d: Ints, places: Ints | None) -> None:
        b, k, a = self.batch, self.turn, self.situation().arrival
        values = np.stack(
            [
                a.key[e, d],
                a.service_s[e, d],
                a.tail_s[e, d],
                a.load_s[e, d],
                a.weight,
                b.arrival_s[:, k] + b.deadline_s[:, k],
                1.0 / a.scale_s,
            ]
        )
        names = np.stack([np.full(len(e), k), a.model])
        self.queues.insert(e, d, values, names, places)
        self.device[:, k] = d
        self.recent_share *= 1.0 - RECENT
        self.recent_share[e, d] += RECENT

    def _advance(self, until: Floats) -> None:
        """Let every device work until then; what ends at that very moment has ended."""
        while True:
            begins = np.maximum(self.free_at, self.now[:, None])
            e, d = np.nonzero((self.queues.length > 0) & (begins <= until[:, None]))
            if not len(e):
                break
            self._begin(e, d, begins[e, d])
        if self.done:
            return
        self._charge_waiting(until)
        over = (self._unsettled > 0) & (self.free_at <= until[:, None])
        self._settle(*np.nonzero(over))
        self.now = until.copy()

    def _begin(self, e: Ints, d: Ints, at: Floats) -> None:
        """Start on each of these free devices what its rule puts first."""
        held = self.queues.longest
        self._settle(e, d)
        slot = self._next(e, d, at, held)
        values = self.queues.values[:, slot, e, d]
        task, kind = self.queues.names[:, slot, e, d]
        self.queues.remove(e, d, slot)
        load_s, load_j = self._load(e, d, kind, at)
        factor = self.batch.noise[e, task]
        expected = at + (load_s + values[SERVICE])
        real = load_s + values[SERVICE] * factor
        self.start_s[e, task] = at
        self.free_at[e, d] = at + real
        self._expected_free[e, d] = expected
        self._unsettled[e, d] = factor
        finish = self.free_at[e, d] + values[TAIL]
        self.finish_s[e, task] = finish
        self._run_missed[e, d] = finish > values[DEADLINE]
        self.energy_j[e, task] = self.batch.unit_j[e, d, kind] * self.batch.size[e, task] * factor + load_j
        self.was_cold[e, task] = load_s > 0
        self.busy_s[e, d] += real
        self._charge_start(e, task, values, finish)

    def _next(self, e: Ints, d: Ints, at: Floats, held: int) -> Ints:
        if not self.rule.is_doomed_last:
            return np.zeros(len(e), dtype=np.int64)
        values, kind = self.queues.values[:, :held, e, d], self.queues.names[KIND][:held, e, d]
        load = np.where((self.resident[e, d] >> kind) & 1, 0.0, values[LOAD])
        in_time = at + (load + values[SERVICE]) + values[TAIL] <= values[DEADLINE]
        in_time &= np.arange(held)[:, None] < self.queues.length[e, d]
        first: Ints = in_time.argmax(axis=0)  # none in time: 0, the first
        return first

    def _load(self, e: Ints, d: Ints, kind: Ints, at: Floats) -> tuple[Floats, Floats]:
        """Make each device hold the model, putting out the least recently used as far as needed."""
        bit = np.int64(1) << kind
        missing = (self.resident[e, d] & bit) == 0
        self._used_at[e, d, kind] = at
        need = np.where(missing, _MODEL_MB[kind], 0.0)
        cap = self.batch.memory_mb[e, d]
        while True:
            full = self._memory_used[e, d] + need > cap
            full &= self.resident[e, d] != 0
            if not full.any():
                break
            self._put_out(e[full], d[full])
        self._memory_used[e, d] += need
        self.resident[e, d] |= bit
        b = self.batch
        return np.where(missing, b.load_s[e, d, kind], 0.0), np.where(missing, b.load_j[e, d, kind], 0.0)

    def _put_out(self, e: Ints, d: Ints) -> None:
        held = _bits(self.resident[e, d])
        oldest = np.where(held, self._used_at[e, d], np.inf).argmin(axis=1)
        self.resident[e, d] &= ~(np.int64(1) << oldest)
        self._memory_used[e, d] -= _MODEL_MB[oldest]

    def _settle(self, e: Ints, d: Ints) -> None:
        """Take in how the last run of these devices went, now that it is over."""
        known = self._unsettled[e, d] > 0
        e, d = e[known], d[known]
        self.prediction[e, d] += LEARN * (self._unsettled[e, d] - self.prediction[e, d])
        self.recent_misses[e, d] += RECENT * (self._run_missed[e, d] - self.recent_misses[e, d])
        self._unsettled[e, d] = 0.0

    def _charge_start(self, e: Ints, task: Ints, values: Floats, finish: Floats) -> None:
        """Charge what a task costs from the last charge to its completion; its miss unless charged before."""
        since = self.now[e]
        missed = (finish > values[DEADLINE]) & (values[DEADLINE] > since)
        useful = _REFERENCE_S[self.batch.kind[e, task]] * self.batch.size[e, task]
        charges = (useful, (finish - since) * values[RATE], self.energy_j[e, task], values[WEIGHT] * missed)
        for term, charge in enumerate(charges):
            np.add.at(self._terms[:, term], e, charge)

    def _charge_waiting(self, until: Floats) -> None:
        """Charge waiting as it happens; otherwise discounting would pay for putting work off."""
        values = self.queues.values[:, : self.queues.longest]
        since, to = self.now[:, None], until[:, None]
        passed = (values[DEADLINE] > since) & (values[DEADLINE] <= to)
        rate, missed = values[RATE].sum(axis=0), (values[WEIGHT] * passed).sum(axis=0)
        self._terms[:, 1] += np.cumsum(rate * (to - since), axis=1)[:, -1]
        self._terms[:, 3] += np.cumsum(missed, axis=1)[:, -1]


def _bits(resident: Ints) -> NDArray[np.bool_]:
    return ((resident[..., None] >> np.arange(len(KINDS))) & 1).astype(bool)
