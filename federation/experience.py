"""What a node recorded of its own work, as episodes that its engine can play again. Never leaves the node.

Owns the record's form and how it becomes arrays. Needs numpy when it is replayed, not when it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from policy.objective import NOMINAL_DEADLINE_S, priority_weight
from skerry.errors import FederationError

if TYPE_CHECKING:
    from twin.fleet.scenario import Episode

EXPERIENCE_NAME = "experience.json"
Seconds = Annotated[float, Meta(ge=0, le=1e7)]
Positive = Annotated[float, Meta(gt=0, le=1e7)]


class RunSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one kind of task is on one device."""

    runtime_s: Positive  #: at size 1
    energy_j: Annotated[float, Meta(ge=0, le=1e9)] = 0.0  #: at size 1
    load_s: Seconds = 0.0  #: loading its model
    load_j: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    tail_s: Seconds = 0.0  #: from leaving the device to being complete


class DeviceSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device. runs: by task kind; a kind that is missing cannot run there."""

    device_class: Literal["cpu", "gpu", "npu", "tpu", "offload"]
    runs: dict[str, RunSeen]


class TaskSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One arrival. size: expected run time relative to its kind's.  ratio: measured / expected run time."""

    kind: str
    at_s: Seconds  #: from the record's beginning
    priority: Annotated[int, Meta(ge=0, le=9)] = 4
    deadline_s: Positive | None = None
    size: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    ratio: Annotated[float, Meta(gt=0, le=1e3)] = 1.0


class Experience(msgspec.Struct, frozen=True, kw_only=True):
    """A node's devices, and its arrivals in order of time."""

    devices: Annotated[tuple[DeviceSeen, ...], Meta(min_length=1, max_length=256)]
    tasks: Annotated[tuple[TaskSeen, ...], Meta(max_length=200_000)]


def read_experience(directory: Path) -> Experience:
    """Return what is recorded in a directory.  Raises FederationError when nothing usable is."""
    file = directory / EXPERIENCE_NAME
    try:
        return msgspec.json.decode(file.read_bytes(), type=Experience)
    except FileNotFoundError as error:
        raise FederationError(f"there is no record of arrivals in {directory}") from error
    except OSError as error:
        raise FederationError(f"{file} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FederationError(f"{file} is not a record of arrivals: {error}") from error


def episodes_of(experience: Experience, tasks: int) -> list[Episode]:
    """Return the record in windows of `tasks` arrivals each, the latest last; the first odd ones left out.

    Raises FederationError when it does not fill one window.
    """
    devices = experience.devices
    runnable = [one for one in experience.tasks if any(one.kind in device.runs for device in devices)]
    runnable.sort(key=lambda one: one.at_s)
    count = len(runnable) // tasks
    if count == 0:
        raise FederationError(f"{len(runnable)} arrivals are recorded, {tasks} make an episode")
    kept = runnable[len(runnable) - count * tasks :]
    kinds = _Kinds(kept, devices)
    return [_episode(kept[i : i + tasks], devices, kinds) for i in range(0, len(kept), tasks)]


class _Kinds:
    """The engine knows a fixed number of kinds: the commonest have one each, the rest stand for the nearest.

    A task of a rare kind becomes one of a commoner kind that runs on the same devices, its size stretched to
    its own run time.
    """

    def __init__(self, tasks: Sequence[TaskSeen], devices: Sequence[DeviceSeen]) -> None:
        from twin.fleet.kinds import KINDS

        counted = [kind for kind, _ in Counter(one.kind for one in tasks).most_common()]
        self._devices = devices
        self.names = counted[: len(KINDS)]
        self.width = len(KINDS)
        self._place = {kind: self._placed(kind) for kind in counted}

    def place(self, kind: str) -> tuple[int, float]:
        """Return (the engine's number, factor on the size)."""
        return self._place[kind]

    def _placed(self, kind: str) -> tuple[int, float]:
        if kind in self.names:
            return self.names.index(kind), 1.0
        shared = [
            len(self._on(kind) & self._on(name)) - len(self._on(kind) ^ self._on(name)) for name in self.names
        ]
        nearest = max(range(len(self.names)), key=lambda i: shared[i])
        return nearest, self._mean_s(kind) / self._mean_s(self.names[nearest])

    def _on(self, kind: str) -> set[int]:
        return {i for i, device in enumerate(self._devices) if kind in device.runs}

    def _mean_s(self, kind: str) -> float:
        found = [device.runs[kind].runtime_s for device in self._devices if kind in device.runs]
        return sum(found) / len(found)


def _episode(tasks: Sequence[TaskSeen], devices: Sequence[DeviceSeen], kinds: _Kinds) -> Episode:
    import numpy as np

    from policy.features import CLASSES
    from twin.fleet.scenario import Episode

    runs = [[device.runs.get(name) for name in kinds.names] for device in devices]
    blank = [None] * (kinds.width - len(kinds.names))
    table = [[*row, *blank] for row in runs]

    def column(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.array([[0.0 if run is None else getattr(run, name) for run in row] for row in table])

    placed = [kinds.place(one.kind) for one in tasks]
    begin = tasks[0].at_s
    return Episode(
        device_class=np.array([CLASSES.index(one.device_class) for one in devices]),
        unit_s=column("runtime_s"),
        supported=np.array([[run is not None for run in row] for row in table]),
        tail_s=column("tail_s"),
        unit_j=column("energy_j"),
        load_s=column("load_s"),
        load_j=column("load_j"),
        memory_mb=np.full(len(devices), 1e9),
        resident=np.zeros(len(devices), dtype=np.int64),
        arrival_s=np.array([one.at_s - begin for one in tasks]),
        kind=np.array([number for number, _ in placed], dtype=np.int64),
        size=np.array([one.size * factor for one, (_, factor) in zip(tasks, placed, strict=True)]),
        priority=np.array([one.priority for one in tasks], dtype=np.int64),
        weight=np.array([priority_weight(one.priority) for one in tasks]),
        deadline_s=np.array([one.deadline_s or NOMINAL_DEADLINE_S for one in tasks]),
        noise=np.array([one.ratio for one in tasks]),
    )
