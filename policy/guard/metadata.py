"""What a rule says of itself in its `# METADATA` comment: its id and how it is enforced.

Owns that small part of the annotation format (`custom.rule`, `custom.enforcement`, `custom.safety`); a rule
without one is enforced. Must not know of any rule engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from skerry.errors import RulesError

Enforcement = Literal["deny", "warn", "dryrun"]
_KNOWN = ("rule", "enforcement", "safety")


def enforcements(name: str, text: str) -> Mapping[str, Enforcement]:
    """Return how each annotated rule of one file is enforced.

    Raises RulesError with file and line: an unknown enforcement, no rule's id, a safety rule weakened.
    """
    found: dict[str, Enforcement] = {}
    for line, block in _blocks(text):
        rule, enforcement = block.get("rule", ""), block.get("enforcement", "deny")
        if not rule and len(block):
            raise RulesError(f"{name}:{line}: this METADATA has no custom.rule: it would apply to nothing")
        if rule:
            found[rule] = _checked(f"{name}:{line}", rule, enforcement, block.get("safety", "false"))
    return found


def _checked(where: str, rule: str, enforcement: str, safety: str) -> Enforcement:
    for known in get_args(Enforcement):
        if enforcement == known:
            if known != "deny" and safety == "true":
                raise RulesError(f"{where}: {rule} is a safety rule: its enforcement can only be deny")
            return known  # type: ignore[no-any-return]  # one of the literal's own values
    raise RulesError(f"{where}: {rule} has enforcement {enforcement!r}; known: deny, warn, dryrun")


def _blocks(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The line and the known custom keys of each METADATA comment."""
    block: dict[str, str] | None = None
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = line.strip().removeprefix("#").strip() if line.strip().startswith("#") else None
        if comment == "METADATA":
            block, start = {}, number
        elif comment is None and block is not None:
            yield start, block
            block = None
        elif comment is not None and block is not None:
            key, _, value = comment.partition(":")
            if key in _KNOWN:
                block[key] = value.strip().strip("\"'")
