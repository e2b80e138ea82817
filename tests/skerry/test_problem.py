"""The one table from error class to status and public text."""

from __future__ import annotations

import inspect

import pytest

from skerry import errors
from skerry.http import problem_error
from skerry.metrics import Metrics
from skerry.nearest import name_nearest
from skerry.problem import INTERNAL, RULES, Problem, ProblemError, problem, problem_of, rule_of
from skerry.task import TaskSpec


def test_every_row_has_a_name_of_its_own_and_an_error_status() -> None:
    names = [rule.name for rule in RULES.values()]

    assert len(set(names)) == len(names)
    assert all(400 <= rule.status < 600 for rule in RULES.values())


def test_the_nearest_class_decides() -> None:
    class DiskGone(errors.StorageFailed):
        """A kind of it."""

    assert rule_of(DiskGone("x")).name == "storage-failed"


def test_an_error_that_is_not_in_the_table_shows_nothing() -> None:
    shown = problem_of(RuntimeError("secret"), request="r1")

    assert (shown.status, shown.name, shown.request) == (500, "internal", "r1")
    assert "secret" not in shown.detail


def test_what_a_raised_problem_says_is_sent() -> None:
    shown = problem_of(problem(429, "later", retry_after_s=3.0), request="r1")

    assert (shown.status, shown.name, shown.detail, shown.retry_after_s) == (429, "busy", "later", 3.0)


@pytest.mark.parametrize(
    "kind", [errors.TaskNotFound, errors.StorageFailed, errors.BlobNotFound, errors.SpecError]
)
def test_an_error_crosses_the_wire_as_its_own_class(kind: type[errors.SkerryError]) -> None:
    import msgspec

    sent = problem_of(kind("words"))

    got = problem_error(sent.status, msgspec.json.encode(sent))

    assert type(got) is kind


def test_an_answer_that_is_no_problem_document_is_still_one_error() -> None:
    got = problem_error(502, b"<html>bad gateway</html>")

    assert isinstance(got, ProblemError)
    assert "502" in str(got)


def test_an_internal_error_names_its_request() -> None:
    shown = Problem(status=500, title="x", detail="failed inside", request="abc")

    assert str(ProblemError(shown)) == "failed inside (request abc)"


def test_every_error_of_the_tree_has_a_message_of_its_own() -> None:
    tree = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.SkerryError)
    ]

    assert all(kind.__doc__ and kind.__doc__ != Exception.__doc__ for kind in tree)
    assert INTERNAL.text is not None


@pytest.mark.parametrize(
    ("path", "field", "expected"),
    [
        ("", "prority", "unknown field prority; did you mean priority?"),
        ("spec", "modle", "unknown field spec.modle; did you mean spec.model?"),
        (
            "spec.inputs[...]",
            "shap",
            "unknown field spec.inputs[...].shap; did you mean spec.inputs[...].shape?",
        ),
        ("data", "zzz", "unknown field data.zzz; known here: home_region, labels, size_bytes"),
    ],
)
def test_the_nearest_name_is_looked_for_where_the_field_stands(path: str, field: str, expected: str) -> None:
    assert name_nearest(TaskSpec, f"Object contains unknown field `{field}`", path) == expected


def test_figures_are_of_this_process_and_read_on_demand() -> None:
    metrics = Metrics("skerry_x")
    readings = {"done": 1.0}
    metrics.counter("things", "Things").inc(2)
    metrics.read_on_demand("tasks", "Tasks by state", "state", lambda: readings)

    readings["done"] = 5.0
    shown = metrics.render().decode()

    assert "skerry_x_things_total 2.0" in shown
    assert 'skerry_x_tasks{state="done"} 5.0' in shown
    assert "process_open_fds" in shown
