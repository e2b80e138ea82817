"""What the learned policy sees: one row of numbers per candidate device, and a context of its node.

Owns which numbers, their transforms and their order, all hashed into SCHEMA_HASH. Physical units with fixed
scaling: relative to the deadline or logged, no statistics that could drift or would have to be shared. Rows
know no kind of task by name, so that new kinds and other sites need no new policy. Needs numpy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy.device_plan import DevicePlan, energies_of, model_of, plan_devices, remaining_of
from policy.objective import DEFAULT_WEIGHTS, NOMINAL_DEADLINE_S, ObjectiveWeights, priority_weight
from policy.port import DeviceView
from policy.situation import Arrival, Plan, Situation, Waiting, plan
from skerry.task import TaskSpec

Float32s = NDArray[np.float32]

#: Device classes in the order of their one-hot numbers; offload: the link to other nodes.
CLASSES = ("cpu", "gpu", "npu", "tpu", "offload")

#: A candidate's numbers: name, and the transform in words. The words are part of the schema's hash.
CANDIDATE_SCHEMA: tuple[tuple[str, str], ...] = (
    ("weight", "/4"),
    ("deadline", "ln(s/0.1)/4, clip 2"),
    ("shortest_service", "ln(s/0.01)/4, clip 2"),
    ("slack", "ln(deadline/shortest_service)/4, clip 2"),
    *((f"is_{name}", "0/1") for name in CLASSES),
    ("service", "ln(s/0.01)/4, clip 2"),
    ("service_ratio", "ln(/shortest)/3, clip 2"),
    ("load", "ln1p(/deadline), clip 6"),
    ("energy", "ln1p(J)/3, clip 4"),
    ("remaining", "ln1p(/deadline), clip 6"),
    ("backlog", "ln1p(/deadline), clip 6"),
    ("tail", "ln1p(/deadline), clip 6"),
    ("finish", "ln1p(/deadline), clip 6"),
    ("finish_last", "ln1p(/deadline), clip 6"),
    ("margin", "1 - finish/deadline, clip 4"),
    ("is_late", "0/1"),
    ("is_late_last", "0/1"),
    ("is_resident", "0/1"),
    ("free_memory", "share"),
    ("queued", "ln1p/3"),
    ("doomed", "share of queued+1"),
    ("own_cost", "ln1p, clip 6"),
    ("last_cost", "ln1p, clip 6"),
    ("added_cost", "sign*ln1p, clip 6"),
    ("increase", "sign*ln1p, clip 6"),
    ("regret_finish", "ln1p(/deadline), clip 6"),
    ("regret_energy", "ln1p(J)/3, clip 4"),
    ("regret_last_cost", "ln1p, clip 6"),
    ("regret_increase", "ln1p, clip 6"),
    ("is_first_finish", "0/1"),
    ("is_least_energy", "0/1"),
    ("is_least_increase", "0/1"),
    ("prediction", "ln, clip 1.5"),
    ("recent_share", "share"),
    ("recent_misses", "share"),
)
#: The context's numbers, over the devices that may be chosen.
CONTEXT_SCHEMA: tuple[tuple[str, str], ...] = (
    ("candidates", "ln/4"),
    ("idle", "share"),
    ("mean_backlog", "mean ln1p(/deadline), clip 6"),
    ("least_backlog", "min ln1p(/deadline), clip 6"),
    ("late", "share"),
    ("mean_queued", "mean ln1p/3"),
    ("mean_recent_misses", "share"),
    ("least_increase", "ln1p, clip 6"),
)
CANDIDATE_FEATURES = tuple(name for name, _ in CANDIDATE_SCHEMA)
CONTEXT_FEATURES = tuple(name for name, _ in CONTEXT_SCHEMA)
F, C = len(CANDIDATE_SCHEMA), len(CONTEXT_SCHEMA)
#: Two policies with one hash read the same numbers in the same order.
SCHEMA_HASH = hashlib.sha256(
    repr(("skerry-features-1", CANDIDATE_SCHEMA, CONTEXT_SCHEMA)).encode()
).hexdigest()


def features(
    situation: Situation,
    planned: Plan | None = None,
    weights: ObjectiveWeights = DEFAULT_WEIGHTS,
) -> tuple[Float32s, Float32s]:
    """Return rows [nodes, devices, F] and context [nodes, C]; rows outside the mask are all 0.

    planned: what plan() gave for this situation, when the caller has it already.
    """
    p = plan(situation, weights) if planned is None else planned
    columns = np.zeros((F, *situation.mask.shape), dtype=np.float32)
    _fill(columns, situation, p)
    rows = np.ascontiguousarray(columns.transpose(1, 2, 0))
    rows[~situation.mask] = 0.0
    return rows, _context(situation, p)


def _at(*names: str) -> list[int]:
    return [CANDIDATE_FEATURES.index(name) for name in names]


#: Columns that share a transform are computed together: for one decision the calls are what costs.
_LOGGED = _at("deadline", "shortest_service", "slack", "service")
_RELATIVE = _at("load", "remaining", "backlog", "tail", "finish", "finish_last", "regret_finish")
_ENERGIES = _at("energy", "regret_energy")
_COSTS = _at("own_cost", "last_cost", "added_cost", "increase")
_REGRETS = _at("regret_last_cost", "regret_increase")
_CLASSES = _at(*(f"is_{name}" for name in CLASSES))
_FLAGS = _at(
    "is_late", "is_late_last", "is_resident", "is_first_finish", "is_least_energy", "is_least_increase"
)
_PLAIN = _at("weight", "free_memory", "queued", "doomed", "recent_share", "recent_misses")
(_SERVICE_RATIO,), (_MARGIN,), (_PREDICTION,) = _at("service_ratio"), _at("margin"), _at("prediction")


def _fill(columns: Float32s, s: Situation, p: Plan) -> None:
    a, increase = s.arrival, p.increase
    scale, deadline = a.scale_s[:, None], a.deadline_s[:, None]
    least = _least(np.stack([a.service_s, p.finish_s, p.energy_j, p.last_cost, increase]), s.mask)
    shortest, first, least_energy, least_last, least_increase = least
    block = _block(s.mask, scale / 0.1, shortest / 0.01, scale / shortest, a.service_s / 0.01)
    columns[_LOGGED] = _log(block, 4)
    columns[_SERVICE_RATIO] = _log(a.service_s / shortest, 3)
    times = (p.load_s, s.remaining_s, p.backlog_s, a.tail_s, p.finish_s, p.last_s, p.finish_s - first)
    columns[_RELATIVE] = _rel(np.stack(times) / scale)
    energies = np.maximum(np.stack([p.energy_j, p.energy_j - least_energy]), 0)
    columns[_ENERGIES] = np.minimum(np.log1p(energies) / 3, 4)
    columns[_COSTS] = _signed(np.stack([p.own_cost, p.last_cost, p.added_cost, increase]))
    columns[_REGRETS] = _rel(np.stack([p.last_cost - least_last, increase - least_increase]))
    columns[_CLASSES] = s.device_class == np.arange(len(CLASSES))[:, None, None]
    columns[_MARGIN] = np.clip(1 - p.finish_s / scale, -4, 4)
    columns[_PREDICTION] = np.clip(np.log(s.prediction), -1.5, 1.5)
    columns[_FLAGS] = _block(
        s.mask,
        p.finish_s > deadline,
        p.last_s > deadline,
        (s.resident >> a.model[:, None]) & 1,
        p.finish_s <= first,
        p.energy_j <= least_energy,
        increase <= least_increase,
    )
    columns[_PLAIN] = _block(
        s.mask,
        a.weight[:, None] / 4,
        s.free_memory,
        np.log1p(s.queued) / 3,
        p.doomed / (s.queued + 1),
        s.recent_share,
        s.recent_misses,
    )


def _block(mask: Any, *values: Any) -> Any:
    block = np.empty((len(values), *mask.shape))
    for i, value in enumerate(values):
        block[i] = value
    return block


def _context(s: Situation, p: Plan) -> Float32s:
    mask: Any = s.mask
    count = np.maximum(mask.sum(axis=1), 1)
    backlog = _rel(p.backlog_s / s.arrival.scale_s[:, None])
    late = p.finish_s > s.arrival.deadline_s[:, None]
    means = _block(mask, p.backlog_s <= 0, backlog, late, np.log1p(s.queued) / 3, s.recent_misses)
    idle, mean_backlog, mean_late, mean_queued, misses = _sum(means, mask) / count
    columns = _block(
        count,
        np.log(count) / 4,
        idle,
        mean_backlog,
        np.where(mask, backlog, np.inf).min(axis=1),
        mean_late,
        mean_queued,
        misses,
        _signed(_least(p.increase, mask)[:, 0]),
    )
    context: Float32s = np.where(mask.any(axis=1), columns, 0.0).T.astype(np.float32)
    return context


def _least(values: Any, mask: Any) -> Any:
    least = np.where(mask, values, np.inf).min(axis=-1, keepdims=True)
    return np.where(np.isfinite(least), least, 1.0)


def _sum(values: Any, mask: Any) -> Any:
    """A sum device by device: the same however many absent devices pad the array."""
    return np.cumsum(np.where(mask, values, 0.0), axis=-1)[..., -1]


def _log(values: Any, by: float) -> Any:
    return np.clip(np.log(np.maximum(values, 1e-9)) / by, -2, 2)


def _rel(values: Any) -> Any:
    return np.minimum(np.log1p(np.maximum(values, 0)), 6)


def _signed(values: Any) -> Any:
    return np.clip(np.sign(values) * np.log1p(np.abs(values)), -6, 6)


def features_of(
    task: TaskSpec,
    views: Sequence[DeviceView],
    runtime_s: Sequence[float],
    weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    plans: Sequence[DevicePlan] | None = None,
) -> tuple[Float32s, Float32s]:
    """Return rows [devices, F] and context [C] for one decision: the numbers that arrays of it would give.

    plans: what plan_devices gave for the same, when the caller has it already.
    """
    plans = plan_devices(task, views, runtime_s, weights) if plans is None else plans
    deadline_s = math.inf if task.deadline_s is None else task.deadline_s
    rows, context = features(_situation_of(task, views, runtime_s, deadline_s), _plan_of(plans), weights)
    return rows[0], context[0]


def _situation_of(
    task: TaskSpec, views: Sequence[DeviceView], runtime_s: Sequence[float], deadline_s: float
) -> Situation:
    """One node as arrays; queues are left out, since the plans are there already."""
    model = model_of(task)
    floats = np.array(
        [
            (
                *_own(view, run),
                energy_j,
                view.free_memory_share,
                view.prediction,
                view.recent_share,
                view.recent_misses,
            )
            for view, run, energy_j in zip(views, runtime_s, energies_of(views, runtime_s), strict=True)
        ]
    ).T[:, None, :]
    whole = np.array(
        [(_class_of(view), view.running, view.queued, model in view.resident) for view in views],
        dtype=np.int64,
    ).T[:, None, :]
    nothing = np.empty((0, 1, len(views)))
    arrival = Arrival(
        weight=np.array([priority_weight(task.priority)]),
        deadline_s=np.array([deadline_s]),
        scale_s=np.array([task.deadline_s or NOMINAL_DEADLINE_S]),
        model=np.zeros(1, dtype=np.int64),
        service_s=floats[0],
        tail_s=floats[1],
        load_s=floats[2],
        energy_j=floats[5],
        load_j=floats[3],
        key=floats[0],
    )
    return Situation(
        mask=np.ones((1, len(views)), dtype=bool),
        device_class=whole[0],
        arrival=arrival,
        waiting=Waiting(
            service_s=nothing,
            tail_s=nothing,
            load_s=nothing,
            model=nothing.astype(np.int64),
            weight=nothing,
            deadline_s=nothing,
            rate=nothing,
            key=nothing,
        ),
        running=whole[1],
        queued=whole[2],
        remaining_s=floats[4],
        resident=whole[3],
        free_memory=floats[6],
        prediction=floats[7],
        recent_share=floats[8],
        recent_misses=floats[9],
    )


def _own(view: DeviceView, runtime_s: float) -> tuple[float, ...]:
    offer = view.offer
    return runtime_s, offer.tail_s, offer.load_s, offer.load_j, remaining_of(view)


def _class_of(view: DeviceView) -> int:
    return CLASSES.index("offload" if view.is_offload else view.device.device_class)


def _plan_of(plans: Sequence[DevicePlan]) -> Plan:
    columns = np.array(
        [
            (
                p.load_s, p.backlog_s, p.finish_s, p.last_s, p.energy_j,
                p.own_cost, p.last_cost, p.added_cost, p.doomed,
            )
            for p in plans
        ]
    ).T[:, None, :]  # fmt: skip
    return Plan(
        load_s=columns[0],
        backlog_s=columns[1],
        finish_s=columns[2],
        last_s=columns[3],
        energy_j=columns[4],
        own_cost=columns[5],
        last_cost=columns[6],
        added_cost=columns[7],
        doomed=columns[8].astype(np.int64),
    )
