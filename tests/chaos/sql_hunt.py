"""Looks for what notices that a predicate is missing: tests of queue and ledgers, then the twin.

Owns the order: what runs the statement at all, tests before scenarios, the cheapest first, up to the first
that fails. Everything is loaded once; each mutant is tried in a fork. Knows no statement.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import sql_tap
from tests.chaos.children import Say, in_children
from tests.chaos.sql_statements import Mutant, has_predicate, scripts
from twin.faithful.fuzz import fuzz

#: What a mutant is shown to, by what it costs without one: tests, then scenarios. Seconds.
TESTS_S, TWIN_S = 60.0, 90.0
#: A detector that takes so much longer than without a mutant does not end.
_PATIENCE, _PATIENCE_S = 8.0, 15.0
_LONGEST_S = 300.0
#: What plays with the product, and may do with its files what it likes.
_PLAYERS = tuple(str(Path(__file__).parents[2] / folder) for folder in ("tests", "twin"))
_FUZZED = "twin fuzz"
_FUZZ_SEED, _FUZZ_MOST = 1, 25


@dataclass(frozen=True, kw_only=True)
class Detector:
    """A test, or a search of the twin.  run: returns what fails, empty when nothing does."""

    name: str
    run: Callable[[], str]

    @property
    def is_twin(self) -> bool:
        """Whether it plays whole fleets."""
        return self.name.startswith((_FUZZED, "tests/twin/"))


@dataclass(frozen=True, kw_only=True)
class Met:
    """What a detector ran without a mutant, and its cost.  broken: it fails by itself and shows nothing."""

    detector: Detector
    cost_s: float
    ran: frozenset[str]
    broken: str


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What became of a mutant.  found_by: empty when nothing noticed it; shown_to: how many ran it."""

    mutant: str
    found_by: str
    what: str
    shown_to: int
    seconds: float


class Hunt:
    """A plugin of pytest that tries mutants with the tests collected, instead of running them."""

    def __init__(
        self,
        mutants: Mapping[str, Mutant],
        *,
        jobs: int,
        with_fuzz: bool,
        tell: Callable[[Tried], None],
        say: Callable[[str], None],
    ) -> None:
        """tell: is told of each mutant when it is decided.  say: takes a line for people."""
        self._mutants, self._jobs, self._with_fuzz = mutants, jobs, with_fuzz
        self._tell, self._say = tell, say
        self._failures: list[str] = []

    def pytest_configure(self) -> None:
        """See that an example that fails is not made smaller first: it takes long."""
        from hypothesis import Phase, settings

        settings.register_profile("hunt", phases=(Phase.explicit, Phase.generate))
        settings.load_profile("hunt")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails."""
        if report.failed:
            self._failures.append(_words_of(report))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run everything once as it is, then each mutant up to the first that fails."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        known = self._survey(session)
        works = (
            (name, partial(_try, mutant, _shown(known, mutant))) for name, mutant in self._mutants.items()
        )
        for child in in_children(works, self._jobs):
            self._tell(_verdict(child.name, child.said, child.failed))
        return True

    def _detectors(self, session: pytest.Session) -> Iterator[Detector]:
        for item in session.items:
            yield Detector(name=item.nodeid, run=partial(self._run_item, item))
        if self._with_fuzz:
            yield Detector(name=_FUZZED, run=_fuzz)

    def _run_item(self, item: pytest.Item) -> str:
        self._failures.clear()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._failures[0] if self._failures else ""

    def _survey(self, session: pytest.Session) -> list[Met]:
        """Return what each detector runs; those that fail or run no statement are of no use."""
        detectors = list(self._detectors(session))
        shares = ((str(n), partial(_meet, detectors[n :: self._jobs])) for n in range(self._jobs))
        children = list(in_children(shares, self._jobs))
        for child in children:
            if child.failed:
                last = child.said[-1][0] if child.said else "the first"
                raise session.Interrupted(f"without any mutant, after {last}: {child.failed}")
        by_name = {detector.name: detector for detector in detectors}
        known = [
            Met(detector=by_name[name], cost_s=cost_s, ran=ran, broken=broken)
            for child in children
            for name, cost_s, ran, broken in child.said
        ]
        for each in known:
            if each.broken:
                self._say(f"fails by itself: {each.detector.name}: {each.broken}")
        self._say(f"{len(known)} detectors, {sum(each.cost_s for each in known):.0f} s")
        return sorted((each for each in known if not each.broken), key=lambda each: each.cost_s)


def _words_of(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    words = str(crash.message if crash else report.longrepr).strip().partition("\n")[0]
    return words.replace(tempfile.gettempdir(), "…")[:200]


def _fuzz() -> str:
    found = fuzz(seconds=_LONGEST_S, seed=_FUZZ_SEED, most=_FUZZ_MOST, shrinks=False)
    if found.find is None:
        return ""
    first = found.find.broken[0]
    return f"scenario {found.find.number}, law {first.law}: {first.what}"[:200]


def _meet(detectors: Sequence[Detector], say: Say) -> None:
    """Run detectors as they are and say what each of them cost and ran."""
    listed = {text: name for name, text in scripts().items()}
    for detector in detectors:
        sql_tap.seen.clear()
        begun = time.perf_counter()
        broken = detector.run()
        cost_s = time.perf_counter() - begun
        for sql, file in sql_tap.seen.items():
            if sql not in listed and not file.startswith(_PLAYERS) and has_predicate(sql):
                raise LookupError(f"{file} runs what is not on the list: {sql}")
        say((detector.name, cost_s, frozenset(sql_tap.seen & listed.keys()), broken), _LONGEST_S)


def _shown(known: Sequence[Met], mutant: Mutant) -> list[Met]:
    """Return what a mutant is shown to, in order."""
    shown: list[Met] = []
    for is_twin, within_s in ((False, TESTS_S), (True, TWIN_S)):
        spent_s = 0.0
        for each in known:
            if each.detector.is_twin is is_twin and mutant.script in each.ran and spent_s < within_s:
                spent_s += each.cost_s
                shown.append(each)
    return shown


def _try(mutant: Mutant, shown: Sequence[Met], say: Say) -> None:
    """Say before each detector that it begins, and at the end what was found and in how many seconds."""
    begun = time.perf_counter()
    what = ""
    for each in shown:
        say(each.detector.name, _PATIENCE_S + _PATIENCE * each.cost_s)
        what = _finds(each.detector, mutant)
        if what:
            break
    say((what, time.perf_counter() - begun), _LONGEST_S)


def _finds(detector: Detector, mutant: Mutant) -> str:
    """Return what fails with the mutant, and at once again without it does not."""
    sql_tap.replaced[mutant.script] = mutant.mutated
    what = detector.run()
    sql_tap.replaced.clear()
    return what if what and not detector.run() else ""


def _verdict(name: str, said: Sequence[Any], failed: str) -> Tried:
    """Judge a mutant by what its child said; one that died or did not end was found by what it last began."""
    what, seconds = (failed, 0.0) if failed else said[-1]
    shown = said if failed else said[:-1]
    return Tried(
        mutant=name,
        found_by=shown[-1] if what else "",
        what=what,
        shown_to=len(shown),
        seconds=round(seconds, 1),
    )
