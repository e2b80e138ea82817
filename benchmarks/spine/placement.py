"""A task that its own node cannot run: from submit until that node knows where the task went."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.fleet import LONE
from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from benchmarks.round_trip import mqtt_round_trips
from benchmarks.samples import milliseconds
from benchmarks.spine.latency import check_tone, pitch_model
from devices.models import tone_task_inputs
from skerry.cli.demo.fleet import Fleet
from skerry.client import Client, outcome_of
from skerry.endpoint import Endpoint
from skerry.http import HttpConnection
from skerry.task import OnnxSpec, Resources, TaskSpec

_METRIC = "skerry_coordinator_placement_seconds"
_TIMEOUT_S = 30.0
#: How often the asking node is asked; half of it is the error of a sample.
_POLL_S = 0.001


def measure(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure both ends of a placement: known at the asking node, and done on the other one."""
    count = run.size(200, 40)
    known, done = _placements(fleet, count)
    bare = mqtt_round_trips("127.0.0.1", fleet.broker.port, count)
    for share, goal in ((50, Goal("<=", 50.0)), (99, None)):
        yield result(
            f"spine.placement.p{share}_ms",
            f"placement: submit accepted to placement known at the asking node, p{share}",
            milliseconds(known, share / 100),
            "ms",
            goal=goal,
            baseline=Baseline(
                what=f"MQTT request and response, {fleet.broker.kind}",
                value=milliseconds(bare, share / 100),
            ),
        )
    yield result(
        "spine.placement.coordinator_mean_ms",
        "the coordinator's part: offer committed to placement committed, mean of its own metric",
        _coordinator_mean_s(fleet) * 1000,
        "ms",
    )
    yield result(
        "spine.placement.done_p50_ms",
        "placed inference: submit accepted to result at the asking node, p50",
        milliseconds(done, 0.5),
        "ms",
    )


def _placements(fleet: Fleet, count: int) -> tuple[list[float], list[float]]:
    known: list[float] = []
    done: list[float] = []
    with Client(socket=fleet.agents[LONE].socket_path) as client:
        task = TaskSpec(
            spec=OnnxSpec(
                model=client.add_model(pitch_model()), inputs=tone_task_inputs(220.0, seconds=0.25)
            ),
            kind="benchmark/placed",
            resources=Resources(memory_bytes=64 << 20, accelerator="npu"),
        )
        client.run(task, timeout_s=_TIMEOUT_S)  # the model travels once, its child starts
        for _ in range(count):
            handle = client.submit(task)
            began = time.perf_counter()
            known.append(_until_placed(client, handle.task_id) - began)
            check_tone(outcome_of(handle.wait(_TIMEOUT_S)))
            done.append(time.perf_counter() - began)
    return known, done


def _coordinator_mean_s(fleet: Fleet) -> float:
    """Return the mean of the coordinator's metric over all its placements, seconds."""
    endpoint = Endpoint(socket=fleet.coordinator.socket_path)
    http = HttpConnection(endpoint, service="coordinator", start_hint="the fleet of this benchmark")
    try:
        _, text = http.request("GET", "/metrics")
    finally:
        http.close()
    families = text_string_to_metric_families(text.decode())
    values = {sample.name: sample.value for family in families for sample in family.samples}
    try:
        return values[f"{_METRIC}_sum"] / values[f"{_METRIC}_count"]
    except (KeyError, ZeroDivisionError) as error:
        raise BenchmarkError(f"the coordinator has no metric {_METRIC} after its placements") from error


def _until_placed(client: Client, task_id: str) -> float:
    deadline = time.perf_counter() + _TIMEOUT_S
    while time.perf_counter() < deadline:
        if client.get(task_id).placed_on:
            return time.perf_counter()
        time.sleep(_POLL_S)
    raise BenchmarkError(f"task {task_id} was not placed within {_TIMEOUT_S:g} s")
