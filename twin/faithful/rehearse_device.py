"""What is taken of a real device for a rehearsal: its settings, its devices, and what its tasks are like.

Reads the agent's directory, beside a running agent too, and changes nothing in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

import msgspec

from devices.discovery import discover
from edge_agent.profile_cache import ProfileCache
from edge_agent.runtime_build import MEMORY_SHARE, queue_limits
from edge_agent.settings import AgentSettings, default_node_name
from policy.profile import Measured, RuntimeProfile
from skerry.errors import SpecError
from skerry.identity import Enrolment
from skerry.node import Device
from skerry.task import TaskSpec
from task_queue.inspection import StoppedQueue
from task_queue.limits import Limits
from task_queue.store import TaskFilter, TaskRecord
from twin.scenario.language import Load

#: The newest tasks that are looked at, and the kinds among them that are rehearsed.
LOOKED_AT, KINDS = 2_000, 6
_PAGE = 200
#: A guess for a kind that never ran to its end here, seconds.
UNMEASURED_S = 1.0
_MOST_BYTES = 16_384  # what a scenario's payload and result may have


class TakenDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device as it is rehearsed. held_bytes: what its queue takes of the limit already."""

    node: str
    region: str
    settings: AgentSettings
    limits: Limits
    devices: tuple[Device, ...]
    cpu_millicores: int
    memory_bytes: int
    measured: tuple[Measured, ...]
    held_bytes: int
    loads: tuple[Load, ...]
    sample: int  #: tasks that the loads were made from

    @property
    def rate_per_s(self) -> float:
        """Tasks a second, all kinds together."""
        return sum(load.rate_per_s for load in self.loads)


def take_device(settings: AgentSettings, *, rate_per_s: float | None = None) -> TakenDevice:
    """Return what a rehearsal needs of the agent with these settings.

    rate_per_s: of all tasks together, instead of what the queue shows.
    Raises SpecError when no rate is known, StorageFailed when there is no queue.
    """
    home = settings.home
    queue = StoppedQueue(home / "queue.db")
    try:
        records, held_bytes = _newest(queue), queue.depth().bytes_used
    finally:
        queue.close()
    profile = RuntimeProfile()
    ProfileCache(home / "profile.db").load(profile)
    measured = tuple(profile.dump())
    inventory = discover(settings.devices)
    enrolment = Enrolment.load(settings.enrolment_path) if settings.is_enrolled else None
    return TakenDevice(
        node=enrolment.node if enrolment else settings.node.name or default_node_name(),
        region=enrolment.region if enrolment else settings.node.region,
        settings=settings,
        limits=queue_limits(settings),
        devices=tuple(msgspec.structs.replace(d, emulated=True) for d in inventory.devices if d.usable),
        cpu_millicores=settings.limits.cpu_millicores or inventory.cpu_millicores,
        memory_bytes=settings.limits.memory_bytes or int(inventory.memory_bytes * MEMORY_SHARE),
        measured=measured,
        held_bytes=held_bytes,
        loads=loads_of(records, measured, rate_per_s=rate_per_s),
        sample=len(records),
    )


def loads_of(
    records: Sequence[TaskRecord], measured: Sequence[Measured], *, rate_per_s: float | None = None
) -> tuple[Load, ...]:
    """Return loads like the tasks of a queue: their kinds in their shares, sizes, run times and failures."""
    total_per_s = _rate(records) if rate_per_s is None else rate_per_s
    if total_per_s is None or total_per_s <= 0:
        raise SpecError("the queue shows no rate: it has fewer than two tasks; say one with --rate")
    by_kind: defaultdict[str, list[TaskRecord]] = defaultdict(list)
    for record in records:
        by_kind[record.task.kind].append(record)
    most = Counter({kind: len(some) for kind, some in by_kind.items()}).most_common(KINDS)
    counted = sum(count for _, count in most)
    if not counted:
        return (Load(rate_per_s=total_per_s, arrival="poisson", kind="task"),)
    return tuple(_load(kind, by_kind[kind], measured, total_per_s * count / counted) for kind, count in most)


def _newest(queue: StoppedQueue) -> list[TaskRecord]:
    records: list[TaskRecord] = []
    while len(records) < LOOKED_AT:
        before = records[-1].task_id if records else None
        page = queue.find(TaskFilter(limit=_PAGE, before=before))
        if not page:
            break
        records += page
    return [record for record in records if record.placement is None]


def _rate(records: Sequence[TaskRecord]) -> float | None:
    moments = [record.accepted_wall_s for record in records]
    span_s = max(moments) - min(moments) if moments else 0.0
    return (len(moments) - 1) / span_s if span_s > 0 else None


def _load(kind: str, records: list[TaskRecord], measured: Sequence[Measured], rate_per_s: float) -> Load:
    ended = [record for record in records if record.outcome is not None]
    failed = sum(any(a.ended == "failed" for a in record.attempts) for record in ended)
    specs = [record.task for record in records]
    results = [len(msgspec.json.encode(r.outcome.result)) for r in ended if r.outcome and r.outcome.result]
    first = specs[0]
    return Load(
        kind=kind,
        rate_per_s=rate_per_s,
        arrival="poisson",
        runtime_s=_runtimes(kind, ended, measured),
        fails=min(1.0, failed / max(1, len(ended))),
        retries=first.retries,
        max_runtime_s=first.max_runtime_s,
        effect=first.effect,
        priority=first.priority,
        expires_after_s=first.expires_after_s,
        payload_bytes=min(_MOST_BYTES, round(median(map(_size, specs)))),
        result_bytes=min(_MOST_BYTES, round(median(results))) if results else 0,
    )


def _size(task: TaskSpec) -> int:
    return len(msgspec.json.encode(task.spec))


def _runtimes(kind: str, ended: Sequence[TaskRecord], measured: Sequence[Measured]) -> tuple[float, float]:
    """Return between which seconds nine of ten run times lie: of the tasks seen, else what was measured."""
    seen = [r.outcome.runtime_s for r in ended if r.outcome is not None and r.outcome.runtime_s > 0]
    if len(seen) >= 2:
        parts = quantiles(seen, n=20, method="inclusive")
        return round(parts[0], 4), round(parts[-1], 4)
    known = seen or [one.mean_s for one in measured if one.kind == kind and not one.is_load] or [UNMEASURED_S]
    return round(min(known), 4), round(max(known), 4)


def settings_at(home: Path, config: Path | None) -> AgentSettings:
    """Return the settings of the agent whose data is in a directory.  Raises SettingsError."""
    from edge_agent.settings import read_settings

    return read_settings(config, {}, {"data_dir": str(home)})
