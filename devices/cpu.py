"""The processor as a device: what the agent may really use of it. Owns cgroup v1 and v2 limits; runs nothing.

Only files are read, so that every machine can be acted by a tree of files.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import PurePosixPath

import msgspec

from devices.identity import device_id
from devices.reader import SysReader
from devices.settings import DeviceSettings
from skerry.node import Device

#: cgroup v1 writes "no limit" as the largest page-aligned number; nothing real is above this, bytes.
_NO_LIMIT_BYTES = 1 << 60


class CpuCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What this process may use.

    cpus: whole processors it can run on at once, min(affinity, ceil(quota), cpuset).
    millicores: the same with the fraction of a quota kept.
    """

    cpus: int
    millicores: int
    memory_bytes: int
    model: str
    numa_nodes: int


class CpuBackend:
    """Finds the processor."""

    def scan(self, reader: SysReader, settings: DeviceSettings) -> tuple[Device, ...]:
        """Return the one CPU device."""
        capacity = read_capacity(reader)
        executors = ("onnx", "command") if runtime_problem() is None else ("command",)
        return (
            Device(
                device_id=device_id("cpu", "cpu", reader),
                device_class="cpu",
                name=capacity.model,
                executors=executors,
                slots=settings.cpu_slots or max(1, capacity.millicores // 1000),
                memory_bytes=capacity.memory_bytes,
                cpu_millicores=capacity.millicores,
            ),
        )


def runtime_problem() -> str | None:
    """Return why models cannot run on this node, or None. Looks for the packages without importing them."""
    missing = [name for name in ("numpy", "onnxruntime") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed: in the checkout, pip install -e '.[edge]'"
    return None


def read_capacity(reader: SysReader) -> CpuCapacity:
    """Return what this process may use of the machine, cgroup limits counted."""
    affinity, groups = _affinity(reader), _groups(reader)
    sets = [size for path in groups["cpuset"] if (size := _cpuset(reader, path))]
    quotas = [quota for path in groups["cpu"] if (quota := _quota(reader, path)) is not None]
    whole = min([affinity, *sets])
    cores = min([float(whole), *quotas])
    return CpuCapacity(
        cpus=max(1, min(whole, math.ceil(cores))),
        millicores=max(1, int(cores * 1000)),
        memory_bytes=_memory(reader, groups["memory"]),
        model=_model(reader),
        numa_nodes=max(1, _list_size(reader.text("/sys/devices/system/node/online").or_else("0"))),
    )


def _affinity(reader: SysReader) -> int:
    status = reader.text("/proc/self/status").or_else("")
    for line in status.splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return max(1, _list_size(line.partition(":")[2]))
    online = reader.text("/sys/devices/system/cpu/online").or_else("")
    return max(1, _list_size(online) or reader.text("/proc/cpuinfo").or_else("").count("processor\t"))


def _list_size(text: str) -> int:
    """Return how many numbers a kernel list such as `0-3,8` holds; 0 when it is not one."""
    total = 0
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return 0
        total += int(last or first) - int(first) + 1
    return total


def _groups(reader: SysReader) -> dict[str, list[str]]:
    """Return for each controller the directories whose limits bind this process, its own group's first."""
    found: dict[str, list[str]] = {"cpu": [], "cpuset": [], "memory": []}
    for line in reader.text("/proc/self/cgroup").or_else("0::/").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for mount, controllers in _mounts(number, names):
            for controller in set(controllers) & set(found):
                found[controller].extend(_upwards(mount, path))
    return found


def _mounts(number: str, names: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if number == "0" and not names:  # cgroup v2, alone or beside v1
        yield "/sys/fs/cgroup", ("cpu", "cpuset", "memory")
        yield "/sys/fs/cgroup/unified", ("cpu", "cpuset", "memory")
        return
    controllers = tuple(names.split(","))
    yield f"/sys/fs/cgroup/{names}", controllers
    for controller in controllers if len(controllers) > 1 else ():
        yield f"/sys/fs/cgroup/{controller}", (controller,)


def _upwards(mount: str, path: str) -> Iterator[str]:
    """Each group from the process's own up to the mount: a limit of an ancestor binds too.

    Inside a container the path may be that of the host; its directories are then absent,
    the mount itself is ours.
    """
    for group in (PurePosixPath(path), *PurePosixPath(path).parents):
        yield mount + str(group).rstrip("/")


def _quota(reader: SysReader, group: str) -> float | None:
    unified = reader.text(f"{group}/cpu.max").or_else("").split()
    if unified:
        quota, period = unified[0], unified[1] if len(unified) > 1 else "100000"
    else:
        quota = str(reader.integer(f"{group}/cpu.cfs_quota_us").or_else(-1))
        period = str(reader.integer(f"{group}/cpu.cfs_period_us").or_else(100_000))
    if not quota.isdecimal() or not period.isdecimal() or not int(quota) or not int(period):
        return None  # `max`, or −1 in v1
    return int(quota) / int(period)


def _cpuset(reader: SysReader, group: str) -> int:
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        size = _list_size(reader.text(f"{group}/{name}").or_else(""))
        if size:
            return size
    return 0


def _memory(reader: SysReader, groups: list[str]) -> int:
    total = 0
    for line in reader.text("/proc/meminfo").or_else("").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    limits = [
        limit
        for group in groups
        for name in ("memory.max", "memory.limit_in_bytes")
        if 0 < (limit := reader.integer(f"{group}/{name}").or_else(0)) < _NO_LIMIT_BYTES
    ]
    return min([total, *limits]) if total else min(limits, default=0)


def _model(reader: SysReader) -> str:
    for line in reader.text("/proc/cpuinfo").or_else("").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()
    return reader.text("/proc/device-tree/model").or_else(platform.machine() or "processor")
