"""The agent's shell around a policy: what is imported when, what a decision under trial records."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edge_agent.policy_trial import Both, Failure, PolicyTrial, power_of, usable
from policy.baselines.shortest_expected_completion import ShortestExpectedCompletion
from policy.gate.core import Gate, new_trial
from policy.gate.settings import GateSettings
from policy.gate.state import Stage
from policy.objective import DEFAULT_WEIGHTS
from policy.port import Choice, NodeView, Scheduler
from policy.testing import a_device, a_model_task, a_view
from skerry.clock import Instant
from skerry.decision import Decision
from skerry.errors import PolicyError
from skerry.node import Device

VIEW = a_view(a_device("cpu", "cpu-0"), a_device("gpu", "gpu-0"))
TASK = a_model_task(deadline_s=1.0)
FALLBACK = ShortestExpectedCompletion()


class Candidate:
    """A policy that answers as it is told to."""

    name = "policy:abc"

    def __init__(self, index: int = 1, error: Exception | None = None) -> None:
        self.index, self.error, self.asked = index, error, 0

    def choose(self, task: object, devices: object, runtime_s: object) -> Choice:
        """Answer, or fail."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Choice(index=self.index, reason="", scores=(0.0, 1.0), expected_s=(0.1, 0.1))


def a_trial(candidate: Candidate, stage: Stage, **settings: float) -> PolicyTrial:
    terms = GateSettings(**{"block_decisions": 2, "burn_in_decisions": 0, **settings})  # type: ignore[arg-type]
    gate = Gate(new_trial("sha256:abc", terms, seed=1))
    gate.state.stage = stage
    return PolicyTrial(gate, candidate, timer=lambda: 0.0)


def decide(trial: PolicyTrial, number: int = 1, view: NodeView = VIEW) -> Decision:
    def decide_with(scheduler: Scheduler) -> Decision:
        choice = scheduler.choose(TASK, view.devices, [0.1, 0.2])
        device = view.devices[choice.index].device.device_id
        return Decision(
            task_id=f"t{number}", decided_by=f"baseline:{scheduler.name}", node="n", device=device
        )

    now = Instant("boot", 10.0 + number)
    return trial.decide(f"t{number}", TASK, view, now, FALLBACK, decide_with)


def test_in_shadow_the_fallback_decides_and_the_candidate_is_asked() -> None:
    candidate = Candidate()
    decision = decide(a_trial(candidate, Stage.SHADOW))

    assert candidate.asked == 1
    assert (decision.device, decision.decided_by) == ("cpu-0", f"baseline:{FALLBACK.name}")
    assert decision.gate_state == "shadow"


def test_energy_counts_only_where_every_device_says_what_it_draws() -> None:
    cpu, gpu = a_device("cpu", "cpu-0"), a_device("gpu", "gpu-0", power_w=5.0)
    measured = a_device("cpu", "cpu-0", power_w=2.0)
    assert power_of(a_view(cpu, gpu).devices, "gpu-0") == 0.0
    assert power_of(a_view(measured, gpu).devices, "gpu-0") == 5.0

    def weighed(*devices: Device) -> tuple[float, float]:
        both = Both(
            Candidate(), FALLBACK, leads=True, slow_ms=50.0, timer=lambda: 0.0, weights=DEFAULT_WEIGHTS
        )
        both.choose(TASK, a_view(*devices).devices, [0.1, 0.1])
        assert both.weighed is not None
        return both.weighed.candidate_cost, both.weighed.fallback_cost

    ours, theirs = weighed(cpu, gpu)
    assert ours == pytest.approx(theirs)
    ours, theirs = weighed(measured, gpu)
    assert ours - theirs == pytest.approx(DEFAULT_WEIGHTS.energy * (0.5 - 0.2))


def test_in_its_block_the_candidate_decides_and_is_named() -> None:
    trial = a_trial(Candidate(), Stage.PARTIAL)
    decisions = [decide(trial, number) for number in range(1, 9)]

    assert {(d.decided_by, d.device) for d in decisions} == {
        ("policy:abc", "gpu-0"),
        (f"baseline:{FALLBACK.name}", "cpu-0"),
    }
    assert {d.gate_state for d in decisions} == {"partial"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [(PolicyError("a score that is not a number"), "nan"), (RuntimeError("no kernel"), "error")],
)
def test_a_candidate_that_fails_decides_nothing(error: Exception, kind: str) -> None:
    trial = a_trial(Candidate(error=error), Stage.PARTIAL, failures=100)
    decisions = [decide(trial, number) for number in range(1, 9)]

    assert {d.decided_by for d in decisions} == {f"baseline:{FALLBACK.name}"}
    assert trial.gate.state.failures[kind] > 0


def test_after_the_last_failure_nobody_asks_it_any_more() -> None:
    candidate = Candidate(error=RuntimeError("no kernel"))
    trial = a_trial(candidate, Stage.SHADOW)
    for number in range(1, 9):
        decide(trial, number)

    assert candidate.asked == 3
    assert trial.gate.state.stage is Stage.ROLLED_BACK


def test_a_slow_answer_is_not_taken() -> None:
    times = iter([0.0, 0.2])
    both = Both(
        Candidate(), FALLBACK, leads=True, slow_ms=50.0, timer=lambda: next(times), weights=DEFAULT_WEIGHTS
    )
    choice = both.choose(TASK, VIEW.devices, [0.1, 0.2])

    assert choice.index == 0
    assert both.failure is not None
    assert both.failure.kind == "slow"


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        (Choice(index=2, reason="", scores=(1.0, 1.0), expected_s=(1.0, 1.0)), "range"),
        (Choice(index=-1, reason="", scores=(1.0, 1.0), expected_s=(1.0, 1.0)), "range"),
        (Choice(index=0, reason="", scores=(1.0,), expected_s=(1.0,)), "range"),
        (Choice(index=0, reason="", scores=(1.0, float("inf")), expected_s=(1.0, 1.0)), "nan"),
    ],
)
def test_what_is_no_answer_is_called_by_its_kind(choice: Choice, kind: str) -> None:
    found = usable(choice, 2, 0.0, 50.0)

    assert isinstance(found, Failure)
    assert found.kind == kind


def test_an_agent_without_a_policy_imports_no_array_package_and_no_runtime() -> None:
    code = (
        "import sys, edge_agent.runtime, edge_agent.policy_holder\n"
        "print([m for m in ('numpy', 'onnxruntime', 'torch', 'flwr') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
