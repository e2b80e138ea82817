"""Capability filters: what stands against a device, in words."""

from __future__ import annotations

import pytest

from policy.filters import FILTER_NAMES, TEMPORARY_FILTERS, device_verdicts, in_units, memory_now
from policy.port import NodeView
from policy.testing import a_device, a_model_task, a_view
from skerry.node import Device
from skerry.task import Constraints, Resources, TaskSpec
from skerry.testing import a_task

GIB = 1 << 30
CPU, NPU = a_device("cpu", "cpu-1", cpu_millicores=2000), a_device("npu", "hailo-8l")

CASES = [
    (a_task(resources=Resources(accelerator="npu")), CPU, "device-class", "needs an npu, this is a cpu"),
    (a_task(resources=Resources(accelerator="none")), NPU, "device-class", "needs the cpu, this is an npu"),
    (a_task(), NPU, "executor", "device hailo-8l has no executor command"),
    (
        a_task(resources=Resources(memory_bytes=5 * GIB)),
        CPU,
        "memory",
        "needs 5.0 GiB, this node has 4.0 GiB",
    ),
    (a_task(resources=Resources(cpu_millicores=3000)), CPU, "cpu", "needs 3.0 cores, this node has 2.0"),
    (
        a_task(constraints=Constraints(regions=("us", "jp"))),
        CPU,
        "region",
        "may only run on region jp or us, this is eu",
    ),
    (a_task(constraints=Constraints(nodes=("n7",))), CPU, "node", "may only run on node n7, this is n1"),
    (
        a_task(constraints=Constraints(devices=("gpu", "cpu-9"))),
        CPU,
        "device",
        "may only run on cpu-9 or gpu, this is cpu-1 (cpu)",
    ),
    (
        a_model_task(resources=Resources(accelerator="npu", accelerator_count=2)),
        NPU,
        "device-count",
        "needs 2 devices of one class, this node has 1 npu",
    ),
    (
        a_model_task(),
        a_device("npu", "hailo-8l", usable=False, reason="too hot (91 °C)"),
        "device-unusable",
        "hailo-8l is not usable: too hot (91 °C)",
    ),
]


@pytest.mark.parametrize(("task", "device", "rule", "message"), CASES, ids=[case[2] for case in CASES])
def test_each_filter_says_what_is_missing(task: TaskSpec, device: Device, rule: str, message: str) -> None:
    said = {v.rule: v.message for v in device_verdicts(task, device, a_view(CPU, NPU))}

    assert said.get(rule) == message
    assert rule in FILTER_NAMES


@pytest.mark.parametrize(
    ("task", "device"),
    [
        (a_task(), CPU),
        (a_model_task(), NPU),
        (a_model_task(resources=Resources(accelerator="npu")), NPU),
        (a_model_task(resources=Resources(accelerator="none")), CPU),
        (a_model_task(constraints=Constraints(devices=("npu",), regions=("eu",), nodes=("n1",))), NPU),
        (a_model_task(constraints=Constraints(devices=("hailo-8l",))), NPU),
        (a_task(resources=Resources(memory_bytes=4 * GIB, cpu_millicores=2000)), CPU),
    ],
)
def test_nothing_is_said_against_what_can_run_it(task: TaskSpec, device: Device) -> None:
    assert device_verdicts(task, device, a_view(CPU, NPU)) == ()


def test_memory_in_use_now_is_a_passing_trouble_and_too_little_memory_is_not() -> None:
    task = a_task(resources=Resources(memory_bytes=3 * GIB))

    busy = memory_now(task, a_view(CPU, free_memory_bytes=GIB))
    (small,) = device_verdicts(task, CPU, NodeView(node="n1", region="eu", free_memory_bytes=2 * GIB))

    assert busy is not None
    assert device_verdicts(task, CPU, a_view(CPU, free_memory_bytes=GIB)) == ()  # there it waits its turn
    assert (busy.rule, busy.message) == ("memory-now", "needs 3.0 GiB, only 1.0 GiB is free now")
    assert (small.rule, small.message) == ("memory", "needs 3.0 GiB, this node has 2.0 GiB")
    assert busy.rule in TEMPORARY_FILTERS
    assert small.rule not in TEMPORARY_FILTERS


@pytest.mark.parametrize(("size", "text"), [(100, "100 bytes"), (300 << 20, "300 MiB"), (3 << 29, "1.5 GiB")])
def test_sizes_are_said_in_the_unit_that_people_use(size: int, text: str) -> None:
    assert in_units(size) == text
