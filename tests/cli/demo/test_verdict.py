"""The reckoning finds every kind of disagreement, and nothing where there is none."""

from __future__ import annotations

import msgspec
import pytest

from skerry.cli.demo.verdict import Effect, LedgerEntry, NodeEntry, Submission, Verdict, judge

SUBMITTED = [Submission(task_id="t", node="quay", kind="pitch", number=0)]
HOME = NodeEntry(
    node="quay", state="done", fence="-/2", is_home=True, attempts={"-/1": "interrupted", "-/2": "succeeded"}
)
LEDGER = LedgerEntry(status="succeeded", fence="-/2", node="quay")
EFFECTS = [Effect(task_id="t", fence="-/2")]


def reckon(
    effects: list[Effect] = EFFECTS,
    entries: tuple[NodeEntry, ...] = (HOME,),
    ledger: LedgerEntry | None = LEDGER,
) -> Verdict:
    return judge(SUBMITTED, effects, {"t": entries}, {"t": ledger} if ledger else {})


def changed(**fields: object) -> tuple[NodeEntry, ...]:
    return (msgspec.structs.replace(HOME, **fields),)


def test_four_records_that_agree_are_clean() -> None:
    assert reckon().is_clean


def test_an_attempt_cut_short_is_counted_and_may_leave_a_line() -> None:
    verdict = reckon([*EFFECTS, Effect(task_id="t", fence="-/1")])

    assert verdict.is_clean
    assert verdict.attempts_cut_short == 1


def test_a_task_placed_elsewhere_is_looked_up_where_it_ran() -> None:
    home = changed(fence="1.7/1", attempts={})
    there = NodeEntry(
        node="reef", state="done", fence="1.7/1", is_home=False, attempts={"1.7/1": "succeeded"}
    )
    ledger = LedgerEntry(status="succeeded", fence="1.7/1", node="reef")
    effects = [Effect(task_id="t", fence="1.7/1")]

    assert reckon(effects, (*home, there), ledger).is_clean
    assert not reckon(effects, home, ledger).is_clean


def test_a_task_its_home_does_not_know_or_has_not_done_is_lost() -> None:
    assert reckon(entries=()).lost == 1
    assert reckon(entries=changed(state="running")).lost == 1


@pytest.mark.parametrize(
    ("effects", "entries"),
    [
        ([*EFFECTS, *EFFECTS], (HOME,)),
        (EFFECTS, changed(attempts={"-/1": "succeeded", "-/2": "succeeded"})),
    ],
)
def test_two_effects_under_one_fence_or_two_successes_are_done_twice(
    effects: list[Effect], entries: tuple[NodeEntry, ...]
) -> None:
    assert reckon(effects, entries).done_twice == 1


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (reckon(ledger=None), "missing from the ledger"),
        (reckon(ledger=msgspec.structs.replace(LEDGER, fence="-/1")), "under -/1"),
        (reckon(ledger=msgspec.structs.replace(LEDGER, status="dead")), "has dead"),
        (reckon(effects=[]), "0 effects"),
        (reckon([*EFFECTS, Effect(task_id="t", fence="-/9")]), "ended nowhere"),
        (reckon([*EFFECTS, Effect(task_id="ghost", fence="-/1")]), "never submitted"),
    ],
)
def test_each_disagreement_is_told_in_words(verdict: Verdict, says: str) -> None:
    assert not verdict.is_clean
    assert says in " ".join(verdict.problems)
