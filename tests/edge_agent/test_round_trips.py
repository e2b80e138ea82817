"""Placement round trips: measured from offer to answer, never across a break of the link."""

from __future__ import annotations

from edge_agent.round_trips import RoundTrips
from skerry.decision import Decision
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.testing import ManualClock
from task_queue.operations import Changed, HandOver, Ok, RecordPlacement, Refused
from task_queue.task import State

TASK = TaskId("0" * 32)
OFFER = HandOver(task_id=TASK, reason="needs an npu")
HANDED_OVER = Changed(task_id=TASK, state=State.HANDED_OVER)


def placed(node: str) -> RecordPlacement:
    decision = Decision(task_id=TASK, decided_by="coordinator:score", node=node or None)
    return RecordPlacement(task_id=TASK, fence=Fence((1, 1)), node=node, decision=decision)


def test_a_trip_runs_from_the_offer_to_the_answer_that_names_a_node() -> None:
    clock = ManualClock()
    trips = RoundTrips(clock)

    trips.saw_commit([OFFER], [HANDED_OVER])
    clock.advance(0.012)
    trips.saw_commit([placed("reef")], [Ok()])
    trips.saw_commit([placed("reef")], [Ok()])

    assert trips.latest_ms == (12.0,)


def test_a_task_that_must_wait_for_a_node_leaves_no_trip() -> None:
    clock = ManualClock()
    trips = RoundTrips(clock)

    trips.saw_commit([OFFER], [HANDED_OVER])
    trips.saw_commit([placed("")], [Ok()])
    clock.advance(4.0)
    trips.saw_commit([placed("reef")], [Ok()])

    assert trips.latest_ms == ()


def test_a_break_of_the_link_and_a_refused_offer_leave_no_trip() -> None:
    clock = ManualClock()
    trips = RoundTrips(clock)

    trips.saw_commit([OFFER], [HANDED_OVER])
    trips.link_changed()
    trips.saw_commit([placed("reef")], [Ok()])
    trips.saw_commit([OFFER], [Refused(reason="not_allowed", message="ended")])
    trips.saw_commit([placed("reef")], [Ok()])

    assert trips.latest_ms == ()
