"""The embedded Rego engine behind three calls. Owns every contact with `regorus`, its errors included.

An engine belongs to the thread that made it: used from another one it panics, dropped by another one it is
never freed and says so on standard error. Must not know of tasks.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import re
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from policy.guard.sources import RuleSet
from skerry.errors import RulesError

PACKAGE = "data.skerry.guard"
INSTALL = "the rules engine is not installed: in the checkout, pip install -r constraints/rules.txt"
T = TypeVar("T")
_PLACE = re.compile(r"--> (.+?):(\d+):(\d+)")
_ERROR = re.compile(r"^error: (.+)$", re.MULTILINE)


def is_installed() -> bool:
    """Decide whether the engine can be imported here."""
    return importlib.util.find_spec("regorus") is not None


class Engine:
    """Rules and data loaded into one engine, for the thread that makes it."""

    def __init__(self, rules: RuleSet, *, with_tests: bool = False) -> None:
        """Load everything.  Raises RulesError with file, line and column."""
        os.environ.setdefault("RUST_LIB_BACKTRACE", "0")  # else every error text ends in a stack trace
        self._engine: Any = importlib.import_module("regorus").Engine()
        files = {**rules.rules, **(rules.tests if with_tests else {})}
        for name, text in files.items():
            self._call(partial(self._engine.add_policy, name, text))
        self._call(lambda: self._engine.add_data_json(msgspec.json.encode(rules.data).decode()))

    def tree(self) -> list[Any]:
        """Return the parsed rule files."""
        parsed: list[Any] = msgspec.json.decode(self._engine.get_ast_as_json())
        return parsed

    def evaluate(self, rule: str, document: str) -> str:
        """Return the value of one rule of the package for this input, both JSON.  Raises RulesError."""

        def run() -> str:
            self._engine.set_input_json(document)
            return str(self._engine.eval_rule_as_json(f"{PACKAGE}.{rule}"))

        return self._call(run)

    def _call(self, run: Callable[[], T]) -> T:
        try:
            return run()
        except RuntimeError as error:
            raise RulesError(_in_words(str(error))) from error
        except BaseException as error:
            # A panic inside the engine arrives as a BaseException of its own; stopping the process stays one.
            if type(error).__name__ != "PanicException":
                raise
            raise RulesError(f"the rules engine failed: {error}") from error


class _Thread(threading.local):
    """What one thread holds: number of a set of engines → whether that set is still there, and the engine."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[weakref.ref[Engines], Engine]] = {}


#: Hangs on the module, not on a set: a thread-local value goes with its owner, by the hand of the thread that
#: drops the owner; this one goes with its own thread.
_THREAD = _Thread()
_NUMBERS = itertools.count()


class Engines:
    """One rule set's engines, one a thread: each is made, used and dropped by its own thread alone."""

    def __init__(self, rules: RuleSet) -> None:
        """Make none yet."""
        self._rules = rules
        self._number = next(_NUMBERS)

    def here(self) -> Engine:
        """Return the calling thread's engine; the first call makes it.  Raises RulesError."""
        held = _THREAD.held.get(self._number)
        return self.keep(Engine(self._rules)) if held is None else held[1]

    def keep(self, engine: Engine) -> Engine:
        """Make an engine the calling thread's own, and drop here what sets that are gone left behind."""
        for number in [number for number, (owner, _) in _THREAD.held.items() if owner() is None]:
            del _THREAD.held[number]
        _THREAD.held[self._number] = (weakref.ref(self), engine)
        return engine

    def forget(self) -> None:
        """Drop the calling thread's engine: the next call makes another."""
        _THREAD.held.pop(self._number, None)


def _in_words(text: str) -> str:
    """The first error only, as `file:line:column: message`: the others follow from it."""
    place, error = _PLACE.search(text), _ERROR.search(text)
    message = error.group(1) if error else text.strip().splitlines()[-1] if text.strip() else "unknown error"
    return f"{':'.join(place.groups())}: {message}" if place else message
