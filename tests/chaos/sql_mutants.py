"""Every predicate of every statement that changes rows is taken out in turn: something must notice.

`python -m tests.chaos.sql_mutants` adds to docs/evidence/sql-mutants.json, a mutant at a time; a record
stands while the files it exercises are unchanged. `--list` names the mutants, `--only` tries those whose
names hold a text and records nothing. They are shown to the tests of queue and ledgers, then to the twin:
its scenarios and its search, with a fixed seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

import msgspec
import pytest

from tests.chaos import sql_tap
from tests.chaos.evidence import load_evidence, save_evidence
from tests.chaos.sql_hunt import Hunt, Tried
from tests.chaos.sql_statements import Mutant, mutants

COMMAND = "python -m tests.chaos.sql_mutants"
#: Where the statements are, and what brings them to SQLite.
EXERCISES = (
    "queue/task_queue",
    "cloud_coordinator",
    "federation/rounds",
    "skerry/sql.py",
    "skerry/database.py",
)
TESTS = (
    "tests/contracts",
    "tests/queue",
    "tests/cloud_coordinator",
    "tests/twin/test_scenarios.py::test_the_laws_hold_whatever_goes_wrong",
)
#: The share that must be found.
LEAST_SHARE = 0.9
#: Mutants that change nothing anybody could notice, with the reason.
EQUIVALENT = {
    "queue/delete_coalesced: \"coalesce\" != ''": (
        "the key that is asked for is never empty: the condition names the partial index"
    ),
    "ledger/schema 1, trigger task_moved: OLD.state <> NEW.state": (
        "takes one from a count and adds it to the same: the condition saves two writes"
    ),
}


def chosen(only: Sequence[str]) -> dict[str, Mutant]:
    """Return the mutants whose names hold one of these texts; all of them for none."""
    return {
        name: mutant for name, mutant in mutants().items() if not only or any(text in name for text in only)
    }


class Count:
    """What has been tried, found or not; written down when all of it is tried with all detectors."""

    def __init__(self, *, is_whole: bool) -> None:
        """Go on where the record ends. What nobody noticed is tried again: there may be a test for it now."""
        self._is_whole = is_whole
        record = load_evidence("sql-mutants", COMMAND, EXERCISES)
        kept = tuple(
            entry for entry in record.entries if is_whole and (entry["found_by"] or entry["equivalent"])
        )
        self._record = msgspec.structs.replace(record, entries=kept, count=len(kept))

    def tell(self, tried: Tried) -> None:
        """Take the verdict on a mutant."""
        by = f"{tried.found_by}: {tried.what}" if tried.found_by else "NOT FOUND"
        print(f"{tried.mutant}\n    {by} [{tried.shown_to} in {tried.seconds} s]", flush=True)
        entry = {**asdict(tried), "equivalent": EQUIVALENT.get(tried.mutant, "")}
        self._record = self._record.with_entry(1, entry)
        if self._is_whole:
            save_evidence(self._record)

    def rest(self, asked: Mapping[str, Mutant]) -> dict[str, Mutant]:
        """Return those that are still to be tried."""
        known = {entry["mutant"] for entry in self._record.entries}
        return {name: mutant for name, mutant in asked.items() if name not in known}

    def found(self) -> tuple[int, int]:
        """Return how many were found, and of how many."""
        return sum(bool(entry["found_by"]) for entry in self._record.entries), self._record.count


def main() -> int:
    """Do as asked; return 1 when too few were found."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    words.add_argument("--jobs", type=int, default=2)
    words.add_argument("--list", action="store_true", help="name the mutants")
    words.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="try these; record nothing")
    words.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="show them to these")
    words.add_argument("--no-fuzz", action="store_true", help="do not show them to the twin's search")
    asked = words.parse_args()
    if asked.list:
        print("\n".join(chosen(asked.only)))
        return 0
    count = Count(is_whole=not asked.only and not asked.no_fuzz and tuple(asked.tests) == TESTS)
    todo = count.rest(chosen(asked.only))
    if todo:
        say = partial(print, flush=True)
        hunt = Hunt(todo, jobs=asked.jobs, with_fuzz=not asked.no_fuzz, tell=count.tell, say=say)
        _hunt(asked.tests, hunt)
    found, tried = count.found()
    print(f"{found} of {tried} found")
    return int(found < LEAST_SHARE * tried)


def _hunt(tests: Sequence[str], hunt: Hunt) -> None:
    """Collect the tests and let the hunt have them."""
    sql_tap.put_in_place()
    options = ["-q", "-s", "-p", "no:cacheprovider", "-m", "not chaos"]
    done = pytest.main([*options, "-o", "tmp_path_retention_policy=failed", *tests], plugins=[hunt])
    if done not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):  # none were run as tests
        raise SystemExit("the tests cannot be collected, or fail to run")


if __name__ == "__main__":
    sys.exit(main())
