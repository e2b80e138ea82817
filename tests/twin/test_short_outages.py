"""After a short outage, and after a cut in mid-flight, nothing waits for long and nothing is done twice."""

from __future__ import annotations

import pytest

from tests.chaos.short_outages import cuts_in_flight, is_as_it_should_be, short_outages
from twin.faithful.run import run_scenario
from twin.scenario.language import Scenario


@pytest.mark.parametrize("scenario", [short_outages(6, 3), cuts_in_flight(20, 3)], ids=lambda s: s.name)
def test_what_waits_is_gone_within_thirty_seconds(scenario: Scenario) -> None:
    report = run_scenario(scenario, seed=3)

    assert is_as_it_should_be(report), report.broken
    assert 0 < report.figures["drained_s"] <= 30
