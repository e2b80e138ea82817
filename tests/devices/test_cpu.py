"""The processor as trees of files show it: plain machine, cgroup v1 and v2 limits, masked files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devices.cpu import CpuCapacity, read_capacity
from devices.discovery import discover
from devices.reader import SysReader
from devices.settings import DeviceSettings

GIB = 1 << 30
MACHINE_ID = "0" * 32


def a_machine(root: Path, cpus: int, files: dict[str, str]) -> SysReader:
    """Write a machine with this many processors and 16 GiB; files override or add, an empty text removes."""
    allowed = f"0-{cpus - 1}"
    base = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Test Processor 9\n",
        "proc/meminfo": f"MemTotal:       {16 * GIB // 1024} kB\nMemFree: 1 kB\n",
        "proc/self/status": f"Name:\tagent\nCpus_allowed_list:\t{allowed}\n",
        "proc/self/cgroup": "0::/\n",
        "sys/devices/system/cpu/online": allowed,
        "sys/devices/system/node/online": "0",
        "etc/machine-id": MACHINE_ID,
    }
    for name, text in (base | files).items():
        if text:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return SysReader(root)


def test_a_plain_virtual_machine_has_what_it_shows(tmp_path: Path) -> None:
    found = read_capacity(a_machine(tmp_path, 2, {}))

    assert found == CpuCapacity(
        cpus=2, millicores=2000, memory_bytes=16 * GIB, model="Test Processor 9", numa_nodes=1
    )


def test_a_cgroup_v2_quota_of_two_and_a_half_cpus_on_64(tmp_path: Path) -> None:
    reader = a_machine(
        tmp_path,
        64,
        {
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/memory.max": str(2 * GIB),
            "sys/devices/system/node/online": "0-1",
        },
    )

    found = read_capacity(reader)

    assert (found.cpus, found.millicores, found.memory_bytes, found.numa_nodes) == (3, 2500, 2 * GIB, 2)


def test_a_limit_of_an_ancestor_binds_too(tmp_path: Path) -> None:
    reader = a_machine(
        tmp_path,
        8,
        {
            "proc/self/cgroup": "0::/system.slice/skerry.service\n",
            "sys/fs/cgroup/system.slice/skerry.service/cpu.max": "max 100000",
            "sys/fs/cgroup/system.slice/cpu.max": "150000 100000",
            "sys/fs/cgroup/system.slice/memory.max": str(GIB),
            "sys/fs/cgroup/system.slice/skerry.service/memory.max": "max",
        },
    )

    found = read_capacity(reader)

    assert (found.cpus, found.millicores, found.memory_bytes) == (2, 1500, GIB)


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_a_cgroup_v1_quota(tmp_path: Path, mount: str) -> None:
    reader = a_machine(
        tmp_path,
        16,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n",
            f"sys/fs/cgroup/{mount}/docker/abc/cpu.cfs_quota_us": "400000",
            f"sys/fs/cgroup/{mount}/docker/abc/cpu.cfs_period_us": "100000",
            f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": str(3 * GIB),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )

    found = read_capacity(reader)

    assert (found.cpus, found.millicores, found.memory_bytes) == (4, 4000, 3 * GIB)


def test_a_container_that_sees_the_hosts_path_finds_its_limit_at_the_mount(tmp_path: Path) -> None:
    reader = a_machine(
        tmp_path,
        16,
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )

    found = read_capacity(reader)

    assert (found.cpus, found.millicores) == (1, 500)


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("sys/fs/cgroup/cpuset.cpus.effective", "0::/"),
        ("sys/fs/cgroup/cpuset/cpuset.cpus", "3:cpuset:/\n0::/"),
    ],
)
def test_a_cpuset_binds(tmp_path: Path, path: str, group: str) -> None:
    found = read_capacity(a_machine(tmp_path, 8, {path: "2-3,6\n", "proc/self/cgroup": group}))

    assert (found.cpus, found.millicores) == (3, 3000)


def test_the_affinity_binds(tmp_path: Path) -> None:
    status = {"proc/self/status": "Cpus_allowed_list:\t4\n"}

    assert read_capacity(a_machine(tmp_path, 8, status)).cpus == 1


def test_masked_files_leave_a_usable_processor(tmp_path: Path) -> None:
    faults = dict.fromkeys(
        ("/proc/cpuinfo", "/proc/self/cgroup", "/sys/devices/system/node/online", "/etc/machine-id"), 13
    )
    a_machine(tmp_path, 4, {})

    inventory = discover(DeviceSettings(), SysReader(tmp_path, faults))

    assert [device.device_class for device in inventory.devices] == ["cpu"]
    assert inventory.cpu_millicores == 4000
    assert inventory.devices[0].usable


@pytest.mark.parametrize("text", ["garbage", "100000 0", "-5 100000", "max", "0 100000"])
def test_a_quota_that_makes_no_sense_limits_nothing(tmp_path: Path, text: str) -> None:
    assert read_capacity(a_machine(tmp_path, 4, {"sys/fs/cgroup/cpu.max": text})).millicores == 4000


def test_this_machine_is_found_for_real() -> None:
    found = read_capacity(SysReader())

    assert 1 <= found.cpus <= len(os.sched_getaffinity(0))
    assert 0 < found.millicores <= found.cpus * 1000
    assert 1 << 26 < found.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found.model
