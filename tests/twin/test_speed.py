"""The outage of two hours: five agents alone, 36,000 tasks, shared out over two processes.

What it takes is measured, not asserted. The time limit is above the usual one, for machines that do other
things as well.
"""

from __future__ import annotations

import pytest

from twin.faithful.run import Report
from twin.faithful.shards import run_in_shards
from twin.scenario.library import find


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run_in_shards(find("outage-2h"), 1, 2, home=tmp_path_factory.mktemp("outage"))


@pytest.mark.timeout(600)  # it is work for a minute on a machine with two free processors
def test_two_hours_alone_lose_nothing_and_do_nothing_twice(report: Report) -> None:
    assert (report.agents, report.submitted, report.done) == (5, 36_000, 36_000)
    assert (report.lost, report.done_twice, report.broken) == (0, 0, ())
