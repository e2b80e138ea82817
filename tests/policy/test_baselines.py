"""The traditional schedulers: what they pick, that ties are stable, and how they are found by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.baselines.registry import DEFAULT_SCHEDULER, SCHEDULERS, make_scheduler
from policy.port import DeviceView
from policy.testing import a_device, a_model_task
from skerry.errors import SettingsError

TASK = a_model_task()
FIFO, ECT = make_scheduler("fifo-first-fit"), make_scheduler("shortest-expected-completion")


def on(
    device_id: str, *, slots: int = 1, running: int = 0, queued: int = 0, backlog_s: float = 0.0
) -> DeviceView:
    """A cpu with this load."""
    device = a_device("cpu", device_id, slots=slots)
    return DeviceView(device=device, running=running, queued=queued, backlog_s=backlog_s)


def test_shortest_completion_waits_for_a_fast_device_when_that_is_sooner() -> None:
    busy_npu = DeviceView(device=a_device("npu", "hailo-8l"), running=1, backlog_s=0.011)

    choice = ECT.choose(TASK, [on("cpu-1"), busy_npu], [0.116, 0.010])

    assert choice.index == 1
    assert choice.reason == "npu hailo-8l finishes first: 0.021 s against 0.116 s on cpu"
    assert choice.expected_s == pytest.approx((0.116, 0.021))
    assert choice.scores == pytest.approx((100 * 0.021 / 0.116, 100.0))


def test_shortest_completion_leaves_a_fast_device_whose_line_is_long() -> None:
    jammed_npu = DeviceView(device=a_device("npu", "hailo-8l"), running=1, queued=30, backlog_s=0.31)

    assert ECT.choose(TASK, [on("cpu-1"), jammed_npu], [0.116, 0.010]).index == 0


def test_a_free_slot_starts_at_once_and_busy_slots_share_the_wait() -> None:
    free, busy = on("a", slots=2, running=1, backlog_s=4.0), on("b", slots=2, running=2, backlog_s=4.0)

    assert ECT.choose(TASK, [free, busy], [1.0, 1.0]).expected_s == (1.0, 3.0)


def test_first_fit_takes_the_first_free_device_whatever_its_speed() -> None:
    choice = FIFO.choose(TASK, [on("c"), on("b"), on("a", running=1)], [0.01, 9.0, 0.01])

    assert choice.index == 1
    assert choice.reason == "cpu b is the first device with a free slot"


def test_first_fit_takes_the_shortest_line_when_none_is_free() -> None:
    choice = FIFO.choose(TASK, [on("a", running=1, queued=3), on("b", running=1, queued=1)], [1.0, 1.0])

    assert choice.index == 1
    assert choice.reason == "no device is free; cpu b has the shortest line: 2 before it"


loads = st.builds(
    lambda slots, running, queued, backlog_s: (slots, running, queued, backlog_s),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 20),
    st.floats(0, 100),
)


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(loads, st.floats(1e-6, 1e4)), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_choice_does_not_depend_on_the_order_of_devices(name: str, drawn: list, random: object) -> None:
    views = [
        on(f"d{i}", slots=load[0], running=load[1], queued=load[2], backlog_s=load[3])
        for i, (load, _) in enumerate(drawn)
    ]
    runtimes = [runtime for _, runtime in drawn]
    order = list(range(len(views)))
    random.shuffle(order)  # type: ignore[attr-defined]

    first = make_scheduler(name).choose(TASK, views, runtimes)
    again = make_scheduler(name).choose(TASK, [views[i] for i in order], [runtimes[i] for i in order])

    assert views[first.index] is views[order[again.index]]
    assert all(0 <= score <= 100 for score in first.scores)
    assert first.scores[first.index] == max(first.scores)
    assert len(first.scores) == len(first.expected_s) == len(views)


def test_an_unknown_scheduler_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"no scheduler 'fifo'; did you mean fifo-first-fit\?"):
        make_scheduler("fifo")
    with pytest.raises(
        SettingsError, match="known: earliest-deadline, fifo-first-fit, full-cost, least-allocated, "
    ):
        make_scheduler("zzz")


def test_the_default_scheduler_exists_and_each_answers_to_its_own_name() -> None:
    assert DEFAULT_SCHEDULER in SCHEDULERS
    assert all(make_scheduler(name).name == name for name in SCHEDULERS)
