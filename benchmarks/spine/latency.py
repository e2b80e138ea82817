"""From submit to done on a real agent, over its Unix socket, beside the bare cost of the same work."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.fleet import LONE
from benchmarks.harness import Baseline, BenchmarkError, Result, Run, result
from benchmarks.samples import milliseconds, timed
from devices.models import locate_builtin_models, tone_of, tone_task_inputs
from skerry.cli.demo.fleet import Fleet
from skerry.client import Client
from skerry.messages import Outcome
from skerry.task import CommandSpec, OnnxSpec, Resources, TaskSpec, Tensor

_PROGRAM = ("/bin/true",)
_TONE_HZ, _TOLERANCE_HZ = 220.0, 6.0
_WARM_UP = 5
_SMALL = Resources(cpu_millicores=100, memory_bytes=64 << 20, accelerator="none")


def command(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure a program that does nothing, so that what is left is ours."""
    count = run.size(300, 60)
    task = TaskSpec(spec=CommandSpec(argv=_PROGRAM), kind="benchmark/true", resources=_SMALL)
    ours = _submit_to_done(fleet, task, count, lambda outcome: None)
    bare = _timed(count, lambda: subprocess.run(_PROGRAM, check=True))
    yield from _results("command", "a trivial command, submit to done", ours, bare, "started directly")


def inference(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure a pitch detection on a quarter of a second of sound, and check what it heard."""
    count, inputs = run.size(300, 60), tone_task_inputs(_TONE_HZ, seconds=0.25)
    path = pitch_model()
    with Client(socket=fleet.agents[LONE].socket_path) as client:
        model = client.add_model(path)
    task = TaskSpec(spec=OnnxSpec(model=model, inputs=inputs), kind="benchmark/pitch", resources=_SMALL)
    ours = _submit_to_done(fleet, task, count, check_tone)
    bare = _timed(count, _bare_inference(path, inputs))
    what = "an inference (pitch of 0.25 s of sound), submit to done"
    yield from _results("onnx", what, ours, bare, "in a loaded session, one thread")


def pitch_model() -> Path:
    """Return the file of the pitch model.  Raises BenchmarkError when its package is not installed."""
    try:
        return locate_builtin_models()["swift-f0"]
    except KeyError as error:
        raise BenchmarkError("the package swift-f0 is not installed (extra `demo`)") from error


def check_tone(outcome: Outcome) -> None:
    """Raise BenchmarkError unless the model heard the tone: a wrong answer is not a fast one."""
    heard = tone_of(outcome.result)
    if abs(heard - _TONE_HZ) > _TOLERANCE_HZ:
        raise BenchmarkError(f"the model heard {heard:.1f} Hz instead of {_TONE_HZ:g}")


def _submit_to_done(
    fleet: Fleet, task: TaskSpec, count: int, check: Callable[[Outcome], None]
) -> list[float]:
    samples: list[float] = []
    with Client(socket=fleet.agents[LONE].socket_path) as client:
        for _ in range(_WARM_UP):
            client.run(task, timeout_s=60)
        for _ in range(count):
            with timed(samples):
                outcome = client.run(task, timeout_s=60)
            check(outcome)
    return samples


def _timed(count: int, work: Callable[[], Any]) -> list[float]:
    samples: list[float] = []
    for _ in range(_WARM_UP):
        work()
    for _ in range(count):
        with timed(samples):
            work()
    return samples


def _bare_inference(path: Path, inputs: dict[str, Tensor]) -> Callable[[], Any]:
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = {
        name: numpy.frombuffer(base64.b64decode(tensor.base64 or ""), dtype=tensor.dtype).reshape(
            tensor.shape
        )
        for name, tensor in inputs.items()
    }
    return lambda: session.run(None, arrays)


def _results(name: str, what: str, ours: list[float], bare: list[float], directly: str) -> Iterator[Result]:
    for share in (50, 99):
        yield result(
            f"spine.{name}.p{share}_ms",
            f"{what}, p{share}",
            milliseconds(ours, share / 100),
            "ms",
            baseline=Baseline(what=directly, value=milliseconds(bare, share / 100)),
        )
