"""A set of rules as text: where it comes from, its data, its tests and the hash that names it.

Owns reading a directory. Must not know of any rule engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from policy.guard.metadata import Enforcement, enforcements
from skerry.decoding import MALFORMED
from skerry.errors import RulesError

#: The rules that ship with Skerry.
SHIPPED = Path(__file__).resolve().parents[1] / "rules"


class RuleSet(msgspec.Struct, frozen=True, kw_only=True):
    """Rules by file name, their tests, and the data document that both read as `data`."""

    rules: Mapping[str, str]
    tests: Mapping[str, str] = {}
    data: Mapping[str, Any] = {}

    @property
    def revision(self) -> str:
        """Return the hash of rules and data: twelve hex digits, the same wherever the same rules hold."""
        whole = msgspec.json.encode({"rules": self.rules, "data": self.data}, order="deterministic")
        return hashlib.sha256(whole).hexdigest()[:12]

    @property
    def enforcements(self) -> Mapping[str, Enforcement]:
        """Return how each annotated rule is enforced.  Raises RulesError like metadata.enforcements."""
        found: dict[str, Enforcement] = {}
        for name, text in self.rules.items():
            found.update(enforcements(name, text))
        return found


def read_rules(directory: Path | None = None) -> RuleSet:
    """Return the rules in a directory: its *.rego files, *_test.rego as tests, data.json.

    directory: None means the shipped rules. What it lacks, rules or data, is taken from the shipped set.
    Raises RulesError that names the file and what is wrong with it.
    """
    own = directory or SHIPPED
    if not own.is_dir():
        raise RulesError(f"there is no rules directory {own}")
    has_rules = any(not _is_test(path) for path in own.glob("*.rego"))
    texts = {path.name: _read(path) for path in sorted((own if has_rules else SHIPPED).glob("*.rego"))}
    data = own / "data.json" if (own / "data.json").exists() else SHIPPED / "data.json"
    return RuleSet(
        rules={name: text for name, text in texts.items() if not _is_test(Path(name))},
        tests={name: text for name, text in texts.items() if _is_test(Path(name))},
        data=_parse_data(data),
    )


def _is_test(path: Path) -> bool:
    return path.name.endswith("_test.rego")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RulesError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise RulesError(f"{path} cannot be read: {error.strerror}") from error


def _parse_data(path: Path) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(_read(path), type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise RulesError(f"{path} is not a JSON object: {error}") from error
    except MALFORMED as error:
        raise RulesError(f"{path} is not valid JSON: {error}") from error
