"""The circuit breaker on a clock that moves when told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.executors.breaker import Breaker
from skerry.testing import ManualClock


def test_a_new_breaker_is_closed() -> None:
    assert not Breaker(base_s=1, limit_s=10).is_open


def test_a_fault_opens_it_with_the_reason_until_a_probe_succeeds() -> None:
    clock, breaker = ManualClock(), Breaker(base_s=1, limit_s=10)

    breaker.fault(clock.now(), "killed by SIGABRT", share=1.0)

    assert breaker.is_open
    assert breaker.reason == "killed by SIGABRT"
    assert breaker.wait_s(clock.now()) == pytest.approx(1.0)
    assert breaker.wait_s(clock.advance(5)) == 0.0
    assert breaker.is_open
    breaker.probed()
    assert not breaker.is_open
    assert breaker.reason == ""


def test_the_wait_doubles_while_nothing_succeeds_and_stays_below_its_limit() -> None:
    clock, breaker = ManualClock(), Breaker(base_s=1, limit_s=10)

    waits = []
    for _ in range(6):
        breaker.fault(clock.now(), "hangs", share=1.0)
        waits.append(breaker.wait_s(clock.now()))
        breaker.probed()

    assert waits == pytest.approx([1, 2, 4, 8, 10, 10])


def test_an_attempt_that_succeeds_forgets_the_faults() -> None:
    clock, breaker = ManualClock(), Breaker(base_s=1, limit_s=100)
    for _ in range(4):
        breaker.fault(clock.now(), "hangs", share=1.0)

    breaker.succeeded()
    breaker.fault(clock.now(), "hangs", share=1.0)

    assert breaker.wait_s(clock.now()) == pytest.approx(1.0)


@settings(derandomize=True, database=None)
@given(faults=st.integers(1, 2000), share=st.floats(0, 1))
def test_the_wait_is_never_longer_than_the_limit_nor_shorter_than_half_the_base(
    faults: int, share: float
) -> None:
    clock, breaker = ManualClock(), Breaker(base_s=0.5, limit_s=300)

    for _ in range(faults):
        breaker.fault(clock.now(), "hangs", share=share)

    assert 0.25 <= breaker.wait_s(clock.now()) <= 300
