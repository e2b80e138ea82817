"""Giving memory back loses nothing: what is dropped comes back as it was, and what is ours alone stays."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mappings are read from Linux's /proc")

HEAD = """
import json, os
from skerry.lean import give_back

def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""


def run(code: str) -> Any:
    """Run code in a process of its own; return the value that it prints."""
    words = [sys.executable, "-c", HEAD + code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_code_that_is_dropped_makes_room_and_runs_again_as_before() -> None:
    found = run("""
import aiohttp.web, numpy, onnxruntime
from skerry.identity import PrivateKey, parse_public_key
key = PrivateKey.generate()
before = key.sign(b"said"), numpy.linalg.inv(numpy.eye(3) * 2).tolist()
full = rss()
give_back()
small = rss()
after = key.sign(b"said"), numpy.linalg.inv(numpy.eye(3) * 2).tolist()
print(json.dumps({"full": full, "small": small, "same": before == after}))
""")

    assert found["same"]
    assert found["small"] < found["full"] - 5_000_000


def test_code_that_was_changed_in_memory_is_left_as_it_is() -> None:
    found = run("""
import ctypes, mmap, sys, tempfile
with tempfile.TemporaryFile() as file:
    file.write(b"as the file has it".ljust(2 * mmap.PAGESIZE, b"."))
    file.flush()
    def mapped():
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    changed, same = mapped(), mapped()
    changed[:4] = b"ours"
    libc = ctypes.CDLL(None, use_errno=True)
    for one in (changed, same):
        address = ctypes.addressof(ctypes.c_char.from_buffer(one))
        size = ctypes.c_size_t(len(one))
        assert libc.mprotect(ctypes.c_void_p(address), size, mmap.PROT_READ | mmap.PROT_EXEC) == 0
    give_back()
    print(json.dumps([bytes(changed[:18]).decode(), bytes(same[:18]).decode()]))
""")

    assert found == ["ourshe file has it", "as the file has it"]


def test_what_later_imports_leave_behind_is_given_back_too() -> None:
    found = run("""
import asyncio
from skerry.lean import stay_small

async def main():
    loop, chore = asyncio.get_running_loop(), asyncio.create_task(stay_small())
    await asyncio.sleep(0.1)  # its first time is over, or it is on its way
    import numpy, onnxruntime
    full, until = rss(), loop.time() + 30
    while rss() > full - 5_000_000 and loop.time() < until:
        await asyncio.sleep(0.1)  # it works in its own time; polled with a deadline
    chore.cancel()
    return full - rss()

print(asyncio.run(main()))
""")

    assert found >= 5_000_000
