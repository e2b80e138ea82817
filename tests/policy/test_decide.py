"""One decision: the order filter, guard, scheduler, its words, and whether a task waits or is handed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.baselines.registry import SCHEDULERS, make_scheduler
from policy.decide import LIVE_BATCH, Obstacle, batched, decide, obstacle_of
from policy.guard.registry import make_guard
from policy.guard.without_engine import AllowAll, DenyAll
from policy.port import DeviceView, Guard, NodeView
from policy.profile import RuntimeProfile
from policy.testing import a_device, a_guard, a_model_task, a_view
from skerry.clock import Instant
from skerry.decision import Decision, Verdict, explain
from skerry.task import Resources, TaskSpec
from skerry.testing import a_task

CPU, NPU = a_device("cpu", "cpu-1"), a_device("npu", "hailo-8l", speed=5.0)


def decided(task: TaskSpec, view: NodeView, guard: Guard | None = None, **fields: Any) -> Decision:
    """The decision of an idle node without rules, unless told otherwise."""
    asked = {
        "guard": guard or AllowAll(),
        "scheduler": make_scheduler("shortest-expected-completion"),
        "profile": RuntimeProfile(),
        "now": Instant("boot-1", 12.0),
        "wall_s": 1.8e9,
    }
    return decide("0" * 32, task, view, **{**asked, **fields})


def test_the_fastest_device_that_is_allowed_is_chosen_and_the_reason_compares() -> None:
    decision = decided(a_model_task(), a_view(CPU, NPU))

    assert (decision.node, decision.device) == ("n1", "hailo-8l")
    assert decision.decided_by == "baseline:shortest-expected-completion"
    assert decision.reason == "npu hailo-8l finishes first: 0.020 s against 0.100 s on cpu"
    assert [(c.device, c.score, c.expected_s) for c in decision.candidates] == [
        ("cpu-1", pytest.approx(20.0), pytest.approx(0.1)),
        ("hailo-8l", 100.0, pytest.approx(0.02)),
    ]
    assert (decision.uptime_s, decision.wall_s) == (12.0, 1.8e9)
    assert obstacle_of(decision) is Obstacle.NONE


def test_a_measured_run_time_outweighs_the_nominal_speed() -> None:
    profile = RuntimeProfile()
    profile.observe("detect", NPU, 0.4)
    profile.observe("detect", CPU, 0.1)

    assert decided(a_model_task(), a_view(CPU, NPU), profile=profile).device == "cpu-1"


def test_what_a_filter_rules_out_is_named_and_never_scored() -> None:
    decision = decided(a_task(), a_view(CPU, NPU))

    npu = decision.candidates[1]
    assert decision.device == "cpu-1"
    assert (npu.score, npu.expected_s) == (None, None)
    assert "device hailo-8l has no executor command [executor]" in explain(decision)


def test_a_task_that_nothing_here_can_run_is_handed_over_with_every_reason() -> None:
    decision = decided(a_model_task(resources=Resources(accelerator="tpu")), a_view(CPU, NPU))

    assert (decision.node, decision.device) == (None, None)
    assert decision.decided_by == "rule:device-class"
    assert decision.reason == (
        "no device here can run it: needs a tpu, this is a cpu; needs a tpu, this is an npu"
    )
    assert obstacle_of(decision) is Obstacle.PERMANENT


def test_a_task_waits_when_the_only_device_for_it_is_out_of_order_now() -> None:
    broken = msgspec.structs.replace(NPU, usable=False, reason="resetting")

    decision = decided(a_model_task(resources=Resources(accelerator="npu")), a_view(CPU, broken))

    assert decision.reason.endswith("hailo-8l is not usable: resetting")
    assert obstacle_of(decision) is Obstacle.TEMPORARY


def test_a_task_is_handed_over_when_the_broken_device_could_not_run_it_anyway() -> None:
    broken = msgspec.structs.replace(NPU, usable=False, reason="resetting")

    decision = decided(a_model_task(resources=Resources(accelerator="tpu")), a_view(broken))

    assert obstacle_of(decision) is Obstacle.PERMANENT


def test_a_rule_is_named_before_the_filters_that_spoke_too() -> None:
    decision = decided(a_task(), a_view(CPU, NPU), guard=DenyAll("the rules engine is not installed"))

    assert decision.decided_by == "rule:rules-unavailable"
    assert "the rules engine is not installed" in decision.reason
    assert obstacle_of(decision) is Obstacle.PERMANENT


def test_a_node_without_devices_says_so() -> None:
    decision = decided(a_task(), a_view())

    assert decision.reason == "no device here can run it: this node has no devices"
    assert decision.decided_by == "rule:no-device"


def test_rules_are_not_asked_about_devices_that_cannot_run_the_task() -> None:
    asked: list[str] = []

    class Listening(AllowAll):
        def verdicts(self, task: TaskSpec, node: NodeView, devices: Sequence[Any]) -> list[tuple[Any, ...]]:
            asked.extend(device.device_id for device in devices)
            return super().verdicts(task, node, devices)

    decided(a_task(), a_view(CPU, NPU), guard=Listening())

    assert asked == ["cpu-1"]


BUSY = """
deny contains {"rule": "never", "msg": "never"} if input.task.tenant == "nobody"
deny_now contains {"rule": "busy", "msg": msg} if {
    input.live.queued > 5
    msg := sprintf("%d wait on it", [input.live.queued])
}
"""


def busy_boards(count: int, free: set[int]) -> NodeView:
    """Boards of one speed, six tasks on each that is not free, slots enough that all look equally good."""
    return a_view(
        *(
            DeviceView(device=a_device("npu", f"npu-{i:02d}", slots=64), queued=0 if i in free else 6)
            for i in range(count)
        )
    )


def test_rules_about_the_moment_are_asked_in_batches_until_one_passes() -> None:
    decision = decided(a_model_task(), busy_boards(40, free={20, 39}), guard=a_guard(BUSY))

    spoken = [c.device for c in decision.candidates if c.verdicts]
    assert decision.device == "npu-20"
    assert "6 wait on it [now:busy]" in explain(decision)
    assert len(spoken) == 2 * LIVE_BATCH - 1  # the third batch was never asked


def test_a_task_waits_when_only_rules_about_the_moment_speak_against_it() -> None:
    decision = decided(a_model_task(), busy_boards(20, free=set()), guard=a_guard(BUSY))

    assert decision.device is None
    assert decision.decided_by == "rule:now:busy"
    assert obstacle_of(decision) is Obstacle.TEMPORARY


def test_batches_keep_the_order_and_leave_nothing_out() -> None:
    assert list(batched([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]


class Whimsical(AllowAll):
    """Denies the devices it was told to, and warns about all."""

    def __init__(self, denied: set[str]) -> None:
        self._denied = denied

    def verdicts(self, task: TaskSpec, node: NodeView, devices: Sequence[Any]) -> list[tuple[Verdict, ...]]:
        warning = Verdict(rule="w", allowed=True, message="warning: w")
        return [(warning, Verdict(rule="d", allowed=d.device_id not in self._denied)) for d in devices]


boards = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 5)), max_size=6)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=80, derandomize=True, deadline=None)
@given(boards)
def test_no_scheduler_ever_gets_what_is_denied_and_one_is_chosen_if_any_is_allowed(
    scheduler: str, drawn: list[tuple[bool, bool, int]]
) -> None:
    views = [
        DeviceView(device=a_device("npu", f"npu-{i}", usable=usable), queued=queued, backlog_s=queued)
        for i, (usable, _, queued) in enumerate(drawn)
    ]
    denied = {f"npu-{i}" for i, (_, is_denied, _) in enumerate(drawn) if is_denied}

    decision = decided(
        a_model_task(), a_view(*views), guard=Whimsical(denied), scheduler=make_scheduler(scheduler)
    )

    allowed = {v.device.device_id for v in views if v.device.usable} - denied
    assert (decision.device in allowed) if allowed else (decision.device is None)
    unopposed = {c.device for c in decision.candidates if all(v.allowed for v in c.verdicts)}
    assert unopposed == allowed
    assert {c.device for c in decision.candidates if c.score is not None} == allowed
    assert len(decision.candidates) == len(views)


@pytest.mark.parametrize(
    "guard",
    [AllowAll(), DenyAll("why"), make_guard(), a_guard(BUSY)],
    ids=["off", "deny-all", "shipped", "own"],
)
def test_every_guard_answers_for_each_device_in_order(guard: Guard) -> None:
    devices = [a_device("cpu", f"cpu-{i}") for i in range(3)]

    said = guard.verdicts(a_task(), a_view(*devices), devices)

    assert len(said) == 3
    assert all(verdict.message for verdicts in said for verdict in verdicts if not verdict.allowed)
    assert guard.verdicts(a_task(), a_view(*devices), []) == []
    assert guard.revision


def test_the_same_moment_gives_the_same_decision() -> None:
    assert decided(a_model_task(), a_view(CPU, NPU)) == decided(a_model_task(), a_view(CPU, NPU))
