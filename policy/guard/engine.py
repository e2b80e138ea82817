"""The embedded Rego engine behind three calls. Owns every contact with `regorus`, its errors included.

An engine belongs to the thread that made it: used from another one it panics. Must not know of tasks.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
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


def _in_words(text: str) -> str:
    """The first error only, as `file:line:column: message`: the others follow from it."""
    place, error = _PLACE.search(text), _ERROR.search(text)
    message = error.group(1) if error else text.strip().splitlines()[-1] if text.strip() else "unknown error"
    return f"{':'.join(place.groups())}: {message}" if place else message
