"""SQLite's record format: one row's values out of its bytes. Owns what makes a record believable.

For reading a damaged file without SQLite, which gives up a whole page, or table, for one wrong byte in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

Value = int | float | str | bytes | None

_DOUBLE = struct.Struct(">d")
#: Bytes of the values whose type is a number below 12; 10 and 11 are never written to a file.
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)


class Unreadable(Exception):
    """These bytes are not what they should be."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes and where it ends.  Raises Unreadable."""
    value = 0
    try:
        for index in range(8):
            byte = data[at + index]
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value, at + index + 1
        return _signed(value << 8 | data[at + 8]), at + 9
    except IndexError as error:
        raise Unreadable("a number ends behind its page") from error


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def record(payload: bytes) -> list[Value]:
    """Return the values of a record.  Raises Unreadable unless every byte has its place in it."""
    head, at = varint(payload, 0)
    body = head
    values: list[Value] = []
    try:
        while at < head:
            kind, at = (payload[at], at + 1) if payload[at] < 0x80 else varint(payload, at)
            if kind >= 12:
                size = (kind - 12) >> 1
                piece = payload[body : body + size]
                values.append(piece.decode() if kind & 1 else piece)
            else:
                size = _SIZES[kind]
                values.append(_NUMBERS[kind](payload[body : body + size]))
            body += size
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise Unreadable("a value is not of its type") from error
    if at != head or body != len(payload):
        raise Unreadable("the values do not fill their record")
    return values


def _integer(piece: bytes) -> int:
    if not piece:
        raise IndexError("a number without its bytes")
    return int.from_bytes(piece, "big", signed=True)


_NUMBERS: tuple[Callable[[bytes], Value], ...] = (
    lambda _: None,
    *(_integer,) * 6,
    lambda piece: float(_DOUBLE.unpack(piece)[0]),
    lambda _: 0,
    lambda _: 1,
)
