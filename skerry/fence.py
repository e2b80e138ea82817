"""Fencing tokens: which attempt may commit. Owns their order; knows nothing of who issues them.

Only a task's home issues placements. A coordinator's path is (term, placement number); a nested coordinator
appends below the placement it holds. An agent that never let go of a task uses the empty path.
"""

from __future__ import annotations

import msgspec

from skerry.decoding import Number
from skerry.errors import SpecError


class Fence(msgspec.Struct, frozen=True, order=False):
    """A placement path and an attempt number, compared lexicographically."""

    path: tuple[Number, ...] = ()
    attempt: Number = 0

    def _key(self) -> tuple[tuple[int, ...], int]:
        return (self.path, self.attempt)

    def __lt__(self, other: Fence) -> bool:
        """Order by path, then by attempt: a longer path is above its own prefix."""
        return self._key() < other._key()

    def __le__(self, other: Fence) -> bool:
        """Order as __lt__, or equal."""
        return self._key() <= other._key()

    def is_under(self, placement: Fence) -> bool:
        """Decide whether this attempt was made under that placement."""
        return self.path[: len(placement.path)] == placement.path

    def with_attempt(self, attempt: int) -> Fence:
        """Return the token of an attempt under this placement."""
        return Fence(self.path, attempt)

    def __str__(self) -> str:
        """Return for example `3.17/2`: term 3, placement 17, attempt 2; `-/1` without a placement."""
        path = ".".join(map(str, self.path)) if self.path else "-"
        return f"{path}/{self.attempt}"


def parse_fence(text: str) -> Fence:
    """Return the token that str() wrote.  Raises SpecError on any other text."""
    path, slash, attempt = text.partition("/")
    try:
        parts = () if path == "-" else tuple(int(part) for part in path.split("."))
        return Fence(parts, int(attempt if slash else "x"))
    except ValueError as error:
        raise SpecError(f"{text[:64]!r} is not a fencing token", field="fence") from error
