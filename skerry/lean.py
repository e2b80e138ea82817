"""What keeps a long-running process small. Owns economies of memory only; each says what it saves."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOWHERE = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
_LOOK_EVERY_S = 0.5
_SMAPS = Path("/proc/self/smaps")
#: Where the lines about one mapping begin in smaps.
_MAPPING = re.compile(r"^(?=[0-9a-f]+-[0-9a-f]+ )", re.MULTILINE)
#: Code that is mapped from a file, and of which this process has no page of its own, in memory or swapped.
_CODE = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ [1-9].*\n(?:.*\n)*Anonymous: +0 kB\n(?:.*\n)*Swap: +0 kB\n"
)


@contextmanager
def no_system_certificates() -> Iterator[None]:
    """Import aiohttp inside this block: it then does not load the system's CA certificates at import (2 MB).

    Every TLS connection of ours brings a context of its own, made later, so the default one is never used.
    """
    before = {name: os.environ.get(name) for name in _NOWHERE}
    os.environ.update(_NOWHERE)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


async def stay_small() -> None:
    """Give back what the start has left behind, now and whenever imports that came later are over.

    Never returns. An idle agent keeps 12 MB less by it, one with a policy 35 MB.
    """
    await asyncio.to_thread(give_back)
    before = given_back = 0
    while True:
        now = len(sys.modules)
        if now == before != given_back:
            given_back = now
            await asyncio.to_thread(give_back)
        before = now
        await asyncio.sleep(_LOOK_EVERY_S)


def give_back() -> None:
    """Drop the libraries' code from this process, and the heap that is free. What cannot be dropped stays.

    Importing runs code all over a library once, and the kernel maps 64 KB around every page that is touched.
    What runs again is mapped again at its first instruction, from the page cache or the file. Code of which a
    page was changed in memory (by a relocation, by a debugger) is left alone: the file does not have that.
    """
    import ctypes  # 0.6 MB: only for processes that stay
    import mmap

    libc = ctypes.CDLL(None)
    for address, size in _code():
        libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
    if hasattr(libc, "malloc_trim"):  # glibc's alone
        libc.malloc_trim(0)


def _code() -> Iterator[tuple[int, int]]:
    """Yield address and size of every mapping that can be dropped without loss."""
    try:
        text = _SMAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system, or a kernel without it
        return
    for mapping in _MAPPING.split(text):
        if found := _CODE.match(mapping):
            begin, end = (int(bound, 16) for bound in found.groups())
            yield begin, end - begin
