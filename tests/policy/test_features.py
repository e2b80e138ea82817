"""What the learned policy sees: its schema, its scaling, and what single numbers mean."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import policy.features as features_module
from policy.device_plan import energies_of, plan_device, plan_devices, waiting_of, with_key
from policy.features import (
    CANDIDATE_FEATURES,
    CANDIDATE_SCHEMA,
    CONTEXT_FEATURES,
    SCHEMA_HASH,
    C,
    F,
    features_of,
)
from policy.objective import NOMINAL_DEADLINE_S
from policy.port import DeviceView, Offer, Reserved
from policy.queue_rule import QueueRule, queue_key
from policy.testing import a_device, a_model_task

TASK = a_model_task(priority=8, deadline_s=1.0)


def of(name: str, views: list[DeviceView], runtime_s: list[float]) -> list[float]:
    """One number of each candidate."""
    rows, _ = features_of(TASK, views, runtime_s)
    return [float(value) for value in rows[:, CANDIDATE_FEATURES.index(name)]]


def test_the_schema_names_every_number_once_and_its_hash_is_pinned() -> None:
    assert len(set(CANDIDATE_FEATURES)) == F == len(CANDIDATE_SCHEMA)
    assert len(set(CONTEXT_FEATURES)) == C
    # A change of the schema makes every policy that was trained on it unusable: it must be deliberate.
    assert SCHEMA_HASH == "4ee6da9a44476adb3a6f4567aabacd6296c5f0c594b10a88c521c3ad09524bb2"


def test_every_number_has_its_own_column() -> None:
    groups = ("LOGGED", "RELATIVE", "ENERGIES", "COSTS", "REGRETS", "CLASSES", "FLAGS", "PLAIN")
    columns = [i for name in groups for i in getattr(features_module, f"_{name}")]
    columns += [getattr(features_module, f"_{name}") for name in ("SERVICE_RATIO", "MARGIN", "PREDICTION")]

    assert sorted(columns) == list(range(F))


def test_numbers_are_relative_to_the_deadline() -> None:
    free = DeviceView(device=a_device("npu", "n"))
    busy = DeviceView(device=a_device("gpu", "g"), running=1, backlog_s=2.0, remaining_s=2.0)

    assert of("finish", [free, busy], [0.5, 0.1]) == pytest.approx([np.log1p(0.5), np.log1p(2.1)])
    assert of("margin", [free, busy], [0.5, 0.1]) == pytest.approx([0.5, -1.1])
    assert of("is_late", [free, busy], [0.5, 0.1]) == [0, 1]
    assert of("is_first_finish", [free, busy], [0.5, 0.1]) == [1, 0]
    assert of("is_npu", [free, busy], [0.5, 0.1]) == [1, 0]
    assert of("weight", [free, busy], [0.5, 0.1]) == [1, 1]


def test_a_link_to_other_nodes_is_its_own_class() -> None:
    link = DeviceView(device=a_device("cpu", "link"), is_offload=True, offer=Offer(tail_s=0.2))

    assert of("is_offload", [link], [0.1]) == [1]
    assert of("is_cpu", [link], [0.1]) == [0]
    assert of("tail", [link], [0.1]) == pytest.approx([np.log1p(0.2)])


def test_loading_counts_unless_the_model_is_there_or_will_be() -> None:
    model = TASK.spec.model  # type: ignore[union-attr]
    cold = DeviceView(device=a_device("npu", "a"), offer=Offer(load_s=0.3))
    warm = DeviceView(device=a_device("npu", "b"), offer=Offer(load_s=0.3), resident=(model,))
    soon = DeviceView(
        device=a_device("npu", "c"),
        offer=Offer(load_s=0.3),
        running=1,
        queued=1,
        remaining_s=0.0,
        reserved=(Reserved(runtime_s=0.1, load_s=0.3, model=model, key=1.0),),
    )

    plans = plan_devices(TASK, [cold, warm, soon], [0.1, 0.1, 0.1])

    assert [plan.load_s for plan in plans] == [0.3, 0.0, 0.0]
    assert [plan.finish_s for plan in plans] == pytest.approx([0.4, 0.1, 0.5])
    assert of("is_resident", [cold, warm, soon], [0.1] * 3) == [0, 1, 0]


def test_a_task_that_goes_before_others_costs_them_their_deadlines() -> None:
    waits = Reserved(runtime_s=0.5, weight=2.0, deadline_s=0.6, scale_s=1.0, key=1.0)
    view = DeviceView(
        device=a_device("gpu", "g"),
        running=1,
        queued=1,
        remaining_s=0.0,
        reserved=(waits,),
        is_doomed_last=True,
    )
    first = DeviceView(**{**{f: getattr(view, f) for f in view.__struct_fields__}, "offer": Offer(key=2.0)})

    behind, before = plan_device(TASK, view, 0.3), plan_device(TASK, first, 0.3)

    assert behind.finish_s == pytest.approx(0.8)
    assert behind.added_cost == 0
    assert before.finish_s == pytest.approx(0.3)
    assert before.added_cost == pytest.approx(2.0 + 0.1 * 0.3)
    assert before.last_s == behind.last_s == pytest.approx(0.8)


def test_what_cannot_meet_its_deadline_goes_behind_the_rest() -> None:
    doomed = Reserved(runtime_s=1.0, weight=1.0, deadline_s=0.5, scale_s=1.0, key=9.0)
    view = DeviceView(
        device=a_device("gpu", "g"),
        running=1,
        queued=1,
        remaining_s=0.0,
        reserved=(doomed,),
        is_doomed_last=True,
    )

    plan = plan_device(TASK, view, 0.2)

    assert plan.doomed == 1
    assert plan.finish_s == pytest.approx(0.2)
    assert plan.backlog_s == pytest.approx(1.0)
    assert plan.added_cost == pytest.approx(0.1 * 0.2)


def test_a_busy_device_with_a_free_slot_starts_at_once() -> None:
    view = DeviceView(device=a_device("cpu", "c", slots=2), running=1, backlog_s=9.0, remaining_s=9.0)

    assert plan_device(TASK, view, 0.3).finish_s == pytest.approx(0.3)


def test_energy_counts_only_where_it_is_known_everywhere() -> None:
    known = DeviceView(device=a_device("npu", "n", power_w=2.0))
    unknown = DeviceView(device=a_device("cpu", "c"))

    assert energies_of([known, unknown], [0.5, 0.5]) == [0.0, 0.0]
    assert energies_of([known, known], [0.5, 1.0]) == [1.0, 2.0]


def test_a_task_without_a_deadline_cannot_be_late() -> None:
    task = a_model_task(deadline_s=None)
    jammed = DeviceView(device=a_device("npu", "n"), running=1, backlog_s=1e6, remaining_s=1e6)

    rows, context = features_of(task, [jammed], [0.1])

    assert np.isfinite(rows).all()
    assert np.isfinite(context).all()
    assert rows[0, CANDIDATE_FEATURES.index("is_late")] == 0
    assert plan_device(task, jammed, 0.1).own_cost == pytest.approx(0.1 * (1e6 + 0.1) / NOMINAL_DEADLINE_S)


@pytest.mark.parametrize("rule", [QueueRule.PRIORITY, QueueRule.WSPT, QueueRule.EDF])
def test_the_task_at_hand_takes_the_place_its_rule_gives_it(rule: QueueRule) -> None:
    slow = a_model_task(priority=2, deadline_s=5.0)
    urgent = a_model_task(priority=8, deadline_s=1.0)
    waiting = (waiting_of(slow, runtime_s=2.0, age_s=0.5, rule=rule),)
    view = DeviceView(device=a_device("npu", "n"), running=1, queued=1, remaining_s=0.0, reserved=waiting)

    ahead = plan_device(urgent, with_key(urgent, view, 0.1, rule), 0.1)
    behind = plan_device(slow, with_key(slow, view, 3.0, rule), 3.0)

    assert waiting[0].deadline_s == 4.5
    assert ahead.finish_s == pytest.approx(0.1)
    assert behind.finish_s == pytest.approx(5.0)


def test_priorities_are_never_bridged_by_run_times() -> None:
    long, short = (
        queue_key(QueueRule.PRIORITY, weight=1, runtime_s=r, due_s=0, turn=0, priority=p)
        for r, p in ((366 * 86400.0, 5), (0.001, 4))
    )

    assert long > short


def test_traditional_schedulers_need_no_numpy() -> None:
    code = (
        "import sys, policy.decide, policy.baselines.registry as r\n"
        "[r.make_scheduler(name) for name in r.SCHEDULERS]\n"
        "assert 'numpy' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
