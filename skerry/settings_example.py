"""The commented settings file, made from the settings' own sources so that it cannot say anything else.

Owns the layout of the file. Knows no process's settings: each hands in its own.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_FIELD = re.compile(r"    (\w+): .*?(?:  #: (.*))?$")
_NOTE = re.compile(r"    #: (.*)$")


def commented_toml(defaults: msgspec.Struct, head: str, values: Mapping[str, Any] | None = None) -> str:
    """Return a settings file with every setting, its meaning and its default behind a `#`.

    defaults: the settings of a process with nothing given.  head: the file's first lines.
    values: dotted names to values that are set rather than shown as a default.
    """
    given = dict(values or {})
    lines = [head, *_table(defaults, "", given)]
    assert not given, f"unknown settings: {sorted(given)}"
    return "\n".join(lines) + "\n"


def _table(table: msgspec.Struct, at: str, given: dict[str, Any]) -> Iterator[str]:
    notes = _notes(type(table))
    inner: list[tuple[str, msgspec.Struct]] = []
    for name in table.__struct_fields__:
        default = getattr(table, name)
        if isinstance(default, msgspec.Struct):
            inner.append((name, default))
        else:
            yield from _setting(f"{at}{name}", name, default, notes.get(name, ""), given)
    for name, value in inner:
        yield ""
        yield from (f"# {line}" for line in _summary(type(value)))
        yield f"[{at}{name}]"
        yield from _table(value, f"{at}{name}.", given)


def _setting(dotted: str, name: str, default: Any, note: str, given: dict[str, Any]) -> Iterator[str]:
    if note:
        yield f"# {note}"
    if dotted in given:
        yield f"{name} = {_toml(given.pop(dotted))}"
    elif default is None:
        yield f"# ({name} is not set)"
    else:
        yield f"#{name} = {_toml(default)}"


def _notes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Read the `#:` notes of each field, those it inherits among them."""
    notes: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            notes.update(_own_notes(base))
    return notes


def _own_notes(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Yield the notes in the class's own source, above a field or behind it."""
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if note := _NOTE.match(line):
            above.append(note[1])
        elif field := _FIELD.match(line):
            yield field[1], " ".join([*above, *filter(None, [field[2]])])
            above = []


def _summary(kind: type[msgspec.Struct]) -> list[str]:
    return [line.strip() for line in (kind.__doc__ or "").strip().splitlines() if line.strip()]


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items())}}}"
        case _:
            raise AssertionError(f"a setting of type {type(value).__name__}")
