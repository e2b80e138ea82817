"""Which rule engines there are. Adding one: a file beside this one, and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from policy.guard.engine import INSTALL, is_installed
from policy.guard.sources import read_rules
from policy.guard.without_engine import AllowAll, DenyAll
from policy.port import Guard
from skerry.errors import SettingsError

DEFAULT_GUARD = "rego"


def _rego(directory: Path | None) -> Guard:
    rules = read_rules(directory)
    if not is_installed():
        return DenyAll(INSTALL)
    from policy.guard.rego import RegoGuard

    return RegoGuard(rules)


#: rego: the embedded engine; without it everything is denied.  off: no rules, by the operator's own word.
GUARDS: Mapping[str, Callable[[Path | None], Guard]] = {
    "rego": _rego,
    "off": lambda directory: AllowAll(),
}


def make_guard(name: str = DEFAULT_GUARD, directory: Path | None = None) -> Guard:
    """Return the guard of that name over the rules in directory (None: the shipped ones).

    Raises SettingsError for an unknown name, RulesError (file, line, column) for rules that are not sound.
    """
    factory = GUARDS.get(name)
    if factory is None:
        near = difflib.get_close_matches(name, GUARDS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(GUARDS))}"
        raise SettingsError(f"there is no rules engine {name!r}; {hint}")
    return factory(directory)
