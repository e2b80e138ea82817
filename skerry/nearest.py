"""What is known where a document is wrong: the nearest name of a field, the choices of a value.

Reads the types that the document was checked against.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")


def name_nearest(kind: type[msgspec.Struct], message: str, path: str) -> str:
    """Return a validation message with what is known there: the nearest name, or all; a value's choices.

    path: where the object, or the value, is, dotted, from the document's root; empty for the root.
    """
    if message.startswith("Invalid enum value"):
        return f"{message}; known here: {', '.join(_choices_at(kind, path))}"
    found = _UNKNOWN.search(message)
    if found is None:
        return message
    at = f"{path}." if path else ""
    names = sorted({name for struct in _structs_at(kind, path) for name in _names(struct)})
    near = difflib.get_close_matches(found["name"], names, n=1, cutoff=0.5)
    hint = f"did you mean {at}{near[0]}?" if near else f"known here: {', '.join(names)}"
    return f"unknown field {at}{found['name']}; {hint}"


def _names(struct: type[msgspec.Struct]) -> list[str]:
    tag = struct.__struct_config__.tag_field
    return [*struct.__struct_encode_fields__, *([tag] if tag else [])]


def _structs_at(kind: type[msgspec.Struct], path: str) -> set[type[msgspec.Struct]]:
    """The structs that may stand at the path; indexes in it are passed over, as containers are."""
    here = {kind}
    for step in _steps(path):
        hints = [get_type_hints(struct).get(step) for struct in here]
        here = {struct for hint in hints if hint is not None for struct in _structs_in(hint)}
    return here


def _structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs_in(inner)


def _steps(path: str) -> list[str]:
    return re.findall(r"[^.\[\]]+", re.sub(r"\[[^\]]*\]", "", path))


def _choices_at(kind: type[msgspec.Struct], path: str) -> list[str]:
    *parents, last = _steps(path)
    hints = [get_type_hints(struct).get(last) for struct in _structs_at(kind, ".".join(parents))]
    return [choice for hint in hints for choice in _choices_in(hint)]


def _choices_in(hint: Any) -> Iterator[str]:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        yield from (str(member.value) for member in hint)
    elif get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    else:
        for inner in get_args(hint):
            yield from _choices_in(inner)
