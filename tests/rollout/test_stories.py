"""Rollouts from start to each of their ends, told as stories on a virtual clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.rollout.values import Progress, RolloutState, VersionState
from skerry.errors import PolicyError, SpecError
from skerry.messages import PolicyReport
from tests.rollout.fleet import Coordinator, a_comparison

DAY_S = 86_400.0


def test_a_good_version_goes_from_one_canary_to_everyone() -> None:
    there = Coordinator("n1", "n2", "n3")
    there.add("a")
    there.start("a")
    assert [there.policies_told(n) for n in ("n1", "n2", "n3")] == [["a"], [], []]
    there.say("n1", "shadow")
    there.evidence("n1", "canary")
    there.evidence("n1", "partial")
    assert there.only.state is RolloutState.CANARY

    there.evidence("n1", "full")
    assert there.only.state is RolloutState.FLEET
    there.say("n2", "shadow")
    there.say("n3", "shadow")

    assert there.only.state is RolloutState.DONE
    assert there.current == there.only.policy
    assert [there.policies_told(n) for n in ("n1", "n2", "n3")] == [["a"], ["a"], ["a"]]


def test_a_canary_whose_gate_rolls_back_takes_the_version_from_everyone() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.done("a")
    there.add("b")
    there.start("b")
    there.evidence("n1", "canary")
    there.evidence("n1", "rolled_back", "worse than the fallback")

    rollout = there.rollouts.book.rollout("r2")
    assert rollout.state is RolloutState.ROLLED_BACK
    assert "n1 (failed)" in rollout.reason
    assert there.policies_told("n1") == ["a", "b", "a"]
    assert there.policies_told("n2") == ["a"]
    assert there.rollouts.book.version("b" * 12).state is VersionState.WITHDRAWN
    with pytest.raises(PolicyError, match="withdrawn"):
        there.start("b")


def test_why_a_rollout_was_taken_back_is_there_when_its_canary_has_long_gone_back() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.done("a")
    there.add("b")
    there.start("b")
    there.evidence("n1", "rolled_back", "worse than the fallback")
    there.say("n1", "shadow")
    there.restart()

    rollout = there.rollouts.book.rollout("r2")
    found = there.rollouts.progress(rollout, there.at, there.fleet)
    words = there.rollouts.book.node_in("r2", "n1")
    assert found == {"n1": Progress.FAILED}
    assert (words.state, words.reason) == ("rolled_back", "worse than the fallback")
    assert words.evidence
    assert there.rollouts.book.node("n1").state == "shadow"


def test_a_policy_that_the_node_refuses_is_a_failed_canary() -> None:
    there = Coordinator("n1")
    there.add("a")
    there.start("a")
    there.say("n1", "refused", "weights are not all numbers")

    assert there.only.state is RolloutState.ROLLED_BACK
    assert there.policies_told("n1") == ["a", ""]


def test_a_canary_that_never_answers_counts_as_failed_on_time() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.start("a", silence_s=300)
    there.wait(290)
    assert there.only.state is RolloutState.CANARY
    there.wait(20)

    assert there.only.state is RolloutState.ROLLED_BACK
    assert "n1 (silent)" in there.only.reason


def test_a_canary_that_answers_but_does_not_get_on_ends_the_wave_at_its_deadline() -> None:
    there = Coordinator("n1")
    there.add("a")
    there.start("a", wave_s=3600)
    there.say("n1", "shadow")
    there.wait(3500)
    assert there.only.state is RolloutState.CANARY
    there.wait(200)

    assert there.only.state is RolloutState.ROLLED_BACK
    assert "only 0 of 1 canaries passed" in there.only.reason


def test_a_disconnected_canary_pauses_the_rollout_and_its_clock() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.start("a", wave_s=3600)
    there.say("n1", "canary")
    there.wait(1000)
    there.leave("n1")
    there.wait(10)
    assert there.only.state is RolloutState.PAUSED
    assert there.only.waits_for == "n1"
    there.wait(DAY_S, step_s=600)
    assert there.only.state is RolloutState.PAUSED
    assert there.policies_told("n1") == ["a"]

    there.come_back("n1")
    there.wait(10)
    assert there.only.state is RolloutState.CANARY
    there.wait(2000)
    assert there.only.state is RolloutState.CANARY
    there.evidence("n1", "full")
    assert there.only.state is RolloutState.FLEET


def test_a_pause_does_not_last_for_ever() -> None:
    there = Coordinator("n1")
    there.add("a")
    there.start("a", patience_s=DAY_S)
    there.leave("n1")
    there.wait(DAY_S + 1200, step_s=600)

    assert there.only.state is RolloutState.ROLLED_BACK
    assert "n1 was disconnected" in there.only.reason


def test_what_a_canary_says_during_a_pause_counts() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.start("a", canaries=("n1", "n2"))
    there.leave("n2")
    there.wait(10)
    assert there.only.state is RolloutState.PAUSED
    there.evidence("n1", "rolled_back")

    assert there.only.state is RolloutState.ROLLED_BACK


def test_a_node_that_returns_after_days_goes_straight_to_what_is_current() -> None:
    there = Coordinator("n1", "n2", "n3")
    for digit in "abc":
        there.add(digit)
    there.leave("n3")
    there.done("a")
    there.done("b")
    there.wait(10 * DAY_S, step_s=3600)
    there.done("c")
    assert there.policies_told("n3") == []
    there.come_back("n3")

    assert there.policies_told("n3") == ["c"]


def test_a_node_that_was_away_during_a_rollback_is_told_on_its_return() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.start("a", canaries=("n1", "n2"))
    there.leave("n2")
    there.evidence("n1", "rolled_back")
    assert there.policies_told("n2") == ["a"]
    there.come_back("n2")

    assert there.policies_told("n2") == ["a", ""]


def test_a_version_that_fails_on_many_nodes_after_the_rollout_is_taken_back() -> None:
    there = Coordinator(*[f"n{i}" for i in range(10)])
    there.add("a")
    there.done("a")
    for node in ("n3", "n4"):
        there.evidence(node, "rolled_back")
    assert there.only.state is RolloutState.DONE
    there.evidence("n5", "rolled_back")

    assert there.only.state is RolloutState.ROLLED_BACK
    assert there.current == ""
    assert there.policies_told("n9") == ["a", ""]


def test_one_rollout_at_a_time() -> None:
    there = Coordinator("n1")
    there.add("a")
    there.add("b")
    there.start("a")

    with pytest.raises(PolicyError, match="one at a time"):
        there.start("b")


def test_an_operator_pauses_resumes_and_aborts() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.start("a")
    there.rollouts.pause("r1", there.at, by="ann")
    there.evidence("n1", "full")
    assert there.only.state is RolloutState.PAUSED
    assert there.policies_told("n2") == []
    there.rollouts.resume("r1", there.at, there.fleet, there.tell, by="ann")
    assert there.only.state is RolloutState.FLEET
    assert there.policies_told("n2") == ["a"]
    there.rollouts.abort("r1", there.at, there.fleet, there.tell, by="ann")

    assert there.only.state is RolloutState.ABORTED
    assert there.policies_told("n1") == ["a", ""]
    with pytest.raises(PolicyError, match="aborted already"):
        there.rollouts.pause("r1", there.at, by="ann")


def progress(there: Coordinator, rollout_id: str) -> dict[str, Progress]:
    return there.rollouts.progress(there.rollouts.book.rollout(rollout_id), there.at, there.fleet)


def test_nobody_is_still_trying_what_was_aborted() -> None:
    there = Coordinator("n1", "n2", "n3", "n4")
    there.add("a")
    there.start("a", canaries=("n1", "n2", "n3", "n4"), silence_s=300)
    there.say("n1", "shadow")
    there.evidence("n2", "full")
    there.say("n4", "shadow")
    there.leave("n4")
    there.rollouts.abort("r1", there.at, there.fleet, there.tell, by="ann")

    told_to_go_back = {"n1": Progress.LEFT, "n2": Progress.PASSED, "n3": Progress.LEFT}
    assert progress(there, "r1") == {**told_to_go_back, "n4": Progress.AWAY}
    there.wait(400)
    there.come_back("n4")
    assert progress(there, "r1") == {**told_to_go_back, "n4": Progress.LEFT}


def test_a_rollback_shows_who_caused_it_and_that_the_others_left() -> None:
    there = Coordinator("n1", "n2", "n3")
    there.add("a")
    there.start("a", canaries=("n1", "n2", "n3"), canary_failures=0.5)
    there.say("n1", "shadow")
    there.say("n2", "refused", "no such operator")
    there.wait(700)

    assert there.only.state is RolloutState.ROLLED_BACK
    assert progress(there, "r1") == {"n1": Progress.LEFT, "n2": Progress.FAILED, "n3": Progress.SILENT}


def test_a_node_in_a_newer_rollout_does_not_wait_for_the_older_one() -> None:
    there = Coordinator("n1", "n2", "n3")
    there.add("a")
    there.add("b")
    there.leave("n3")
    there.done("a")
    there.start("b", canaries=("n2",))

    assert progress(there, "r1") == {"n1": Progress.PASSED, "n2": Progress.LEFT, "n3": Progress.AWAY}


def test_a_node_that_waits_shows_nothing_of_an_earlier_rollout() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.add("b")
    there.done("a")
    there.say("n2", "shadow", "began")
    there.start("b")

    assert there.rollouts.book.node_in("r2", "n2").state == ""


def test_a_version_that_does_not_beat_the_fallback_never_becomes_a_canary_unasked() -> None:
    there = Coordinator("n1")
    version = there.add("a", a_comparison(0.9), a_comparison(1.03))

    assert version.state is VersionState.UNPROVEN
    with pytest.raises(PolicyError, match="unproven"):
        there.start("a")
    assert there.start("a", may_be_unproven=True).state is RolloutState.CANARY


def test_deadlines_go_on_over_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    there = Coordinator("n1", "n2", ledger=SqliteLedger(tmp_path / "ledger.db"))
    there.add("a")
    there.start("a", silence_s=300)
    there.wait(200)
    there.restart()
    there.wait(90)
    assert there.only.state is RolloutState.CANARY
    there.wait(30)

    assert there.only.state is RolloutState.ROLLED_BACK
    assert there.policies_told("n1") == ["a", ""]
    there.ledger.close()


def test_a_node_whose_store_was_lost_is_told_again() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.come_back("n2", "store-1")
    there.done("a")
    there.come_back("n2", "store-1")
    assert there.policies_told("n2") == ["a"]
    there.come_back("n2", "store-2")

    assert there.policies_told("n2") == ["a", "a"]


def test_words_about_an_older_order_change_nothing() -> None:
    there = Coordinator("n1", "n2")
    there.add("a")
    there.start("a")
    said = PolicyReport(policy="sha256:old", state="rolled_back", rollout="r0")
    there.rollouts.reported("n1", said, there.at, there.fleet, there.tell)

    assert there.only.state is RolloutState.CANARY


@pytest.mark.parametrize(("gate", "words"), [({"blocks": 3.0}, "blocks"), ({"failures": 0.0}, "failures")])
def test_settings_that_no_gate_takes_are_named_before_anything_begins(
    gate: dict[str, float], words: str
) -> None:
    there = Coordinator("n1")
    there.add("a")

    with pytest.raises(SpecError, match=words):
        there.start("a", gate=gate)
    assert there.rollouts.book.active is None
