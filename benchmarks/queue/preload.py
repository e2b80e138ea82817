"""What is loaded before libc in a measuring process: nothing, slow syncs, or no syncs at all.

Owns how the shim is compiled and how its counters are read; knows nothing of queues.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.harness import BenchmarkError

SHIM_SOURCE = Path(__file__).with_name("sync_shim.c")
#: How long each sync lasts at least with Disk.SLOW, microseconds: a decent memory card.
PAD_US = 4000
_PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib")


class Disk(StrEnum):
    """What a sync costs in a measuring process."""

    RAW = "raw"  #: what it costs on the disk at hand
    SLOW = "slow"  #: at least PAD_US, by the shim
    NONE = "none"  #: nothing, by libeatmydata: what is left is processor time


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the shim has counted in this process; zeros without the shim."""

    syncs: int = 0
    log_bytes: int = 0  #: to files whose names end in -wal or -journal
    other_bytes: int = 0


def environment(disk: Disk, directory: Path) -> dict[str, str]:
    """Return the environment of a measuring process.  Raises BenchmarkError when gcc or eatmydata lack."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if disk is Disk.NONE:
        return {**plain, "LD_PRELOAD": str(eatmydata())}
    pad_us = PAD_US if disk is Disk.SLOW else 0
    return {**plain, "LD_PRELOAD": str(shim(directory)), "SKERRY_SYNC_PAD_US": str(pad_us)}


def shim(directory: Path) -> Path:
    """Return the compiled shim, made in `directory` when it is not there."""
    name = hashlib.sha256(SHIM_SOURCE.read_bytes()).hexdigest()[:16]
    library = directory / f"sync_shim-{name}.so"
    if library.exists():
        return library
    compiler = shutil.which("gcc")
    if compiler is None:
        raise BenchmarkError("gcc is not installed, and the shim that slows syncs down is compiled with it")
    directory.mkdir(parents=True, exist_ok=True)
    fresh = library.with_suffix(f".{os.getpid()}")
    words = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(fresh), str(SHIM_SOURCE), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkError(f"the shim could not be compiled: {done.stderr.strip()[-500:]}")
    fresh.replace(library)
    return library


def eatmydata() -> Path:
    """Return the library that makes syncs do nothing."""
    for place in _PLACES:
        for pattern in ("libeatmydata.so*", "*/libeatmydata.so*", "libeatmydata/libeatmydata.so*"):
            for found in sorted(Path(place).glob(pattern)):
                return found
    raise BenchmarkError("libeatmydata is not installed; on Debian: apt-get install eatmydata")


def counts() -> Counts:
    """Return what this process has synced and written since it began."""
    try:
        ask = ctypes.CDLL(None).sync_shim_counts
    except AttributeError:
        return Counts()
    numbers = (ctypes.c_uint64 * 3)()
    ask(numbers)
    return Counts(syncs=numbers[0], log_bytes=numbers[1], other_bytes=numbers[2])
