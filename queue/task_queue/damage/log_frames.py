"""The write-ahead log, frame by frame: which belong to commits, which are damaged, what a flipped bit was.

SQLite stops at the first frame whose checksum is wrong, and forgets every commit behind it. A power cut tears
a log only within its last commit, of which nobody was told: each is synced before the next is written. So a
wrong frame with a whole commit behind it is damage, and what lies behind it counts.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

HEADER_BYTES = 32
FRAME_HEAD_BYTES = 24
_MAGIC = 0x377F0682  #: its lowest bit says in which byte order the checksums are reckoned
_HEAD = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MASK = 0xFFFFFFFF

Sum = tuple[int, int]


@dataclass(frozen=True)
class Frame:
    """One page as a commit wrote it. size: pages of the database after the commit that ends here, else 0."""

    page: int
    size: int
    content: bytes


@dataclass(frozen=True)
class Log:
    """The frames of every commit. is_damaged: SQLite would pass over some of them."""

    frames: tuple[Frame, ...] = ()
    is_damaged: bool = False


@dataclass(frozen=True)
class _Keys:
    """What the head says: the byte order of checksums, the salts of this use of the file, the first seed."""

    little: bool
    salts: Sum
    seed: Sum | None


def read_log(path: Path, page_bytes: int) -> Log:
    """Return the commits of a log, with single flipped bits put right; empty without one.  Raises OSError."""
    data = path.read_bytes() if path.exists() else b""
    stride = FRAME_HEAD_BYTES + page_bytes
    frames = [data[at : at + stride] for at in range(HEADER_BYTES, len(data) - stride + 1, stride)]
    if not frames:
        return Log()
    keys = _keys(data[:HEADER_BYTES])
    return _follow(frames, keys or _guess(frames), is_damaged=keys is None)


def pages_in(path: Path, page_bytes: int) -> set[int]:
    """Return the numbers of the pages that a log names, in any of its frames."""
    stride = FRAME_HEAD_BYTES + page_bytes
    found: set[int] = set()
    if path.exists():
        with path.open("rb", buffering=0) as file:
            for at in range(HEADER_BYTES, path.stat().st_size - stride + 1, stride):
                file.seek(at)
                found.add(int.from_bytes(file.read(4), "big"))
    return found


def goes_on_behind(path: Path, page_bytes: int, valid_frames: int) -> bool:
    """Decide whether a log may have commits behind the frames that SQLite takes: read_log settles it.

    Reads the heads of frames only.
    """
    stride = FRAME_HEAD_BYTES + page_bytes
    try:
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            if size < HEADER_BYTES + stride:
                return False
            keys = _keys(file.read(HEADER_BYTES))
            if keys is None:
                return True
            for at in range(HEADER_BYTES + valid_frames * stride, size - stride + 1, stride):
                file.seek(at)
                salts = _FRAME.unpack(file.read(FRAME_HEAD_BYTES))[2:4]
                if salts[0] == keys.salts[0] or salts[1] == keys.salts[1]:
                    return True
    except FileNotFoundError:
        return False
    return False


def _keys(head: bytes) -> _Keys | None:
    """Return what the head says, None when it is damaged."""
    magic, _, _, _, salt_1, salt_2, first, second = _HEAD.unpack(head)
    little = not magic & 1
    if magic & ~1 != _MAGIC or checksum(head[:24], (0, 0), little=little) != (first, second):
        return None
    return _Keys(little, (salt_1, salt_2), (first, second))


def _guess(frames: list[bytes]) -> _Keys:
    """Return the same for a damaged head, from the frames behind it."""
    heads = [_FRAME.unpack_from(frame) for frame in frames[:3]]
    salts = heads[-1][2:4] if len(heads) == 3 and heads[1][2:4] == heads[2][2:4] else heads[0][2:4]
    for little in (True, False):
        for before, frame in zip(heads, frames[1:], strict=False):
            if _sum_of(frame, before[4:6], little=little) == _FRAME.unpack_from(frame)[4:6]:
                return _Keys(little, salts, None)
    return _Keys(True, salts, None)


def _follow(frames: list[bytes], keys: _Keys, *, is_damaged: bool) -> Log:
    """Follow the chain of checksums through every commit, past frames that break it."""
    taken: list[Frame] = []
    ends: list[int] = []  #: how many frames are taken with each commit
    broken: list[int] = []  #: frames whose content does not fit their sum …
    mended: list[int] = []  #: … and those that were put right
    seed = keys.seed
    own = [n for n, frame in enumerate(frames) if _FRAME.unpack_from(frame)[2:4] == keys.salts]
    last = own[-1] if own else -1
    for number, (frame, following) in enumerate(zip(frames, [*frames[1:], b""], strict=True)):
        stored, salts = _FRAME.unpack_from(frame)[4:6], _FRAME.unpack_from(frame)[2:4]
        computed = stored if seed is None else _sum_of(frame, seed, little=keys.little)
        if salts != keys.salts:
            if seed is None or computed != stored:
                if number > last:
                    break  # of an earlier use of the file, or never written
                broken.append(len(taken))  # its head is gone: nobody knows which page it was
                taken.append(Frame(0, 0, b""))
                seed = None
                continue
            mended.append(len(taken))
        if computed != stored:
            repaired = _repaired(frame, computed, stored, following, little=keys.little)
            if repaired is not None:
                frame, stored = repaired
            (broken if repaired is None else mended).append(len(taken))
        seed = stored
        page, size = _FRAME.unpack_from(frame)[:2]
        taken.append(Frame(page, size, frame[FRAME_HEAD_BYTES:]))
        if size:
            ends.append(len(taken))
    upto = _last_commit(ends, broken)
    is_damaged = is_damaged or any(number < upto for number in (*broken, *mended))
    return Log(tuple(taken[:upto]), upto > 0 and is_damaged)


def _last_commit(ends: list[int], broken: list[int]) -> int:
    """Return how many frames count: commits in front of a broken frame, and those behind whole ones.

    A cut in the middle of a commit leaves broken frames, and what earlier cuts left lies behind them: only a
    commit all of whose frames fit the ones before shows that the broken one in front of it was synced.
    """
    first = broken[0] if broken else sys.maxsize
    counted = max((end for end in ends if end <= first), default=0)
    for begin, end in pairwise(ends):
        if begin > first and not any(begin <= number < end for number in broken):
            counted = end
    return counted


def checksum(data: bytes, seed: Sum, *, little: bool) -> Sum:
    """Return SQLite's running checksum over data, a multiple of eight bytes long."""
    first, second = seed
    words = struct.unpack(f"{'<' if little else '>'}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second


def _sum_of(frame: bytes, seed: Sum, *, little: bool) -> Sum:
    return checksum(_summed(frame), seed, little=little)


def _summed(frame: bytes) -> bytes:
    return frame[:8] + frame[FRAME_HEAD_BYTES:]


def _repaired(
    frame: bytes, computed: Sum, stored: Sum, following: bytes, *, little: bool
) -> tuple[bytes, Sum] | None:
    """Return the frame with the one bit put right that explains both sums, and the sum to go on from."""
    off = ((stored[0] - computed[0]) & _MASK, (stored[1] - computed[1]) & _MASK)
    if 0 in off and not _follows(following, stored, little=little):  # the sum itself was hit, in one word
        word = stored[0] ^ computed[0] or stored[1] ^ computed[1]
        if word.bit_count() == 1:
            return frame, computed
    words = list(struct.unpack(f"{'<' if little else '>'}{len(frame) // 4 - 4}I", _summed(frame)))
    changes = _changes_of(words, off)
    if not changes:
        return None
    if len(changes) == 1:  # the sums tell the highest bits of many words not apart: those stay as they are
        words[changes[0][0]] = changes[0][1]
    summed = struct.pack(f"{'<' if little else '>'}{len(words)}I", *words)
    return summed[:8] + frame[8:FRAME_HEAD_BYTES] + summed[8:], stored


def _follows(frame: bytes, seed: Sum, *, little: bool) -> bool:
    return bool(frame) and _sum_of(frame, seed, little=little) == _FRAME.unpack_from(frame)[4:6]


def _changes_of(words: list[int], off: Sum) -> list[tuple[int, int]]:
    """Return which word could have which value for the sums to move by `off`, where one bit differs."""
    found: list[tuple[int, int]] = []
    one, other = 1, 1  # by how much both sums move with the even word of the last pair …
    alone, rest = 0, 1  # … and with its odd word
    lowest = _trailing_zeros(off[0] or off[1])
    for pair in range(len(words) - 2, -1, -2):
        for index, (first, second) in ((pair, (one, other)), (pair + 1, (alone, rest))):
            bit = lowest - _trailing_zeros(first if off[0] else second)
            if 0 <= bit < 32:
                step = 1 << bit if not words[index] >> bit & 1 else -(1 << bit)
                if (step * first & _MASK, step * second & _MASK) == off:
                    found.append((index, words[index] + step))
        one, other = _onward(one, other)
        alone, rest = _onward(alone, rest)
    return found


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else 32


def _onward(first: int, second: int) -> Sum:
    first = (first + second) & _MASK
    return first, (second + first) & _MASK
