"""Ids, fences, clocks, the directory lock and decisions in words."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skerry.clock import Instant, is_wall_trusted
from skerry.decision import Candidate, Decision, Verdict, explain
from skerry.errors import DirectoryInUse, SpecError
from skerry.fence import Fence, parse_fence
from skerry.ids import TaskIdSource, check_name, millisecond_of, parse_task_id
from skerry.lock import DirectoryLock

HOLDER = """
    import pathlib, sys
    from skerry.lock import DirectoryLock
    lock = DirectoryLock(pathlib.Path(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
"""
paths = st.lists(st.integers(0, 10**6), max_size=4).map(tuple)


@given(st.lists(st.floats(0, 4e9), min_size=1, max_size=50), st.integers(0, 2**44))
def test_ids_grow_whatever_the_wall_clock_does(walls: list[float], floor_ms: int) -> None:
    readings = iter(walls)
    source = TaskIdSource(lambda: next(readings), floor_ms=floor_ms)

    ids = [source.next() for _ in walls]

    assert ids == sorted(set(ids))
    assert all(parse_task_id(i) == i and millisecond_of(i) >= floor_ms for i in ids)


@given(paths, st.integers(0, 99), paths, st.integers(0, 99))
def test_fences_are_ordered_by_placement_first_and_survive_their_text(
    a: tuple[int, ...], m: int, b: tuple[int, ...], n: int
) -> None:
    first, second = Fence(a, m), Fence(b, n)

    assert (first < second) == ((a, m) < (b, n))
    assert parse_fence(str(first)) == first


def test_a_nested_placement_is_under_the_one_it_holds_and_no_other() -> None:
    held = Fence((3, 17))

    assert Fence((3, 17, 2), 1).is_under(held)
    assert not Fence((3, 18), 1).is_under(held)
    assert Fence((), 5) < held


@pytest.mark.parametrize("text", ["", "1/", "x/1", "1.2", "1..2/3", "-"])
def test_text_that_is_no_fence_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not a fencing token"):
        parse_fence(text)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "a+b", "#", "ä", "a" * 65])
def test_a_name_that_may_not_stand_in_a_topic_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="node"):
        check_name(name, what="node")


def test_moments_of_two_boots_are_never_subtracted() -> None:
    assert Instant("a", 10.0).since(Instant("a", 4.0)) == 6.0
    assert Instant("b", 10.0).since(Instant("a", 4.0)) == 0.0


def test_a_clock_that_starts_in_1970_is_not_trusted() -> None:
    assert not is_wall_trusted(12.0)


def test_a_second_owner_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    hold = textwrap.dedent(HOLDER)
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"

        with pytest.raises(DirectoryInUse, match=str(owner.pid)):
            DirectoryLock(tmp_path)

        owner.kill()
        owner.wait()
        with DirectoryLock(tmp_path):
            assert (tmp_path / "owner.lock").read_text() == f"{os.getpid()}\n"


def test_a_decision_in_words_names_the_winner_and_why_each_other_was_not_chosen() -> None:
    decision = Decision(
        task_id="t",
        decided_by="baseline:shortest-expected-completion",
        node="quay-1",
        device="npu-1",
        reason="it finishes first",
        candidates=(
            Candidate(node="quay-1", device="npu-1", device_class="npu", score=100.0, expected_s=0.02),
            Candidate(node="quay-1", device="cpu-1", score=20.0, expected_s=0.1),
            Candidate(
                node="quay-1",
                device="tpu-1",
                device_class="tpu",
                verdicts=(Verdict(rule="memory", allowed=False, message="needs 3 GiB, has 1 GiB"),),
            ),
        ),
    )

    text = explain(decision)

    assert "npu-1 on quay-1: it finishes first" in text
    assert "npu-1 (npu) on quay-1: chosen, expected in 0.020 s, score 100" in text
    assert "needs 3 GiB, has 1 GiB [memory]" in text
