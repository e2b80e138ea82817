"""What becomes of a task that its home cannot run: the coordinator's core, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cloud_coordinator.core import events as happened
from cloud_coordinator.core.turn import Limits
from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.ledger.values import TaskState
from cloud_coordinator.placement.request import Plan
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.testing import ModelFleet, an_inventory
from skerry.fence import Fence
from skerry.messages import (
    Lane,
    LossReported,
    Outcome,
    Row,
    StoreSalvaged,
    StreamBatch,
    TaskEnded,
    TaskOffered,
    TaskWithdrawn,
    row_of,
)
from skerry.task import Constraints, OnnxSpec, Resources
from skerry.testing import a_task


@pytest.fixture
def fleet() -> ModelFleet:
    """Home n1, and n2 and n3 that can take its tasks."""
    made = ModelFleet()
    for name in ("n1", "n2", "n3"):
        made.add(name)
    return made


def placed_on(fleet: ModelFleet, task_id: str) -> str:
    return next((node.name for node in fleet.nodes.values() if task_id in node.holds), "")


def other(name: str) -> str:
    return "n3" if name == "n2" else "n2"


def place_one(fleet: ModelFleet, **fields: object) -> tuple[str, str]:
    """Offer one task from n1 and have it placed; return its id and its node."""
    task_id = fleet.offer("n1", a_task(**fields))
    fleet.settle()
    node = placed_on(fleet, task_id)
    assert node
    return task_id, node


def test_an_offered_task_is_placed_ends_and_returns_home(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fence = fleet.nodes[node].finish(task_id, result={"hz": 220})
    fleet.settle()

    returned = fleet.nodes["n1"].returned[task_id]
    assert (returned.outcome.result, returned.fence) == ({"hz": 220}, fence)
    entry = fleet.task(task_id)
    assert (entry.state, entry.fence, entry.node) == (TaskState.ENDED, fence, node)
    assert [one.ended for one in fleet.ledger.placements(task_id)] == ["ended"]


def test_the_home_hears_where_its_task_went_and_why(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)

    (notice,) = fleet.nodes["n1"].told
    assert (notice.task_id, notice.node) == (task_id, node)
    assert {candidate.node for candidate in notice.decision.candidates} >= {"n2", "n3"}
    assert len(fleet.waited_s) == 1
    assert 0 < fleet.waited_s[0] < 1


def test_the_first_fence_of_a_term_is_its_number_and_one(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)

    assert fleet.nodes[node].holds[task_id].fence == Fence((1, 1))


def test_a_duplicate_offer_changes_nothing(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    before = fleet.task(task_id)

    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    assert fleet.task(task_id) == before
    assert fleet.counted("duplicates", "task.offered") == 1
    assert placed_on(fleet, task_id) == node


def test_a_finished_task_is_never_placed_again_and_its_home_hears_the_end_once_more(
    fleet: ModelFleet,
) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].finish(task_id)
    fleet.settle()
    fleet.nodes["n1"].returned.clear()

    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.ENDED
    assert not placed_on(fleet, task_id)
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_a_failure_that_its_home_replays_is_placed_under_a_higher_fence(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    first = fleet.nodes[node].finish(task_id, status="failed")
    fleet.settle()

    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    again = placed_on(fleet, task_id)
    assert first < fleet.nodes[again].holds[task_id].fence


def test_a_task_that_its_own_node_finished_is_recorded(fleet: ModelFleet) -> None:
    task_id = "f" * 32
    ended = TaskEnded(task_id=task_id, task_kind="k", fence=Fence((), 2), outcome=Outcome(status="succeeded"))
    for _ in range(2):
        fleet.nodes["n1"].say(ended)
    fleet.settle()

    entry = fleet.task(task_id)
    assert (entry.state, entry.home_node, entry.fence, entry.task) == (
        TaskState.ENDED,
        "n1",
        Fence((), 2),
        None,
    )
    assert fleet.counted("duplicates", "task.ended") == 1


def test_a_refused_placement_goes_elsewhere_with_the_reason_kept(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)

    fleet.nodes[node].refuse(task_id, "memory cap")
    fleet.settle()

    assert placed_on(fleet, task_id) == other(node)
    assert fleet.task(task_id).excluded == {node: "memory cap"}
    assert [one.ended for one in fleet.ledger.placements(task_id)] == ["refused", ""]


def test_a_task_that_all_refuse_waits_and_its_home_is_told_once(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].refuse(task_id, "memory cap")
    fleet.settle()
    fleet.nodes[other(node)].refuse(task_id, "memory cap")
    fleet.pass_time(60)

    assert fleet.task(task_id).state is TaskState.PENDING
    waits = [notice for notice in fleet.nodes["n1"].told if not notice.node]
    assert len(waits) == 1
    assert "memory cap" in str(waits[0].decision)


def test_a_node_that_starts_anew_may_take_what_it_refused(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].refuse(task_id, "memory cap")
    fleet.settle()
    second = placed_on(fleet, task_id)
    fleet.nodes[second].refuse(task_id, "memory cap")
    fleet.settle()

    fleet.connect(node)
    fleet.settle()

    assert placed_on(fleet, task_id) == node


def test_an_impossible_task_waits_with_reasons_until_a_node_comes_that_can(fleet: ModelFleet) -> None:
    task_id = fleet.offer("n1", a_task(resources=Resources(accelerator="gpu")))
    fleet.settle()
    assert fleet.task(task_id).state is TaskState.PENDING
    assert "gpu" in fleet.task(task_id).waits

    fleet.add("n4", device_class="gpu")
    fleet.settle()

    assert placed_on(fleet, task_id) == "n4"


def test_a_waiting_task_expires_by_its_own_time_and_says_why(fleet: ModelFleet) -> None:
    task_id = fleet.offer("n1", a_task(resources=Resources(accelerator="gpu"), expires_after_s=30.0))
    fleet.settle()
    fleet.pass_time(35)

    outcome = fleet.nodes["n1"].returned[task_id].outcome
    assert outcome.status == "expired"
    assert "gpu" in outcome.error


def test_a_placed_task_carries_the_time_that_is_left(fleet: ModelFleet) -> None:
    for name in ("n2", "n3"):
        fleet.cut(name)
    fleet.pass_time(20)
    task_id = fleet.offer("n1", a_task(expires_after_s=100.0))
    fleet.pass_time(10)
    fleet.connect("n2")
    fleet.settle()

    left = fleet.nodes["n2"].holds[task_id].task.expires_after_s
    assert left is not None
    assert 94 < left < 96, "it was offered 5 s before it was placed"


def test_a_withdrawn_task_is_dropped_where_it_runs_and_its_late_result_is_fenced(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.cut(node)
    fleet.withdraw("n1", task_id)
    fleet.settle()
    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.WITHDRAWN
    assert task_id not in fleet.nodes["n1"].returned
    assert fleet.counted("fenced") == 1


def test_a_withdrawal_that_overtakes_its_offer_places_nothing(fleet: ModelFleet) -> None:
    task_id = "e" * 32
    fleet.nodes["n1"].say(TaskWithdrawn(task_id=task_id), Lane.CONTROL)
    fleet.settle()
    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.WITHDRAWN
    assert not placed_on(fleet, task_id)


# --- silence --------------------------------------------------------------------------------------------


def test_a_node_that_is_cut_off_keeps_its_work_before_the_lease_ends(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.cut(node)
    fleet.pass_time(50)

    assert fleet.core.memory.nodes[node].record.status == "stale"
    assert len(fleet.ledger.placements(task_id)) == 1

    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"
    assert fleet.counted("fenced") == 0


def test_after_the_lease_the_task_is_placed_elsewhere_and_the_late_result_is_refused(
    fleet: ModelFleet,
) -> None:
    task_id, node = place_one(fleet)
    fleet.cut(node)
    fleet.pass_time(70)
    second = other(node)
    assert fleet.nodes[second].holds[task_id].fence == Fence((1, 2))

    fleet.nodes[node].finish(task_id, result="late")
    fleet.connect(node)
    fleet.settle()
    assert fleet.task(task_id).state is TaskState.PLACED
    assert fleet.counted("fenced") == 1

    fleet.nodes[second].finish(task_id, result="current")
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.result == "current"
    assert [one.ended for one in fleet.ledger.placements(task_id)] == ["lapsed", "ended"]


def test_a_node_back_before_another_place_is_found_keeps_its_task(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, constraints=Constraints(nodes=("n2", "n3")))
    fleet.cut(other(node))
    fleet.cut(node)
    fleet.pass_time(300)
    assert len(fleet.ledger.placements(task_id)) == 1

    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_a_pinned_task_of_a_node_offline_for_three_days_has_one_placement(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, constraints=Constraints(nodes=("n2",)))
    fleet.cut(node)
    fleet.pass_time(72 * 3600, step_s=600)

    assert len(fleet.ledger.placements(task_id)) == 1
    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_reports_renew_the_lease_of_what_the_node_holds(fleet: ModelFleet) -> None:
    task_id, _ = place_one(fleet)
    fleet.pass_time(600)

    assert len(fleet.ledger.placements(task_id)) == 1


def test_an_at_most_once_task_is_never_placed_again(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, effect="at_most_once")
    fleet.cut(node)
    fleet.pass_time(70)

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "unknown"
    assert len(fleet.ledger.placements(task_id)) == 1

    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()
    assert fleet.task(task_id).outcome == fleet.nodes["n1"].returned[task_id].outcome
    assert fleet.counted("fenced") == 1


def test_our_own_outage_counts_against_no_node(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, effect="at_most_once")
    fleet.give(happened.BrokerDown())
    for name in fleet.nodes:
        fleet.cut(name)
    fleet.pass_time(1000)
    fleet.give(happened.BrokerUp())
    for name in fleet.nodes:
        fleet.nodes[name].is_cut = False
    fleet.pass_time(5)

    assert fleet.task(task_id).state is TaskState.PLACED
    assert fleet.core.memory.nodes[node].record.status == "online"


def test_a_placement_that_a_node_dropped_before_starting_goes_elsewhere(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    del fleet.nodes[node].holds[task_id]
    fleet.pass_time(5)
    assert len(fleet.ledger.placements(task_id)) == 1, "one report may overtake the row that tells of the end"
    fleet.pass_time(5)

    assert len(fleet.ledger.placements(task_id)) == 2
    assert placed_on(fleet, task_id)


def test_an_end_on_its_way_is_not_taken_for_a_loss(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].finish(task_id)
    state = fleet.nodes[node].state()
    for _ in range(5):
        fleet.give(happened.Heard(node, "state", msgspec.json.encode(state)))

    assert fleet.task(task_id).state is TaskState.PLACED
    assert len(fleet.ledger.placements(task_id)) == 1


@pytest.mark.parametrize(("effect", "status"), [("idempotent", ""), ("at_most_once", "unknown")])
def test_a_node_that_lost_its_store_lost_what_it_had_taken(
    fleet: ModelFleet, effect: str, status: str
) -> None:
    task_id, node = place_one(fleet, effect=effect)
    lost = fleet.nodes[node]
    lost.store_epoch, lost.command_epoch, lost.marks = "store-2", "", {}
    lost.holds.clear()
    fleet.connect(node)
    fleet.settle()

    ended = fleet.nodes["n1"].returned.get(task_id)
    assert (ended.outcome.status if ended else "") == status
    assert bool(placed_on(fleet, task_id)) is not bool(status)


def test_a_revoked_node_is_not_heard_and_its_work_goes_elsewhere(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.give(happened.NodeRevoked(node))
    fleet.settle()

    assert task_id in fleet.nodes[other(node)].holds
    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    assert fleet.counted("refused", "unknown_sender") > 0
    assert fleet.task(task_id).state is TaskState.PLACED


def test_a_home_that_is_gone_finds_its_result_when_it_is_back(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.cut("n1")
    fleet.nodes[node].finish(task_id)
    fleet.settle()
    fleet.pass_time(72 * 3600, step_s=3600)
    fleet.restart()

    fleet.connect("n1")
    fleet.settle()

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


# --- rows -----------------------------------------------------------------------------------------------


def test_repeated_and_reordered_batches_apply_each_row_once(fleet: ModelFleet) -> None:
    node = fleet.nodes["n1"]
    ids = [fleet.offer("n1") for _ in range(4)]
    (whole,) = node.batches()
    first, second = whole.rows[:2], whole.rows[2:]
    late = StreamBatch(epoch=node.store_epoch, lane=Lane.LIVE, after=second[0].seq - 1, rows=second)
    early = StreamBatch(epoch=node.store_epoch, lane=Lane.LIVE, after=whole.after, rows=first)
    for batch in (late, early, early, late, whole):
        fleet.give(happened.Heard("n1", "stream.batch", msgspec.json.encode(batch)))
    fleet.settle()

    assert [fleet.task(task_id).state for task_id in ids] == [TaskState.PLACED] * 4
    assert fleet.counted("tasks_offered") == 4
    assert fleet.counted("duplicates") == 0


def test_rows_that_cannot_be_understood_are_set_aside_and_the_others_pass(fleet: ModelFleet) -> None:
    node = fleet.nodes["n1"]
    for kind, body in (("weather.seen", b"{}"), ("task.offered", b'{"kind":"task.offered"}')):
        node.last[Lane.LIVE] += 1
        node.outbox[Lane.LIVE].append(Row(seq=node.last[Lane.LIVE], kind=kind, body=msgspec.Raw(body)))
    task_id = fleet.offer("n1")
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.PLACED
    reasons = [letter.reason for letter in fleet.ledger.dead_letters()]
    assert len(reasons) == 2
    assert any("weather.seen" in reason for reason in reasons)


@pytest.mark.parametrize(
    "row",
    [
        TaskOffered(task_id="1".zfill(32), task=a_task()),
        TaskWithdrawn(task_id="1".zfill(32)),
        TaskEnded(
            task_id="1".zfill(32), task_kind="k", fence=Fence((), 1), outcome=Outcome(status="succeeded")
        ),
        TaskWithdrawn(task_id="not-an-id"),
    ],
)
def test_only_its_home_speaks_for_a_task(fleet: ModelFleet, row: TaskOffered) -> None:
    task_id, _ = place_one(fleet)
    before = fleet.task(task_id)
    fleet.nodes["n3"].say(row)
    fleet.settle()

    assert fleet.task(task_id) == before
    assert len(fleet.ledger.dead_letters()) == 1


def test_an_end_reported_by_a_node_that_does_not_have_the_task_is_fenced(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fence = fleet.nodes[node].holds[task_id].fence.with_attempt(1)
    forged = TaskEnded(
        task_id=task_id, task_kind="k", fence=fence, outcome=Outcome(status="succeeded"), is_placed=True
    )
    fleet.nodes[other(node)].say(forged)
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.PLACED
    assert fleet.counted("fenced") == 1


def test_losses_and_salvages_reach_the_counters(fleet: ModelFleet) -> None:
    fleet.nodes["n1"].say(LossReported(lost_class="telemetry", reason="cap", count=7))
    fleet.nodes["n1"].say(StoreSalvaged(quarantined="queue.db.bad-1", rows_kept=5, rows_lost=2))
    fleet.settle()

    assert fleet.counted("lost", "telemetry: cap") == 7
    assert fleet.counted("lost", "store damaged") == 2
    assert any("database was damaged" in report.text for report in fleet.reports)


def test_a_clone_is_quarantined_and_its_work_stays(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    original = fleet.nodes[node].inventory
    fleet.nodes[node].inventory = an_inventory(hardware_id="hw-other")
    fleet.connect(node)
    assert fleet.core.memory.nodes[node].record.status == "quarantined"

    fleet.nodes[node].inventory = original
    fleet.give(happened.NodeReleased(node))
    fleet.connect(node)
    fleet.nodes[node].finish(task_id)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_a_place_that_becomes_free_is_filled_at_once() -> None:
    fleet = ModelFleet(limits=Limits(retry_s=3600), placement=PlacementSettings(queue_depth=1))
    for name in ("n1", "n2"):
        fleet.add(name)
    for _ in range(10):
        fleet.offer("n1")
    fleet.settle()
    node = fleet.nodes["n2"]
    slots = len(node.holds)
    assert slots == 4

    for left in range(10, 0, -1):
        assert len(node.holds) == min(slots, left)
        node.finish(next(iter(node.holds)))
        fleet.settle()
    assert len(fleet.nodes["n1"].returned) == 10


def test_a_planner_that_fails_or_forgets_a_task_is_asked_again_later(
    fleet: ModelFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = fleet.offer("n1")
    with monkeypatch.context() as patched:
        patched.setattr("cloud_coordinator.testing.plan", lambda *_, **__: Plan(revision=0))
        fleet.settle()
    fleet.give(happened.PlanFailed("out of memory"))
    assert fleet.task(task_id).state is TaskState.PENDING

    fleet.pass_time(5)

    assert placed_on(fleet, task_id)
    assert fleet.counted("plans_failed") == 1


def test_the_ledger_forgets_the_oldest_ends_alone() -> None:
    fleet = ModelFleet(limits=Limits(keep_ended=3))
    for name in ("n1", "n2"):
        fleet.add(name)
    ids = [fleet.offer("n1") for _ in range(6)]
    fleet.settle()
    for task_id in ids[:5]:
        fleet.nodes["n2"].finish(task_id)
    fleet.pass_time(60)

    known = [task_id for task_id in ids if fleet.ledger.task(task_id)]
    assert known == ids[2:]
    assert fleet.counted("tasks_forgotten") == 2


def test_placements_stay_bounded_when_a_node_flaps(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    for _ in range(20):
        fleet.cut(node)
        fleet.pass_time(20)
        fleet.connect(node)
        fleet.pass_time(20)

    assert len(fleet.ledger.placements(task_id)) == 1


# --- restarts -------------------------------------------------------------------------------------------


class StopsAtCommit(SqliteLedger):
    """A ledger whose process dies at the n-th outermost commit: before it is written, or just after."""

    left: int = -1
    after: bool = False

    def _execute(self, sql: str) -> None:
        if sql == "COMMIT":
            self.left -= 1
            if self.left == 0 and not self.after:
                raise KeyboardInterrupt
            super()._execute(sql)
            if self.left == 0:
                raise KeyboardInterrupt
            return
        super()._execute(sql)


def a_life(fleet: ModelFleet) -> Callable[[], list[str]]:
    """Three tasks: one ends well, one is refused once, one is withdrawn; steps can be repeated at will."""
    ids = [fleet.offer("n1") for _ in range(3)]

    def step() -> list[str]:
        fleet.settle()
        for node in fleet.nodes.values():
            for task_id in list(node.holds):
                if task_id == ids[1] and not fleet.task(task_id).excluded:
                    node.refuse(task_id, "not now")
                elif task_id != ids[2]:
                    node.finish(task_id)
        fleet.settle()
        return ids

    fleet.withdraw("n1", ids[2])
    return step


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_restart_at_every_commit_loses_and_repeats_nothing(tmp_path: Path, after: bool) -> None:
    for number in range(1, 40, 3):
        path = tmp_path / f"{number}.db"
        ledger = StopsAtCommit(path)
        fleet = ModelFleet(ledger=ledger)
        for name in ("n1", "n2", "n3"):
            fleet.add(name)
        step = a_life(fleet)
        ledger.left, ledger.after = number, after
        for _ in range(4):
            try:
                ids = step()
            except KeyboardInterrupt:
                ledger.close()
                fleet.ledger = ledger = StopsAtCommit(path)
                fleet.restart()
        ledger.left = -1
        for name in fleet.nodes:
            fleet.connect(name)
        for _ in range(3):
            ids = step()

        states = [fleet.task(task_id).state for task_id in ids]
        assert states == [TaskState.ENDED, TaskState.ENDED, TaskState.WITHDRAWN], number
        assert sorted(fleet.nodes["n1"].returned) == sorted(ids[:2]), number
        for task_id in ids[:2]:
            ends = [one.ended for one in fleet.ledger.placements(task_id)]
            assert ends.count("ended") == 1, (number, ends)
        ledger.close()


def refused_by_all(fleet: ModelFleet, reason: str, **fields: object) -> str:
    """Offer a task that every node refuses."""
    task_id = fleet.offer("n1", a_task(**fields))
    fleet.settle()
    while node := placed_on(fleet, task_id):
        fleet.nodes[node].refuse(task_id, reason)
        fleet.settle()
    assert fleet.task(task_id).state is TaskState.PENDING
    return task_id


def test_a_refusal_does_not_count_for_ever(fleet: ModelFleet) -> None:
    task_id = refused_by_all(fleet, "the queue holds as much as it may")

    fleet.pass_time(60)
    assert not placed_on(fleet, task_id)
    fleet.pass_time(700)

    assert placed_on(fleet, task_id)
    assert len(fleet.ledger.placements(task_id)) == 3


def test_a_task_that_is_always_refused_is_asked_of_nodes_ever_more_seldom(fleet: ModelFleet) -> None:
    task_id = refused_by_all(fleet, "no")
    for _ in range(24 * 6):
        fleet.pass_time(600, step_s=60)
        if node := placed_on(fleet, task_id):
            fleet.nodes[node].refuse(task_id, "no")
            fleet.settle()

    assert 10 < len(fleet.ledger.placements(task_id)) < 60


def test_content_that_arrives_late_has_its_tasks_planned_again(fleet: ModelFleet) -> None:
    model = "sha256:" + "ab" * 32
    wanting = refused_by_all(fleet, "nobody has the model", spec=OnnxSpec(model=model, inputs={}))
    other_one = refused_by_all(fleet, "a rule")

    fleet.give(happened.ContentStored(model))
    fleet.settle()

    assert placed_on(fleet, wanting)
    assert not placed_on(fleet, other_one)


def test_a_restart_begins_a_new_term_and_keeps_what_is_placed() -> None:
    fleet = ModelFleet(limits=Limits(lease_s=60))
    for name in ("n1", "n2"):
        fleet.add(name)
    task_id, _ = place_one(fleet)
    fleet.restart()
    later = fleet.offer("n1")
    fleet.pass_time(30)

    assert len(fleet.ledger.placements(task_id)) == 1
    assert fleet.nodes["n2"].holds[later].fence == Fence((2, 1))
    fleet.nodes["n2"].finish(task_id)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_rows_of_a_message_type_are_named_as_on_the_wire() -> None:
    assert row_of(TaskWithdrawn(task_id="1" * 32))[0] == "task.withdrawn"
