"""Every interleaving, to a small depth: nothing is broken; what is planted is found, and how to get there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cloud_coordinator.core import intake
from edge_agent.uplink import Uplink
from skerry.errors import SpecError
from skerry.link import actions as do
from skerry.link import events as happened
from skerry.link.sender import StreamSender
from task_queue import attempts, memory_store
from task_queue.task import Event, State
from tests.chaos.exhaustive import check_planted
from tests.twin.planting import PATCHES
from twin.faithful.exhaustive_run import check_tasks
from twin.faithful.exhaustive_setting import TASKS
from twin.faithful.exhaustive_values import Bounds, Checked

Patch = pytest.MonkeyPatch


def check(tasks: str = "across", *, depth: int = 3, faults: int = 1, waits: int = 1) -> Checked:
    """Return what came of a small check."""
    (checked,) = check_tasks(tasks, Bounds(depth=depth, faults=faults, waits=waits, followed=20))
    return checked


@pytest.mark.parametrize("tasks", TASKS)
def test_no_interleaving_to_a_small_depth_breaks_a_law(tasks: str) -> None:
    checked = check(tasks, depth=2)

    assert checked.broken == ""
    assert checked.depth == 2
    assert checked.states > 500
    assert checked.fair >= 20


def test_two_checks_see_the_same_states() -> None:
    first, second = check("mixed", depth=1, faults=2), check("mixed", depth=1, faults=2)

    assert first.by_depth == second.by_depth
    assert first.transitions == second.transitions
    assert first.steps_run == second.steps_run


def test_more_faults_and_waits_reach_more_states() -> None:
    few = check("mixed", depth=2, faults=0, waits=0)
    more = check("mixed", depth=2, faults=2, waits=1)

    assert more.states > 2 * few.states


def test_unknown_tasks_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(SpecError, match="across"):
        check("sideways")


def acknowledges_before_the_commit(patch: Patch) -> None:
    """The agent says that commands are applied when it begins to write them down."""
    apply = Uplink._apply

    async def hasty(self: Uplink, action: do.ApplyRows) -> None:
        self._handle(happened.Applied(action.epoch, action.lane, action.upto))
        await apply(self, action)

    patch.setattr(Uplink, "_apply", hasty)


def takes_a_sent_row_for_a_received_one(patch: Patch) -> None:
    """Rows leave the outbox when the transport has them."""
    rows_read = StreamSender.rows_read

    def careless(self: StreamSender, event: happened.RowsRead, now: Any) -> list[do.Action]:
        done = rows_read(self, event, now)
        return [*done, do.TrimOutbox(event.lane, event.rows[-1].seq)] if done and event.rows else done

    patch.setattr(StreamSender, "rows_read", careless)


def trims_the_wrong_end(patch: Patch) -> None:
    """An acknowledgement trims what was sent, not what it names."""
    acked = StreamSender.acked

    def wrong(self: StreamSender, ack: Any, now: Any) -> list[do.Action]:
        upto = self._lanes[ack.lane].sent
        done = acked(self, ack, now)
        return [do.TrimOutbox(a.lane, upto) if isinstance(a, do.TrimOutbox) else a for a in done]

    patch.setattr(StreamSender, "acked", wrong)


def leaves_interrupted_attempts_running(patch: Patch) -> None:
    """A start does not settle what the kill cut off."""
    patch.setattr(memory_store, "settle_interrupted", lambda tx: None)


def runs_again_what_may_run_once(patch: Patch) -> None:
    """An interrupted attempt is repeated, whatever its effect."""
    patch.setattr(attempts, "interrupt", lambda tx, row: tx.move(row, Event.INTERRUPTED, State.READY))


def forgets_what_was_applied(patch: Patch) -> None:
    """The ledger takes rows and does not move its mark."""
    apply_rows = intake.apply_rows

    def forgetful(turn: Any, node: str, epoch: str, lane: Any, rows: Sequence[Any], upto: int) -> None:
        apply_rows(turn, node, epoch, lane, rows, 0)

    patch.setattr(intake, "apply_rows", forgetful)


#: What each does to the product, the tasks that show it, and the law that it breaks.
PLANTED: list[tuple[Callable[[Patch], None], str, str]] = [
    (acknowledges_before_the_commit, "across", "law 2"),
    (takes_a_sent_row_for_a_received_one, "across", "law 2"),
    (trims_the_wrong_end, "across", "law 2"),
    (leaves_interrupted_attempts_running, "across", "law 7"),
    (runs_again_what_may_run_once, "once", "law 3"),
    (forgets_what_was_applied, "mixed", "law 2"),
]


@pytest.mark.parametrize(
    ("plant", "tasks", "law"), PLANTED, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_planted_bug_is_found_with_the_way_there(
    plant: Callable[[Patch], None], tasks: str, law: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)

    checked = check(tasks)

    assert checked.broken.startswith(law)
    assert checked.trace
    assert checked.states < 10_000


@pytest.mark.parametrize("name", ["attempt-under-an-old-fence", "running-for-ever-after-a-restart"])
def test_a_patch_to_the_product_is_found(name: str) -> None:
    (patch,) = [patch for patch in PATCHES if patch.stem == name]

    found = check_planted(patch)

    assert found["found"].startswith("law "), found
    assert found["states"] < 1000


def test_the_trace_of_an_early_acknowledgement_ends_with_the_fault(monkeypatch: Patch) -> None:
    acknowledges_before_the_commit(monkeypatch)

    *_, cut_off, told = check().trace

    assert "ends before commit 1 of it" in cut_off
    assert told.startswith("coordinator hears up-ack of")
