"""A benchmark's document has one form, its goals are judged, and what is not measured is named."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from benchmarks import __main__ as command
from benchmarks.environment import disk_of, environment
from benchmarks.harness import (
    Baseline,
    Benchmark,
    BenchmarkError,
    Document,
    Goal,
    Result,
    Run,
    perform,
    result,
    write,
)
from benchmarks.registry import BENCHMARKS, loader
from benchmarks.samples import median_of, percentile, timed

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {
    "type": "object",
    "required": ["name", "command", "environment", "results"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "command": {"type": "string"},
        "environment": {"type": "object", "required": ["cpu", "cores", "kernel", "python", "disk"]},
        "left_out": {"type": "array", "items": {"type": "string"}},
        "failed": {"type": "array", "items": {"type": "string"}},
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "what", "value", "unit", "goal", "ok", "baseline"],
                "additionalProperties": False,
                "properties": {
                    "id": {"type": "string", "pattern": "^[a-z0-9_.]+$"},
                    "what": {"type": "string"},
                    "value": {"type": "number"},
                    "unit": {"type": "string"},
                    "goal": {"type": ["string", "null"]},
                    "ok": {"type": ["boolean", "null"]},
                    "baseline": {
                        "oneOf": [
                            {"type": "null"},
                            {
                                "type": "object",
                                "required": ["what", "value"],
                                "properties": {"what": {"type": "string"}, "value": {"type": "number"}},
                            },
                        ]
                    },
                },
            },
        },
    },
}


def tiny(run: Run) -> Iterator[Result]:
    """Times a sum, beside a shorter one."""
    samples: list[float] = []
    for _ in range(run.size(50, 5)):
        with timed(samples):
            sum(range(100))
    if run.quick:
        run.leave_out("the long sum")
    peer = Baseline(what="nothing", value=1e9)
    yield result("tiny.sum", "a sum", percentile(samples, 0.5), "s", goal=Goal("<=", 60.0), baseline=peer)
    yield result("tiny.count", "samples", len(samples), "samples")


def measured(*benchmarks: Benchmark, quick: bool = False) -> Document:
    """The document of benchmarks run here and now, their progress dropped."""
    run = Run(quick=quick, progress=io.StringIO())
    loaders = {f"benchmark {number}": (lambda b=b: b) for number, b in enumerate(benchmarks)}
    return perform("tiny", loaders, run, command="here", environment=environment())


def test_a_document_has_the_stated_form() -> None:
    out = io.StringIO()

    write(measured(tiny), as_json=True, out=out)

    document = json.loads(out.getvalue())
    jsonschema.validate(document, SCHEMA)
    assert [one["ok"] for one in document["results"]] == [True, None]
    assert document["results"][1]["value"] == 50


def test_quick_takes_fewer_samples_and_names_what_it_left_out() -> None:
    document = measured(tiny, quick=True)

    assert document.results[1].value == 5
    assert document.left_out == ("the long sum",)


def test_the_table_shows_value_goal_and_baseline() -> None:
    out = io.StringIO()

    write(measured(tiny), as_json=False, out=out)

    assert all(word in out.getvalue() for word in ("a sum", "<= 60", "yes", "nothing"))


def test_progress_goes_to_standard_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    perform("tiny", {"tiny": lambda: tiny}, Run(), command="here", environment={})

    said = capsys.readouterr()
    assert said.out == ""
    assert "a sum" in said.err


@pytest.mark.parametrize(
    ("goal", "value", "baseline", "met"),
    [
        (Goal("<=", 70), 70.0, None, True),
        (Goal("<=", 70), 70.1, None, False),
        (Goal(">=", 15, of_baseline=True), 1500.0, 100.0, True),
        (Goal(">=", 15, of_baseline=True), 1499.0, 100.0, False),
    ],
)
def test_a_goal_is_met_up_to_its_limit(goal: Goal, value: float, baseline: float | None, met: bool) -> None:
    assert goal.is_met(value, baseline) is met


def test_a_relative_goal_needs_a_baseline() -> None:
    with pytest.raises(BenchmarkError, match="needs one"):
        result("x", "x", 1.0, "s", goal=Goal(">=", 2, of_baseline=True))


def test_two_results_of_one_name_are_refused() -> None:
    document = measured(tiny, tiny)

    assert len(document.results) == 2
    assert document.failed == ("benchmark 1: two results are called tiny.sum",)


def test_a_percentile_is_one_of_the_samples() -> None:
    samples = [float(n) for n in range(1, 101)]

    assert (percentile(samples, 0.5), percentile(samples, 0.99), percentile([7.0], 0.99)) == (50.0, 99.0, 7.0)


def test_a_median_is_taken_over_the_repeats() -> None:
    readings = iter([9.0, 1.0, 2.0])

    assert median_of(3, lambda: next(readings)) == 2.0


def test_a_block_that_fails_leaves_no_sample() -> None:
    samples: list[float] = []

    with pytest.raises(ZeroDivisionError), timed(samples):
        _ = 1 / 0

    assert samples == []


def test_the_environment_is_measured(tmp_path: Path) -> None:
    found = environment()

    assert found["cores"] >= 1
    assert found["cpu"] != ""
    assert " on " in disk_of(tmp_path)


def test_every_registered_benchmark_has_a_measure() -> None:
    assert all(callable(loader(name)()) for name in BENCHMARKS)


def test_what_cannot_be_measured_is_named_and_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(run: Run) -> Iterator[Result]:
        yield from tiny(run)
        raise BenchmarkError("no broker could be started")

    monkeypatch.setattr(command, "loader", lambda name: lambda: broken)

    status = command.main(["spine", "--json"])

    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert status == 1
    assert document["failed"] == ["spine: no broker could be started"]
    assert len(document["results"]) == 2  # what was measured before is kept


def test_a_missed_goal_is_reported_with_status_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(run: Run) -> Iterator[Result]:
        yield result("slow.one", "one", 2.0, "s", goal=Goal("<=", 1.0))

    monkeypatch.setattr(command, "loader", lambda name: lambda: slow)

    status = command.main(["spine", "--json"])

    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert (status, document["results"][0]["ok"]) == (0, False)


def test_a_benchmark_that_fails_stops_no_other() -> None:
    def broken(run: Run) -> Iterator[Result]:
        raise BenchmarkError("the disk is full")
        yield

    document = measured(broken, tiny)

    assert document.failed == ("benchmark 0: the disk is full",)
    assert [one.id for one in document.results] == ["tiny.sum", "tiny.count"]


def test_an_unknown_benchmark_is_misuse_and_the_known_ones_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "spin"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "spine" in done.stderr
