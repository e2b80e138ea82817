"""The one reader of /sys and /proc.

Owns paths, size caps and the wording of failures; knows nothing of devices.

A reading is a value or a reason, never a default number and never an exception: sensors that answer EINVAL,
EIO or nothing at all are everyday cases.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

#: No file of /sys or /proc that we read is longer; a longer one is cut, bytes.
READ_LIMIT_BYTES = 1 << 20

_WORDS = {
    errno.ENOENT: "not present",
    errno.ENOTDIR: "not present",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A value, or the reason why there is none."""

    value: T | None
    reason: str = ""

    def or_else(self, default: T) -> T:
        """Return the value, or default when there is none."""
        return default if self.value is None else self.value


class SysReader:
    """Reads files below root.

    root: `/`, or a tree of a board's files.  faults: absolute path → errno, to act a sensor that fails.
    """

    def __init__(self, root: Path = Path("/"), faults: Mapping[str, int] | None = None) -> None:
        """Read below root."""
        self._root = root
        self._faults = dict(faults or {})

    def data(self, path: str) -> Reading[bytes]:
        """Return the bytes of an absolute path, at most READ_LIMIT_BYTES."""
        try:
            with open(self._resolve(path), "rb", buffering=0) as file:
                return Reading(_read_all(file.fileno()))
        except OSError as error:
            return Reading(None, _reason(path, error))

    def text(self, path: str) -> Reading[str]:
        """Return the text of a path without its trailing NULs and white space; an empty file is a reason."""
        raw = self.data(path)
        if raw.value is None:
            return Reading(None, raw.reason)
        text = raw.value.decode("utf-8", "replace").strip("\0 \t\r\n")
        return Reading(text) if text else Reading(None, f"{path}: empty")

    def integer(self, path: str) -> Reading[int]:
        """Return the decimal or 0x-prefixed number in a path."""
        text = self.text(path)
        if text.value is None:
            return Reading(None, text.reason)
        try:
            return Reading(int(text.value, 0))
        except ValueError:
            return Reading(None, f"{path}: {text.value[:40]!r} is not a number")

    def names(self, path: str) -> Reading[tuple[str, ...]]:
        """Return the sorted names in a directory."""
        try:
            return Reading(tuple(sorted(os.listdir(self._resolve(path)))))
        except OSError as error:
            return Reading(None, _reason(path, error))

    def target(self, path: str) -> Reading[str]:
        """Return where a symbolic link points, as it is written."""
        try:
            return Reading(os.readlink(self._resolve(path)))
        except OSError as error:
            return Reading(None, _reason(path, error))

    def exists(self, path: str) -> bool:
        """Decide whether something is there; unreadable counts as there."""
        return os.path.lexists(self._root / path.lstrip("/"))

    def _resolve(self, path: str) -> Path:
        if path in self._faults:
            number = self._faults[path]
            raise OSError(number, os.strerror(number))
        return self._root / path.lstrip("/")


def _read_all(fd: int) -> bytes:
    parts = bytearray()
    while len(parts) < READ_LIMIT_BYTES:
        part = os.read(fd, READ_LIMIT_BYTES - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)


def _reason(path: str, error: OSError) -> str:
    return f"{path}: {_WORDS.get(error.errno or 0, error.strerror or 'unreadable')}"
