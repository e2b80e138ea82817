"""Settings: defaults < TOML < environment < flags, built once in a process's `__main__` and passed down.

Owns reading and merging; each process owns its own struct of settings. Unknown keys are refused with the
nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from skerry.decoding import parse_toml
from skerry.errors import SettingsError
from skerry.nearest import name_nearest

S = TypeVar("S", bound=msgspec.Struct)


def load_settings(
    kind: type[S],
    *,
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    prefix: str = "",
    flags: Mapping[str, Any] | None = None,
) -> S:
    """Return the settings of one process.

    environ: `<prefix>MQTT__HOST=…` sets `mqtt.host`; prefix is the process's own, for
        example `SKERRY_AGENT__`; empty: not read.  flags: dotted names to values; None means not given.
    Raises SettingsError that names the file, the key and, for an unknown key, the nearest known one.
    """
    where = str(path) if path else "the command line"
    merged = _read_toml(path) if path else {}
    _refuse_unknown(kind, merged, where)
    for name, value in _environment(environ or {}, prefix) if prefix else ():
        _refuse_unknown(kind, _nested(name, value), f"the environment ({prefix}{name.upper()})")
        _put(merged, name, value)
    for name, value in (flags or {}).items():
        if value is not None:
            _put(merged, name, value)
    try:
        return msgspec.convert(merged, type=kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        field = at.rstrip("`").lstrip(".")
        raise SettingsError(
            f"{where}: {field or 'settings'}: {name_nearest(kind, message, field)}"
        ) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_bytes(), str(path))
    except ValueError as error:
        raise SettingsError(str(error)) from error
    except FileNotFoundError as error:
        raise SettingsError(f"there is no settings file {path}") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error


def _refuse_unknown(kind: type[msgspec.Struct], values: Mapping[str, Any], where: str, at: str = "") -> None:
    known = _field_types(kind)
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean {at}{near[0]}?" if near else f"; known here: {', '.join(sorted(known))}"
            raise SettingsError(f"{where}: unknown key {at}{name}{hint}")
        inner = _struct_in(known[name])
        if inner is not None and isinstance(value, Mapping):
            _refuse_unknown(inner, value, where, f"{at}{name}.")


def _field_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    candidates = (hint, *get_args(hint))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, msgspec.Struct)), None)


def _environment(environ: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in sorted(environ.items()):
        if name.startswith(prefix):
            yield name.removeprefix(prefix).lower().replace("__", "."), value


def _nested(name: str, value: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    _put(tree, name, value)
    return tree


def _put(tree: dict[str, Any], name: str, value: Any) -> None:
    *parents, last = name.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise SettingsError(f"{name}: {parent} is not a table")
    tree[last] = value
