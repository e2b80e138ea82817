"""Copies of the parts of the exhaustive check, and what of them makes two the same.

Owns what is left out of a comparison: figures for people, and numbers that only name things. Whatever else
differs keeps two states apart.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import deque
from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from operator import attrgetter
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec

from edge_agent.decider import PolicyDecider
from policy.profile import RuntimeProfile
from skerry.identity import PrivateKey
from skerry.link.wire import RowReader

#: Told to people, or drawn from what is compared anyway.
_LEFT_OUT = frozenset(
    {
        *("story", "counts", "_counters", "refused", "down_reason", "changed_at", "round_trips", "alarm"),
        *("index", "_ids", "_requests", "lane_seqs", "_undo", "_journal", "_by_state", "_heap", "bytes_used"),
        *("next_token", "commits", "claims", "revision", "_saved_book", "seen", "boot_id", "starts"),
        *("spoke_first", "cut_off_at"),
        *("event", "events", "last_event", "_sent", "nonces"),
        # held by another name, too
        *("_store", "ledger", "_ledger", "clock", "_clock", "_loop"),
        # the same all the time in this check
        *("enrolment", "device", "inventory", "facts", "limits", "_limits", "_placement", "placement"),
        *("_identity", "_topics", "_coordinator_key", "_training", "_homecoming", "_keys", "fleet"),
    }
)
#: Never changed, or the same in every state of a run.
_FIXED = (
    FunctionType,
    MethodType,
    BuiltinFunctionType,
    ModuleType,
    Random,
    PrivateKey,
    PolicyDecider,
    RuntimeProfile,
    RowReader,
    type,
)
#: What cannot be copied, and need not be: one object each.
_SHARED = (PrivateKey, RowReader)


class Press:
    """Copies parts: presses them into bytes and makes them again, the shared values as the same objects."""

    def __init__(self) -> None:
        """Share nothing yet."""
        self._values: list[object] = []
        self._numbers: dict[int, int] = {}

    def press(self, part: object) -> bytes:
        """Return a part as bytes."""
        out = io.BytesIO()
        pickler = pickle.Pickler(out, protocol=5)
        pickler.dispatch_table = copyreg.dispatch_table | {kind: self._reduce for kind in _SHARED}
        _presses.append(self)
        try:
            pickler.dump(part)
        finally:
            _presses.pop()
        return out.getvalue()

    def make(self, pressed: bytes) -> Any:
        """Return a copy of what was pressed."""
        _presses.append(self)
        try:
            return pickle.loads(pressed)  # pressed here, a moment ago
        finally:
            _presses.pop()

    def value(self, number: int) -> object:
        """Return a shared value."""
        return self._values[number]

    def _reduce(self, value: object) -> tuple[Callable[[int], object], tuple[int]]:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._values)
            self._values.append(value)
        return _value, (number,)


#: The press that is at work: pickle hands no more than the number to what makes a value again.
_presses: list[Press] = []


def _value(number: int) -> object:
    return _presses[-1].value(number)


class _Form(pickle.Pickler):
    """Writes what a part holds by value alone: what is the same has the same form, whoever shares it.

    A pickler without a memory of objects, for it is written in C; nothing is ever read back.
    """

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, protocol=5)
        self.fast = True

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is written that is none of the plain ones."""
        kind = type(value)
        if value is _form:
            return NotImplemented
        if isinstance(value, _FIXED):
            return _form, ()
        if kind is msgspec.Raw:
            return _form, (bytes(value),)
        if isinstance(value, dict):
            return _form, (tuple(sorted(value.items(), key=_key)),)
        if isinstance(value, deque | list | tuple):
            return _form, tuple(value)
        if isinstance(value, Enum):
            return _form, (str(value),)
        fields = [_in_order(field) if type(field) in _TABLES else field for field in _take(kind, value)]
        return _form, (kind.__name__, *fields)


def _form(*value: object) -> None:
    """Stand for a value in a form."""


_TABLES = (dict, set, frozenset)


def _in_order(value: Any) -> Any:
    """Return a table with what is in it in order of its keys: when each was written is no difference."""
    if len(value) < 2:
        return value
    return tuple(sorted(value.items(), key=_key)) if isinstance(value, dict) else sorted(value, key=repr)


def _key(pair: tuple[Any, Any]) -> str:
    key = pair[0]
    return key if type(key) is str else repr(key)


def _take(kind: type, value: Any) -> tuple[Any, ...]:
    """Return the fields that count, in one order."""
    if hasattr(value, "__dict__"):
        fields = vars(value)
        return tuple(fields[name] for name in sorted(fields.keys() - _LEFT_OUT))
    take = _TAKES.get(kind)
    if take is None:
        every = getattr(kind, "__struct_fields__", None) or kind.__slots__  # type: ignore[attr-defined] # one of the two is there
        names = [name for name in every if name not in _LEFT_OUT]
        take = _TAKES[kind] = attrgetter(*names) if len(names) > 1 else lambda one: (getattr(one, names[0]),)
    return take(value)


_TAKES: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def same_as(part: object) -> bytes:
    """Return a digest that two parts have in common only if they will do the same."""
    out = io.BytesIO()
    _Form(out).dump(part)
    return blake2b(out.getbuffer(), digest_size=16).digest()
