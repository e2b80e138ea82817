"""Run times: measured where it has run, estimated elsewhere, bounded, and the same after a restart."""

from __future__ import annotations

import msgspec
import pytest

from policy.profile import PRIOR_COMMAND_S, PRIOR_ONNX_S, Measured, RuntimeProfile
from policy.testing import a_device, a_model_task
from skerry.testing import a_task

CPU, NPU = a_device("cpu", "cpu-1"), a_device("npu", "hailo-8l", speed=5.0)
MODEL = a_model_task(kind="detect")


def test_before_any_measurement_the_nominal_speed_decides() -> None:
    profile = RuntimeProfile()

    assert profile.expected_s(MODEL, CPU) == PRIOR_ONNX_S
    assert profile.expected_s(MODEL, NPU) == PRIOR_ONNX_S / 5
    assert profile.expected_s(a_task(), NPU) == PRIOR_COMMAND_S
    assert profile.expected_s(a_task(max_runtime_s=0.2), CPU) == 0.2


def test_a_measurement_on_one_device_is_scaled_to_another_by_speed() -> None:
    profile = RuntimeProfile()

    profile.observe("detect", CPU, 0.5)

    assert profile.expected_s(MODEL, CPU) == 0.5
    assert profile.expected_s(MODEL, NPU) == pytest.approx(0.1)


def test_the_mean_follows_what_is_measured_and_one_outlier_moves_it_by_a_fifth() -> None:
    profile = RuntimeProfile()
    profile.observe("detect", NPU, 0.1)

    profile.observe("detect", NPU, 1.1)
    after_one = profile.expected_s(MODEL, NPU)
    for _ in range(40):
        profile.observe("detect", NPU, 1.1)

    assert after_one == pytest.approx(0.3)
    assert profile.expected_s(MODEL, NPU) == pytest.approx(1.1, rel=0.01)


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), -1.0])
def test_what_no_clock_can_have_measured_is_left_out(nonsense: float) -> None:
    profile = RuntimeProfile()

    profile.observe("detect", NPU, nonsense)
    profile.load([Measured(kind="detect", device="hailo-8l", mean_s=nonsense, count=1)])

    assert len(profile) == 0


def test_devices_of_one_name_on_two_nodes_are_kept_apart_by_scope() -> None:
    profile = RuntimeProfile()

    profile.observe("detect", CPU, 0.5, scope="n1")
    profile.observe("detect", CPU, 0.7, scope="n2")

    assert profile.expected_s(MODEL, CPU, scope="n1") == 0.5
    assert profile.expected_s(MODEL, CPU, scope="n2") == 0.7


def test_the_profile_is_bounded_and_forgets_the_least_recently_measured() -> None:
    profile = RuntimeProfile(limit=3)
    for number in range(3):
        profile.observe(f"kind-{number}", CPU, 1.0)

    profile.observe("kind-0", CPU, 1.0)
    profile.observe("kind-9", CPU, 1.0)

    assert [one.kind for one in profile.dump()] == ["kind-2", "kind-0", "kind-9"]


def test_a_profile_survives_being_written_down() -> None:
    profile = RuntimeProfile()
    profile.observe("detect", CPU, 0.5)
    profile.observe("detect", NPU, 0.1)
    written = msgspec.json.encode(profile.dump())

    again = RuntimeProfile()
    again.load(msgspec.json.decode(written, type=list[Measured]))

    assert again.dump() == profile.dump()
    assert again.expected_s(MODEL, NPU) == 0.1


def test_what_loading_a_model_takes_is_measured_here_or_taken_from_elsewhere_and_survives_a_restart() -> None:
    profile, again = RuntimeProfile(), RuntimeProfile()

    profile.observe_load("m", CPU, 0.4)
    profile.observe_load("m", CPU, 0.0)  # it was loaded
    profile.observe_load("m", CPU, float("nan"))
    again.load(msgspec.json.decode(msgspec.json.encode(profile.dump()), type=list[Measured]))

    assert (again.load_s("m", CPU), again.load_s("m", NPU), again.load_s("other", CPU)) == (0.4, 0.4, 0.0)
    assert len(again) == 0, "it is no run time"
    assert not again.has_measured("m", CPU)


def test_an_expectation_that_rests_on_runs_is_told_from_an_estimate() -> None:
    profile = RuntimeProfile()
    profile.observe("detect", CPU, 0.5)

    assert profile.has_measured("detect", CPU)
    assert not profile.has_measured("detect", NPU)
