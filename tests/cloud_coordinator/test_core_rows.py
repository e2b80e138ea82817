"""What nodes report: repeated, unknown and false rows, clones, losses, and bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cloud_coordinator.core import events as happened
from cloud_coordinator.core import losses
from cloud_coordinator.core.turn import Limits
from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.ledger.values import TaskState
from cloud_coordinator.placement.request import Plan
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.testing import ModelFleet, an_inventory, place_one, placed_on
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
from skerry.testing import a_task


def other(name: str) -> str:
    return "n3" if name == "n2" else "n2"


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


@pytest.mark.parametrize(("is_again", "status"), [(False, "failed"), (True, "unknown")])
def test_an_offer_that_cannot_be_read_comes_home_with_the_reason(
    fleet: ModelFleet, is_again: bool, status: str
) -> None:
    node, task_id = fleet.nodes["n1"], "e" * 32
    kind, body = row_of(TaskOffered(task_id=task_id, task=a_task(), is_again=is_again))
    newer = body.replace(b'"idempotent"', b'"twice_at_least"')
    assert newer != body
    node.last[Lane.LIVE] += 1
    node.outbox[Lane.LIVE].append(Row(seq=node.last[Lane.LIVE], kind=kind, body=msgspec.Raw(newer)))
    fleet.settle()

    outcome = node.returned[task_id].outcome
    assert outcome.status == status
    assert "effect" in outcome.error


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


def test_a_home_that_heard_too_late_changes_no_end_and_is_counted(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].finish(task_id)
    fleet.settle()
    for status in ("succeeded", "expired"):
        outcome = Outcome(status=status)
        fleet.nodes["n1"].say(TaskEnded(task_id=task_id, task_kind="k", fence=Fence(), outcome=outcome))
    fleet.settle()

    outcome_here = fleet.task(task_id).outcome
    assert outcome_here is not None
    assert outcome_here.status == "succeeded"
    assert fleet.counted("duplicates", "task.ended") == 1
    assert fleet.counted("ends_disagree", "succeeded, at home expired") == 1


def test_a_home_whose_time_ran_out_lets_go_of_what_is_still_placed(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    unknown = Outcome(status="unknown", error="no word")
    fleet.nodes["n1"].say(TaskEnded(task_id=task_id, task_kind="k", fence=Fence(), outcome=unknown))
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.WITHDRAWN
    assert task_id not in fleet.nodes[node].holds


def test_losses_and_salvages_reach_the_counters(fleet: ModelFleet) -> None:
    fleet.nodes["n1"].say(LossReported(lost_class="telemetry", reason="cap", count=7))
    fleet.nodes["n1"].say(StoreSalvaged(quarantined="queue.db.bad-1", rows_kept=5, rows_lost=2))
    fleet.settle()

    assert fleet.counted("lost", "telemetry: cap") == 7
    assert fleet.counted("lost", "store damaged") == 2
    assert any("database was damaged" in report.text for report in fleet.reports)


def test_totals_of_losses_count_once_however_often_and_in_whatever_order_they_come(fleet: ModelFleet) -> None:
    node = fleet.nodes["n1"]
    for count in (3, 10, 10, 7):
        node.say(LossReported(lost_class="telemetry", reason="evicted", count=count, is_total=True))
    node.say(LossReported(lost_class="task", reason="expired", count=1, size_bytes=90, is_total=True))
    fleet.settle()
    before = losses.of_node(fleet.ledger, "n1")
    node.store_epoch, node.outbox[Lane.LIVE], node.last[Lane.LIVE] = "another", [], 0
    fleet.connect("n1")
    node.say(LossReported(lost_class="telemetry", reason="evicted", count=2, is_total=True))
    fleet.settle()

    assert [(loss.lost_class, loss.rows, loss.size_bytes) for loss in before] == [
        ("task", 1, 90),
        ("telemetry", 10, 0),
    ]
    assert fleet.counted("lost", "telemetry: evicted") == 12, "a new store's losses come on top"
    assert [loss.rows for loss in losses.of_node(fleet.ledger, "n1")] == [2]
    assert losses.of_node(fleet.ledger, "n2") == ()


def test_a_store_that_was_salvaged_counts_on_and_its_losses_are_not_counted_twice(fleet: ModelFleet) -> None:
    node = fleet.nodes["n1"]
    node.say(LossReported(lost_class="telemetry", reason="evicted", count=10, is_total=True))
    fleet.settle()
    node.salvaged_from = (node.store_epoch,)
    node.store_epoch, node.outbox[Lane.LIVE], node.last[Lane.LIVE] = "salvaged", [], 0
    fleet.connect("n1")
    for count in (8, 13):  # a report that was still waiting, then the totals that go on
        node.say(LossReported(lost_class="telemetry", reason="evicted", count=count, is_total=True))
    fleet.settle()

    assert fleet.counted("lost", "telemetry: evicted") == 13


def test_a_node_that_invents_reasons_without_end_is_believed_up_to_a_bound(fleet: ModelFleet) -> None:
    for number in range(losses.LIMIT + 20):
        fleet.nodes["n1"].say(LossReported(lost_class="x", reason=f"{number}", count=1, is_total=True))
    fleet.settle()

    assert len(losses.of_node(fleet.ledger, "n1")) == losses.LIMIT
    assert fleet.counted("refused", "loss.reported") == 20


@pytest.mark.parametrize(
    "rows",
    [
        [LossReported(lost_class="task", reason="expired", count=10**40)],
        [LossReported(lost_class="task", reason="expired", count=1, size_bytes=1 << 64, is_total=True)],
        [LossReported(lost_class="task", reason="expired", count=-5)],
        [StoreSalvaged(quarantined="1", rows_kept=0, rows_lost=0, lost={"task": 1 << 80})],
    ],
)
def test_a_row_with_a_number_that_cannot_be_is_set_aside_and_holds_up_nothing(
    tmp_path: Path, rows: list[LossReported | StoreSalvaged]
) -> None:
    fleet = ModelFleet(ledger=SqliteLedger(tmp_path / "ledger.db"))
    for name in ("n1", "n2"):
        fleet.add(name)
    for row in [*rows, LossReported(lost_class="task", reason="expired", count=1 << 53)]:
        fleet.nodes["n1"].say(row)
    task_id = fleet.offer("n1")
    fleet.settle()

    assert fleet.counted("dead_letters") == len(rows)
    assert fleet.counted("lost", "task: expired") == 1 << 53
    assert fleet.task(task_id).state is TaskState.PLACED


def test_a_counter_stands_still_before_it_outgrows_its_column(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    with ledger.transaction():
        for _ in range(3):
            ledger.count("lost", node="n1", reason="much", by=1 << 62)

    assert [counter.count for counter in ledger.counters()] == [1 << 62]


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
