"""Instructions to train: each counts once, a newer one of its run replaces one not begun, time is counted."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.training_inbox import (
    ASKED_LIMIT,
    KNOWN_LIMIT,
    REQUEST_LIMIT_BYTES,
    SUPERSEDED,
    UPDATES_KEPT,
    TrainingState,
    aged,
    begun,
    ended,
    kept,
    take,
)
from skerry.clock import Instant
from skerry.messages import FederationOver, FederationRequest
from skerry.testing import ManualClock
from task_queue.limits import META_LIMIT_BYTES

NOW = ManualClock().now()


def asks(run: str = "r1", version: int = 0, **fields: Any) -> FederationRequest:
    values = {"ttl_s": 1000.0, "model": f"sha256:{'0' * 64}", "trainer": "null", **fields}
    return FederationRequest(instruction_id=f"{run}-{version}", run_id=run, version=version, **values)


def waiting(state: TrainingState) -> list[str]:
    return [one.request.instruction_id for one in state.asked]


def test_the_same_instruction_again_changes_nothing() -> None:
    state, answers = take(TrainingState(), [asks(), asks()], NOW)
    again, more = take(state, [asks()], NOW)

    assert waiting(again) == ["r1-0"]
    assert answers == more == []


def test_an_instruction_that_was_answered_is_not_done_twice() -> None:
    state, _ = take(TrainingState(), [asks()], NOW)

    again, answers = take(ended(state, "r1-0"), [asks()], NOW)

    assert waiting(again) == []
    assert answers == []


def test_a_newer_one_replaces_one_that_was_not_begun() -> None:
    state, _ = take(TrainingState(), [asks(version=0)], NOW)

    state, answers = take(state, [asks(version=1)], NOW)

    assert waiting(state) == ["r1-1"]
    assert [(answer.instruction_id, answer.error) for answer in answers] == [("r1-0", SUPERSEDED)]


def test_one_that_was_begun_goes_on_and_contributes_late() -> None:
    state, _ = take(TrainingState(), [asks(version=0)], NOW)

    state, answers = take(begun(state, "r1-0"), [asks(version=1)], NOW)

    assert waiting(state) == ["r1-0", "r1-1"]
    assert answers == []


def test_an_older_one_that_comes_late_is_answered_as_superseded() -> None:
    state, _ = take(TrainingState(), [asks(version=3)], NOW)

    state, answers = take(state, [asks(version=2)], NOW)

    assert waiting(state) == ["r1-3"]
    assert [answer.error for answer in answers] == [SUPERSEDED]


def test_runs_do_not_replace_each_others_instructions() -> None:
    state, answers = take(TrainingState(), [asks("r1"), asks("r2", 5)], NOW)

    assert waiting(state) == ["r1-0", "r2-5"]
    assert answers == []


def test_the_end_of_a_run_drops_what_waits_for_it_without_an_answer() -> None:
    state, _ = take(TrainingState(), [asks("r1"), asks("r2")], NOW)

    state, answers = take(state, [FederationOver(run_id="r1")], NOW)

    assert waiting(state) == ["r2-0"]
    assert answers == []
    assert waiting(take(state, [asks("r1")], NOW)[0]) == ["r2-0"]


def test_more_runs_than_a_node_serves_are_refused_by_name() -> None:
    state, _ = take(TrainingState(), [asks(f"r{n}") for n in range(ASKED_LIMIT)], NOW)

    state, answers = take(state, [asks("one-more")], NOW)

    assert len(state.asked) == ASKED_LIMIT
    assert "runs already" in answers[0].error


def test_an_instruction_that_is_too_large_is_refused() -> None:
    state, answers = take(TrainingState(), [asks(config={"x": "y" * REQUEST_LIMIT_BYTES})], NOW)

    assert waiting(state) == []
    assert "bytes" in answers[0].error


def test_an_instruction_whose_answer_nobody_wants_any_more_is_dropped() -> None:
    clock = ManualClock()
    state, _ = take(TrainingState(), [asks(ttl_s=100.0)], clock.now())

    assert waiting(aged(state, clock.advance(99.0))) == ["r1-0"]
    assert waiting(aged(state, clock.advance(2.0))) == []


def test_time_without_power_does_not_count_and_time_before_it_does() -> None:
    clock = ManualClock()
    state, _ = take(TrainingState(), [asks(ttl_s=100.0)], clock.now())
    state = aged(state, clock.advance(60.0))

    state = aged(state, clock.reboot("boot-2", off_s=1e6))

    assert waiting(aged(state, clock.advance(39.0))) == ["r1-0"]
    assert waiting(aged(state, clock.advance(2.0))) == []


def test_a_try_that_was_ended_in_order_does_not_count() -> None:
    state, _ = take(TrainingState(), [asks()], NOW)

    assert begun(begun(state, "r1-0"), "r1-0", by=-1) == state


def test_updates_are_kept_for_the_uplink_the_newest_ones() -> None:
    state = TrainingState()
    gone: list[str] = []
    for n in range(UPDATES_KEPT + 3):
        state, now_gone = kept(state, f"u{n}")
        gone += now_gone

    assert gone == ["u0", "u1", "u2"]
    assert state.updates[-1] == f"u{UPDATES_KEPT + 2}"


def test_the_fullest_state_fits_into_one_value_of_the_store() -> None:
    text = "x" * (REQUEST_LIMIT_BYTES - 300)
    state = TrainingState(known=tuple(f"{n:032x}" for n in range(KNOWN_LIMIT)))
    for run in range(ASKED_LIMIT):
        for version in (0, 1):
            state, answers = take(state, [asks(f"run-{run}", version, config={"x": text})], NOW)
            assert answers == []
            state = begun(state, f"run-{run}-0")
    for n in range(UPDATES_KEPT):
        state, _ = kept(state, f"sha256:{n:064x}")

    assert len(msgspec.json.encode(state)) <= META_LIMIT_BYTES
    assert msgspec.convert(msgspec.to_builtins(state), TrainingState) == state


steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(["r1", "r2"]), st.integers(0, 4)),
        st.tuples(st.just("begin"), st.sampled_from(["r1", "r2"]), st.integers(0, 4)),
        st.tuples(st.just("end"), st.sampled_from(["r1", "r2"]), st.integers(0, 4)),
        st.tuples(st.just("over"), st.sampled_from(["r1", "r2"]), st.just(0)),
    ),
    max_size=30,
)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(steps)
def test_no_instruction_is_answered_twice_or_waits_afterwards(
    story: list[tuple[str, str, int]],
) -> None:
    state, now = TrainingState(), Instant("boot", 1.0)
    done: list[str] = []
    for what, run, version in story:
        one = f"{run}-{version}"
        if what == "ask":
            state, answers = take(state, [asks(run, version)], now)
            done += [answer.instruction_id for answer in answers]
        elif what == "over":
            state, answers = take(state, [FederationOver(run_id=run)], now)
            assert answers == []
        elif state.find(one) is not None:
            state = begun(state, one) if what == "begin" else ended(state, one)
            done += [one] if what == "end" else []
        assert len(done) == len(set(done))
        assert not set(waiting(state)) & set(done)
        assert len(set(waiting(state))) == len(state.asked)
