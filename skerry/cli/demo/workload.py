"""What the demo's fleet is asked to do: real inferences whose answers are known beforehand, and commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from devices.models import label_of, magika_inputs, tone_of, tone_task_inputs
from skerry.messages import Outcome
from skerry.task import Accelerator, CommandSpec, Constraints, OnnxSpec, Resources, TaskSpec, Tensor

_TONE_HZ = 220.0
#: Half a semitone: a model that hears another note has failed.
_TONE_TOLERANCE_HZ = 6.0
_TONE_S = 0.25
_JSON_FILE = (
    b'{"cells": [1, 2, 3], "name": "skerry", "ok": true, "nested": {"a": [null, false, 1.5e3]}}\n' * 8
)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of task: how to make the n-th one, and whether an outcome is its true answer."""

    name: str
    make: Callable[[int], TaskSpec]
    is_right: Callable[[int, Outcome], bool]


def all_kinds(
    models: Mapping[str, str], witness: Path, *, deadline_s: float | None = None
) -> dict[str, Kind]:
    """Return every kind of the workload by name.

    models: name → content hash, as `models add` gave it.  deadline_s: of every task; what misses it is done
    all the same.
    """
    tone = tone_task_inputs(_TONE_HZ, _TONE_S)
    made = (
        _inference("pitch", models["swift-f0"], tone, "any", _hears_the_tone),
        _inference("pitch-on-npu", models["swift-f0"], tone, "npu", _hears_the_tone),
        _inference("pitch-on-tpu", models["swift-f0"], tone, "tpu", _hears_the_tone),
        _inference("file-type", models["magika"], magika_inputs(_JSON_FILE), "any", _sees_json),
        _inference("file-type-on-npu", models["magika"], magika_inputs(_JSON_FILE), "npu", _sees_json),
        _command("count", witness, ()),
        _command("count-in-north", witness, ("north",)),
        _command("count-in-south", witness, ("south",)),
    )
    return {kind.name: _due(kind, deadline_s) for kind in made}


def _due(kind: Kind, deadline_s: float | None) -> Kind:
    def make(number: int) -> TaskSpec:
        return msgspec.structs.replace(kind.make(number), deadline_s=deadline_s)

    return msgspec.structs.replace(kind, make=make)


def _inference(
    name: str,
    model: str,
    inputs: dict[str, Tensor],
    accelerator: Accelerator,
    is_right: Callable[[int, Outcome], bool],
) -> Kind:
    task = TaskSpec(
        spec=OnnxSpec(model=model, inputs=inputs),
        kind=name,
        resources=Resources(memory_bytes=64 << 20, accelerator=accelerator),
    )
    return Kind(name=name, make=lambda _: task, is_right=is_right)


def _command(name: str, witness: Path, regions: tuple[str, ...]) -> Kind:
    def make(number: int) -> TaskSpec:
        effect = f'echo "$SKERRY_TASK_ID $SKERRY_FENCE command" >> {shlex.quote(str(witness))}'
        return TaskSpec(
            spec=CommandSpec(argv=("/bin/sh", "-c", f"{effect} && expr {number} + 1")),
            kind=name,
            resources=Resources(cpu_millicores=200, memory_bytes=64 << 20, accelerator="none"),
            constraints=Constraints(regions=regions),
        )

    return Kind(name=name, make=make, is_right=_counted)


def _hears_the_tone(_: int, outcome: Outcome) -> bool:
    return abs(tone_of(outcome.result) - _TONE_HZ) < _TONE_TOLERANCE_HZ


def _sees_json(_: int, outcome: Outcome) -> bool:
    return label_of(outcome.result) in {"json", "jsonl"}


def _counted(number: int, outcome: Outcome) -> bool:
    return str(outcome.result["stdout"]).strip() == str(number + 1)
