"""How long a link waits before it tries again, and when a node counts as stale."""

from __future__ import annotations

from random import Random

from skerry.clock import Instant
from skerry.link.backoff import Backoff
from skerry.link.liveness import is_stale

T0 = Instant("boot-1", 1000.0)


class Highest(Random):
    """Draws the upper end."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_the_ceiling_doubles_to_its_cap_and_falls_back_after_a_long_session() -> None:
    backoff = Backoff(Highest())

    assert [backoff.next_delay_s() for _ in range(11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    backoff.session_ended(5.0)
    assert backoff.next_delay_s() == 300
    backoff.session_ended(61.0)
    assert backoff.next_delay_s() == 1


def test_no_delay_is_drawn_from_less_than_a_known_spread() -> None:
    backoff = Backoff(Highest())
    backoff.hint(6.0)

    assert [backoff.next_delay_s() for _ in range(5)] == [6, 6, 6, 8, 16]
    backoff.wake()
    assert backoff.next_delay_s() == 6
    backoff.hint(1e9)
    assert backoff.next_delay_s() == 3600


def test_while_nobody_answers_the_ceiling_is_about_a_hundredth_of_the_outage() -> None:
    backoff, rng = Backoff(Highest()), Random(7)
    outage_s, ceilings = 0.0, {}
    for minutes in (2, 20, 60, 72 * 60):
        while outage_s < 60 * minutes:
            ceiling_s = backoff.next_delay_s(was_answered=False)
            outage_s += rng.uniform(0.0, ceiling_s)
        ceilings[minutes] = ceiling_s

    assert ceilings[2] < 3
    assert 10 < ceilings[20] < 15
    assert 30 < ceilings[60] < 45
    assert ceilings[72 * 60] == 60


def test_delays_use_the_whole_range_below_the_ceiling() -> None:
    backoff = Backoff(Random(7), floor_s=100.0, cap_s=100.0)
    delays = sorted(backoff.next_delay_s() for _ in range(400))

    assert delays[0] < 5
    assert delays[-1] > 95


def test_a_node_is_stale_after_three_missed_intervals() -> None:
    assert not is_stale(T0, T0.plus(15.0), 5.0)
    assert is_stale(T0, T0.plus(15.1), 5.0)
    assert not is_stale(T0, Instant("boot-2", 14.0), 5.0)
    assert is_stale(T0, Instant("boot-2", 16.0), 5.0)
