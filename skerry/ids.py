"""Identifiers: time-ordered task ids, and the names that may stand in a topic.

Owns their form and validation; knows nothing of what they name.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from typing import NewType

from skerry.errors import SpecError

#: 32 lower-case hex digits: 48 bits of milliseconds, then 80 random bits. Its text order is its time order.
TaskId = NewType("TaskId", str)

_TASK_ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def parse_task_id(text: str) -> TaskId:
    """Return text as a TaskId.  Raises SpecError when it is not 32 lower-case hex digits."""
    if not _TASK_ID.fullmatch(text):
        raise SpecError(f"{text[:64]!r} is not a task id: 32 hex digits are", field="task_id")
    return TaskId(text)


def check_name(name: str, *, what: str) -> str:
    """Return name when it may stand in a topic (a-z, 0-9, inner hyphens, to 64); else raise SpecError."""
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"{what} {name[:80]!r} is not valid: use 1 to 64 of a-z, 0-9 and inner hyphens", field=what
        )
    return name


def content_hash(data: bytes) -> str:
    """Return the name under which content stores hold these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_content_hash(text: str) -> bool:
    """Decide whether text has the form `sha256:<64 hex digits>`."""
    return _SHA256.fullmatch(text) is not None


class TaskIdSource:
    """Makes ids that never go backwards, even when the wall clock does.

    wall_s: reads seconds since 1970.  floor_ms: the highest millisecond already used (kept by the store).
    """

    def __init__(
        self,
        wall_s: Callable[[], float],
        *,
        floor_ms: int = 0,
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        """Start above floor_ms."""
        self._wall_s = wall_s
        self._last_ms = floor_ms
        self._random_bits = random_bits
        self._tail = 0

    def next(self) -> TaskId:
        """Return an id greater than every id this source returned before."""
        ms = max(int(self._wall_s() * 1000), self._last_ms)
        fresh = ms > self._last_ms or self._tail == 0
        self._tail = self._random_bits(79) + 1 if fresh else self._tail + 1 + self._random_bits(32)
        self._last_ms = ms
        return TaskId(f"{ms & (1 << 48) - 1:012x}{self._tail:020x}")


def millisecond_of(task_id: TaskId) -> int:
    """Return the millisecond part of the id: what a new TaskIdSource takes as its floor."""
    return int(task_id[:12], 16)
