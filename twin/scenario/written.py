"""A scenario as a TOML file: what a search has found, to be kept and read. The inverse of language.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from twin.scenario.language import Scenario


def write_scenario(scenario: Scenario) -> str:
    """Return a file that parses to this scenario; what is as usual is left out."""
    plain, tables = [], []
    for name, value in _told(scenario):
        if isinstance(value, msgspec.Struct):
            tables.append(_table(f"[{name}]", value))
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            tables += [_table(f"[[{name}]]", row) for row in value]
        else:
            plain.append(f"{name} = {_value(value)}")
    return "\n\n".join(["\n".join(plain), *tables]) + "\n"


def _table(head: str, struct: msgspec.Struct) -> str:
    config = struct.__struct_config__
    kind = [f'{config.tag_field} = "{config.tag}"'] if config.tag is not None else []
    return "\n".join([head, *kind, *(f"{name} = {_value(value)}" for name, value in _told(struct))])


def _told(struct: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        is_usual = field.default is not msgspec.NODEFAULT and value == field.default
        is_empty = field.default_factory is not msgspec.NODEFAULT and not value
        if not is_usual and not is_empty:
            yield field.name, value


def _value(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's as well."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_value(one)}" for name, one in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
