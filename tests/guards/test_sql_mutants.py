"""The list of predicates whose absence must be noticed is complete, and the hunt tells a find from none."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlglot
from sqlglot import exp

from skerry.sql import load_schema
from tests.chaos.sql_mutants import EQUIVALENT
from tests.chaos.sql_statements import PACKAGES, mutants, scripts

ROOT = Path(__file__).resolve().parents[2]
CHANGE = re.compile(
    r"\b(?:INSERT(?: OR \w+)? INTO|REPLACE INTO|DELETE FROM) +\"?\w+|\bUPDATE(?: OR \w+)? +\"?\w+\"?\s+SET"
)
MUTANTS = mutants()


@pytest.mark.parametrize("short", PACKAGES)
def test_every_statement_that_changes_rows_is_on_the_list(short: str) -> None:
    listed = {found for text in scripts().values() for found in CHANGE.findall(text)}
    folder = Path(str(resources.files(PACKAGES[short])))

    written = {
        found: path.name
        for path in [*folder.rglob("*.sql"), *folder.rglob("*.py")]
        for found in CHANGE.findall(path.read_text(encoding="utf-8"))
    }

    assert written
    assert {found: where for found, where in written.items() if found not in listed} == {}


def test_each_predicate_that_a_parser_sees_is_taken_out_once() -> None:
    taken_out: dict[str, list[str]] = {}
    for mutant in MUTANTS.values():
        taken_out.setdefault(mutant.script, []).append(mutant.mutated)
    compared = 0
    for name, script in scripts().items():
        if CHANGE.search(script) and "TRIGGER" not in script:  # which that parser does not know
            seen = [predicate for tree in _parsed(script) for predicate in _predicates(tree)]

            assert sorted(map(_always, taken_out.get(script, ()))) == sorted(seen), name
            compared += len(seen)
    assert compared > 60


def _parsed(sql: str) -> list[Any]:
    trees = sqlglot.parse(sql.replace("UPDATE OR IGNORE", "UPDATE"), read="sqlite")
    return [tree for tree in trees if isinstance(tree, exp.Insert | exp.Update | exp.Delete)]


def _predicates(tree: Any) -> list[str]:
    clauses = [where.this for where in tree.find_all(exp.Where)]
    clauses += [join.args["on"] for join in tree.find_all(exp.Join) if join.args.get("on")]
    return [
        each.sql("sqlite")
        for clause in clauses
        for each in (clause.flatten() if isinstance(clause, exp.And) else [clause])
    ]


def _always(mutated: str) -> str:
    """Return the predicate that holds for every row now."""
    found = [each for tree in _parsed(mutated) for each in tree.find_all(exp.Or) if each.right == exp.true()]
    assert len(found) == 1
    return str(found[0].left.sql("sqlite"))


@pytest.mark.parametrize("short", ["ledger", "rounds"])
def test_what_is_left_of_a_trigger_can_be_run(short: str) -> None:
    steps = [load_schema(PACKAGES[short])]
    steps += [
        tuple(mutant.mutated if step == mutant.script else step for step in steps[0])
        for mutant in MUTANTS.values()
        if mutant.script in steps[0]
    ]

    assert len(steps) > 1
    for step in steps:
        db = apsw.Connection(":memory:")
        db.execute("".join(step))
        db.close()


def test_a_find_is_told_and_what_nobody_can_notice_is_not_found() -> None:
    (same,) = (name for name in EQUIVALENT if name.startswith("queue/delete_coalesced"))
    sought = ["queue/mark_inbox", "ledger/end_placement: fence", "trigger task_added"]
    among = ["--tests", "tests/contracts/store/test_streams.py", "tests/contracts/test_ledger.py"]

    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.sql_mutants", "--no-fuzz", "--only", *sought, same, *among],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    verdicts = dict(re.findall(r"^(\w+/.*)\n    (.*)", done.stdout, re.MULTILINE))
    assert done.returncode == 1, done.stdout + done.stderr
    assert verdicts.pop(same).startswith("NOT FOUND")
    assert [name.partition("/")[0] for name in sorted(verdicts)] == ["ledger", "ledger", "queue"]
    assert all("[sqlite]" in found_by for found_by in verdicts.values())
