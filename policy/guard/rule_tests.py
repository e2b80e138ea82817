"""Runs the `test_…` rules of a rule set: the operator's own examples of what is denied and what is not."""

from __future__ import annotations

import re

import msgspec

from policy.guard.engine import Engine
from policy.guard.sources import RuleSet
from skerry.errors import RulesError

_TEST = re.compile(r"^(test_\w+)", re.MULTILINE)


class RuleTest(msgspec.Struct, frozen=True, kw_only=True):
    """How one test ended. message: what the engine said when it could not be evaluated."""

    file: str
    name: str
    passed: bool
    message: str = ""


def run_rule_tests(rules: RuleSet) -> list[RuleTest]:
    """Return each test's end, in order.  Raises RulesError when rules or tests do not load.

    Nothing bounds the time that a rule takes: run an unknown set in a process of its own.
    """
    engine = Engine(rules, with_tests=True)
    tests = [
        (file, name) for file, text in rules.tests.items() for name in dict.fromkeys(_TEST.findall(text))
    ]
    return [_run(engine, file, name) for file, name in tests]


def _run(engine: Engine, file: str, name: str) -> RuleTest:
    try:
        said = engine.evaluate(name, "{}")
    except RulesError as error:
        return RuleTest(file=file, name=name, passed=False, message=str(error))
    return RuleTest(file=file, name=name, passed=said.strip() == "true")
