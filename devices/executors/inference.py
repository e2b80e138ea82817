"""The onnx executor inside its child: loaded models, attempts on threads, the heartbeat.

Never imported by an agent.

onnxruntime gives the interpreter away while it computes, so threads are enough for the slots of one device.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime as ort
from onnxruntime.capi import (
    onnxruntime_pybind11_state as errors,  # pyright: ignore[reportAttributeAccessIssue] # compiled
)

from devices.executors.channel import Cancel, ChannelError, Heartbeat, Load, Result, Run
from devices.executors.child import ChildChannel
from devices.executors.tensors import (
    InputMissing,
    InputRefused,
    OutputRefused,
    Slot,
    read_content,
    read_inputs,
    slot_of,
    write_outputs,
)
from devices.executors.witness import bear_witness
from skerry.task import OnnxSpec

_PROVIDERS = ["CPUExecutionProvider"]
_ERRORS_ONLY = 3  # onnxruntime's severity
#: What onnxruntime raises; it derives them from Exception alone.
_REFUSES_MODEL = (
    errors.InvalidProtobuf,
    errors.InvalidGraph,
    errors.InvalidArgument,
    errors.NotImplemented,
    errors.NoModel,
    errors.ModelLoaded,
    errors.Fail,
    errors.RuntimeException,
)
_FAILS_RUN = (
    errors.Fail,
    errors.RuntimeException,
    errors.EPFail,
)
_REFUSES_INPUT = (errors.InvalidArgument,)


class Cancelled(Exception):
    """The agent asked for the attempt's end."""


class Model:
    """A loaded model and its signature."""

    def __init__(self, data: bytes, threads: int) -> None:
        """Build the session.  Raises InputRefused when the bytes are not a model that can run here."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        # The arena keeps the peak of every model for ever; a board shares its memory with everything else.
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self.session = ort.InferenceSession(data, options, providers=_PROVIDERS)
        except _REFUSES_MODEL as error:
            raise InputRefused(f"the model cannot be loaded: {_first_line(error)}") from error
        if self.session.get_providers() != _PROVIDERS:
            raise InputRefused(f"the model was loaded on {self.session.get_providers()}, not on {_PROVIDERS}")
        # Else a failed run silently builds another session on another provider.
        self.session.disable_fallback()
        self.inputs: tuple[Slot, ...] = tuple(slot_of(argument) for argument in self.session.get_inputs())
        self.outputs: tuple[str, ...] = tuple(argument.name for argument in self.session.get_outputs())


class Models:
    """The models loaded last, by content hash, at most `limit`."""

    def __init__(self, limit: int, threads: int) -> None:
        """Start empty."""
        self._limit = limit
        self._threads = threads
        self._loaded: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def loaded(self) -> tuple[str, ...]:
        """The models that are loaded, the least recently used first."""
        with self._lock:
            return tuple(self._loaded)

    def get(self, content: str, blobs: dict[str, str]) -> tuple[Model, float]:
        """Return the model and how long its loading took, s: 0 when it was loaded already.

        It is loaded from exactly the bytes that were verified against its hash.
        """
        with self._lock:
            begun = time.monotonic()
            model = self._loaded.pop(content, None)
            is_new = model is None
            if model is None:
                model = Model(read_content(content, blobs, what="model"), self._threads)
            self._loaded[content] = model
            while len(self._loaded) > self._limit:
                self._loaded.popitem(last=False)
            return model, (time.monotonic() - begun) if is_new else 0.0


class _Attempt:
    """A running attempt and how to stop it."""

    def __init__(self) -> None:
        self.load_s = 0.0  #: what loading its model took
        self.stopped = threading.Event()
        self.options = ort.RunOptions()
        self.options.log_severity_level = _ERRORS_ONLY + 1  # a refused run is reported, not printed

    def stop(self) -> None:
        self.stopped.set()
        self.options.terminate = True  # onnxruntime looks at it between two nodes of the graph


class Inference:
    """Runs attempts for one device."""

    def __init__(self, channel: ChildChannel, load: Load) -> None:
        """Start with no model loaded."""
        self._channel = channel
        self._load = load
        self._models = Models(load.sessions, load.threads)
        self._attempts: dict[int, _Attempt] = {}

    @property
    def running(self) -> int:
        """How many attempts are under way."""
        return len(self._attempts)

    def start(self, run: Run, pool: ThreadPoolExecutor) -> None:
        """Begin an attempt on a thread of the pool."""
        self._attempts[run.run] = _Attempt()
        pool.submit(self._run, run)

    def cancel(self, number: int) -> None:
        """Stop an attempt that is still under way."""
        attempt = self._attempts.get(number)
        if attempt is not None:
            attempt.stop()

    def _run(self, run: Run) -> None:
        attempt = self._attempts[run.run]
        try:
            result = self._outcome(run, attempt)
        except MemoryError:
            result = Result(run=run.run, status="failed", error="not enough memory for this inference")
        except Exception as error:  # whatever a task does, the child tells it and goes on
            result = Result(
                run=run.run, status="failed", error=f"{type(error).__name__}: {_first_line(error)}"
            )
        del self._attempts[run.run]
        result = msgspec.structs.replace(result, load_s=attempt.load_s, loaded=self._models.loaded)
        try:
            self._channel.send(result)
        except ChannelError as error:
            self._channel.send(Result(run=run.run, status="invalid", error=f"the result: {error}"))

    def _outcome(self, run: Run, attempt: _Attempt) -> Result:
        begun = time.monotonic()
        try:
            values, files = self._compute(run, attempt)
        except (InputRefused, OutputRefused) as error:
            return Result(run=run.run, status="invalid", error=str(error))
        except InputMissing as error:
            return Result(run=run.run, status="failed", error=str(error))
        except Cancelled:
            return Result(run=run.run, status="cancelled", error="stopped on request")
        if self._load.witness:
            bear_witness(self._load.witness, run.task_id, run.fence, "onnx", self._load.device_id)
        taken = time.monotonic() - begun
        return Result(run=run.run, status="succeeded", result=values, runtime_s=taken, files=files)

    def _compute(self, run: Run, attempt: _Attempt) -> tuple[dict[str, Any], dict[str, str]]:
        if not isinstance(run.spec, OnnxSpec):
            raise InputRefused("this executor runs models only")
        model, attempt.load_s = self._models.get(run.spec.model, run.blobs)
        arrays = read_inputs(model.inputs, run.spec.inputs, run.blobs)
        computing = time.monotonic()
        outputs = _infer(model, arrays, attempt)
        computed_s = time.monotonic() - computing
        extra = self._emulate(attempt, computed_s)
        directory = Path(self._load.output_dir) / f"{run.task_id}-{secrets.token_hex(4)}"
        described, files = write_outputs(
            dict(zip(model.outputs, outputs, strict=True)), directory, self._load.output_limit_bytes
        )
        return {"outputs": described, **extra}, files

    def _emulate(self, attempt: _Attempt, computed_s: float) -> dict[str, Any]:
        """Wait as long as an emulated board would still compute, and say so in the result."""
        board = self._load.emulation
        if board is None:
            if attempt.stopped.is_set():
                raise Cancelled
            return {}
        modelled_s = board.takes_s(computed_s)
        if attempt.stopped.wait(max(0.0, modelled_s - computed_s)):
            raise Cancelled
        return {
            "emulated": True,
            "modelled_s": modelled_s,
            "modelled_energy_j": modelled_s * board.power_w,
        }


def _infer(model: Model, arrays: dict[str, np.ndarray[Any, Any]], attempt: _Attempt) -> list[Any]:
    try:
        return list(model.session.run(None, arrays, attempt.options))
    except _REFUSES_INPUT as error:
        raise InputRefused(f"the model refuses the input: {_first_line(error)}") from error
    except _FAILS_RUN as error:
        if attempt.stopped.is_set():
            raise Cancelled from error
        raise


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no further message"])[0][:500]


def _beat(channel: ChildChannel, inference: Inference, every_s: float) -> None:
    while True:
        channel.send(Heartbeat(ready=True, running=inference.running))
        time.sleep(every_s)


def serve_inference(channel: ChildChannel, load: Load) -> None:
    """Run attempts until the agent closes the channel."""
    inference = Inference(channel, load)
    beat = threading.Thread(target=_beat, args=(channel, inference, load.heartbeat_s), daemon=True)
    beat.start()
    pool = ThreadPoolExecutor(load.slots, thread_name_prefix="slot")
    for message in channel.messages():
        if isinstance(message, Run):
            inference.start(message, pool)
        elif isinstance(message, Cancel):
            inference.cancel(message.run)
