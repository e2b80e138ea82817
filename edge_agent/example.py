"""The commented settings file, made from the settings' own sources so that it cannot say anything else."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from edge_agent.settings import AgentSettings

_FIELD = re.compile(r"    (\w+): .*?(?:  #: (.*))?$")
_NOTE = re.compile(r"    #: (.*)$")

HEAD = """\
# Settings of a Skerry agent. Every line that is commented out shows the default.
# The environment counts more: SKERRY_AGENT__NODE__NAME=edge-7 sets node.name.
"""


def example_toml(values: Mapping[str, Any] | None = None) -> str:
    """Return the settings file with every setting, its meaning and its default.

    values: dotted names to values that are set rather than shown as a default.
    """
    given = dict(values or {})
    lines = [HEAD, *_table(AgentSettings, AgentSettings(), "", given)]
    assert not given, f"unknown settings: {sorted(given)}"
    return "\n".join(lines) + "\n"


def _table(kind: type[msgspec.Struct], value: Any, at: str, given: dict[str, Any]) -> Iterator[str]:
    notes = _notes(kind)
    inner = []
    for name in kind.__struct_fields__:
        default = getattr(value, name)
        if isinstance(default, msgspec.Struct):
            inner.append((name, default))
        else:
            yield from _setting(f"{at}{name}", name, default, notes.get(name, ""), given)
    for name, default in inner:
        yield ""
        yield from (f"# {line}" for line in _summary(type(default)))
        yield f"[{at}{name}]"
        yield from _table(type(default), default, f"{at}{name}.", given)


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


def _own_notes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Read the notes in the class's own source, above a field or behind it."""
    notes: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if note := _NOTE.match(line):
            above.append(note[1])
        elif field := _FIELD.match(line):
            notes[field[1]] = " ".join([*above, *filter(None, [field[2]])])
            above = []
    return notes


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
