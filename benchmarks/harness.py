"""What a benchmark is: a function that yields results. Owns their form, their goals and how they are shown.

Knows nothing of what is measured. A value without a goal is there to be read; a goal is either a fixed limit
or a multiple of the baseline measured in the same run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from skerry.errors import SkerryError


class BenchmarkError(SkerryError):
    """Something could not be measured."""


class Goal(msgspec.Struct, frozen=True):
    """What the value is held against. of_baseline: the limit is a multiple of the baseline's value."""

    sense: Literal["<=", ">="]
    limit: float
    of_baseline: bool = False

    def is_met(self, value: float, baseline: float | None) -> bool:
        """Decide whether value keeps the goal.  Raises BenchmarkError when a needed baseline is missing."""
        limit = self.limit
        if self.of_baseline:
            if baseline is None:
                raise BenchmarkError("a goal relative to the baseline needs one")
            limit *= baseline
        return value <= limit if self.sense == "<=" else value >= limit

    def __str__(self) -> str:
        """The goal in words: `<= 70` or `>= 15 x baseline`."""
        return f"{self.sense} {self.limit:g}" + (" x baseline" if self.of_baseline else "")


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A peer measured in the same run, in the unit of the result it stands beside."""

    what: str
    value: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ok: whether the goal was met, None without a goal."""

    id: str
    what: str
    value: float
    unit: str
    goal: str | None = None
    ok: bool | None = None
    baseline: Baseline | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one benchmark, or of all.

    left_out: what --quick did not measure.  failed: what could not be measured, and why.
    """

    name: str
    command: str
    environment: Mapping[str, Any]
    results: tuple[Result, ...]
    left_out: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Run:
    """What a benchmark is given. trace: a recorded workload, for benchmarks that replay one."""

    quick: bool = False
    trace: Path | None = None
    progress: TextIO = field(default_factory=lambda: sys.stderr)
    left_out: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Report progress; never on standard output."""
        print(f"  {text}", file=self.progress, flush=True)

    def leave_out(self, text: str) -> None:
        """Name something that cannot be measured quickly."""
        self.left_out.append(text)
        self.say(f"left out: {text}")

    def size(self, full: int, quick: int) -> int:
        """Return how many samples to take."""
        return quick if self.quick else full

    def duration_s(self, full: float, quick: float) -> float:
        """Return how long to measure a rate, or to wait before something is measured, seconds."""
        return quick if self.quick else full


class Benchmark(Protocol):
    """A module's `measure`: yields results as they come, cleans up after itself whatever happens."""

    def __call__(self, run: Run) -> Iterable[Result]:
        """Measure."""
        ...


def result(
    id: str,
    what: str,
    value: float,
    unit: str,
    *,
    goal: Goal | None = None,
    baseline: Baseline | None = None,
) -> Result:
    """Return a result with its goal judged."""
    return Result(
        id=id,
        what=what,
        value=value,
        unit=unit,
        goal=None if goal is None else str(goal),
        ok=None if goal is None else goal.is_met(value, None if baseline is None else baseline.value),
        baseline=baseline,
    )


def perform(
    name: str,
    benchmarks: Mapping[str, Callable[[], Benchmark]],
    run: Run,
    *,
    command: str,
    environment: Mapping[str, Any],
) -> Document:
    """Run the given benchmarks one after another and return their document; one that fails stops no other."""
    results: list[Result] = []
    failed: list[str] = []
    for label, load in benchmarks.items():
        print(label, file=run.progress, flush=True)
        try:
            for one in _distinct(load()(run), results):
                run.say(line_of(one))
                results.append(one)
        except (SkerryError, ImportError) as error:
            failed.append(f"{label}: {error}")
            run.say(f"could not be measured: {error}")
    return Document(
        name=name,
        command=command,
        environment=environment,
        results=tuple(results),
        left_out=tuple(run.left_out),
        failed=tuple(failed),
    )


def _distinct(fresh: Iterable[Result], before: list[Result]) -> Iterator[Result]:
    for one in fresh:
        if any(one.id == other.id for other in before):
            raise BenchmarkError(f"two results are called {one.id}")
        yield one


def line_of(one: Result) -> str:
    """Return a result as one line of text."""
    goal = "" if one.goal is None else f", goal {one.goal}: {'met' if one.ok else 'missed'}"
    beside = "" if one.baseline is None else f" (baseline {number(one.baseline.value)}: {one.baseline.what})"
    return f"{one.what}: {number(one.value)} {one.unit}{beside}{goal}"


def number(value: float) -> str:
    """Return a figure with three significant digits, without an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 if abs(value) >= 1 else 4}f}"


def table_of(document: Document) -> Table:
    """Return the document as a table for people."""
    table = Table(title=f"{document.name}: {document.command}", title_justify="left")
    for heading in ("what", "value", "unit", "goal", "met", "baseline"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for one in document.results:
        met = {None: "", True: "yes", False: "no"}[one.ok]
        beside = "" if one.baseline is None else f"{number(one.baseline.value)} ({one.baseline.what})"
        table.add_row(one.what, number(one.value), one.unit, one.goal or "", met, beside)
    return table


def write(document: Document, *, as_json: bool, out: TextIO) -> None:
    """Write the document: one JSON text, or a table with what was left out."""
    if as_json:
        encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
        out.write(encoded.decode() + "\n")
        return
    console = Console(file=out, width=None if out.isatty() else 160)
    console.print(table_of(document))
    for text in document.left_out:
        console.print(f"left out by --quick: {text}")
    for text in document.failed:
        console.print(f"could not be measured: {text}")
