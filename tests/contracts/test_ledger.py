"""One suite for every ledger: what the port promises holds in memory and in SQLite alike."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.values import (
    DeadLetter,
    Head,
    LedgerTask,
    Mark,
    Moment,
    Placement,
    TaskFilter,
    TaskState,
    Token,
)
from skerry.clock import Instant
from skerry.decision import Decision
from skerry.errors import StorageFailed
from skerry.fence import Fence
from skerry.messages import Lane, Outcome
from skerry.node import NodeRecord
from skerry.testing import a_task

MOMENT = Moment(Instant("boot-1", 5.0), 1.8e9)
replace = msgspec.structs.replace


def an_entry(task_id: str = "a" * 32, **fields: object) -> LedgerTask:
    values = {
        "task_id": task_id,
        "home_node": "n1",
        "kind": "task",
        "state": TaskState.PENDING,
        "received": MOMENT,
        "task": a_task(),
    }
    return LedgerTask(**{**values, **fields})  # type: ignore[arg-type]


def placed(entry: LedgerTask, node: str = "n2", number: int = 1) -> LedgerTask:
    return replace(entry, state=TaskState.PLACED, node=node, fence=Fence((1, number)), placed=MOMENT)


def ended(entry: LedgerTask) -> LedgerTask:
    return replace(
        entry,
        state=TaskState.ENDED,
        outcome=Outcome(status="succeeded", result={"hz": 220}),
        ended_wall_s=2e9,
    )


def test_a_task_is_read_back_as_written_after_reopening(reopen: Callable[[], Ledger]) -> None:
    entry = replace(
        placed(an_entry()),
        excluded={"n3": "no gpu"},
        waits="no gpu anywhere",
        decision=Decision(task_id="a" * 32, decided_by="baseline:fifo"),
        placements=2,
        command_seq=7,
    )
    reopen().put_task(entry)

    assert reopen().task(entry.task_id) == entry


def test_a_task_that_never_left_its_node_has_no_document(ledger: Ledger) -> None:
    entry = replace(ended(an_entry()), task=None)
    ledger.put_task(entry)

    assert ledger.task(entry.task_id) == entry
    assert ledger.task("b" * 32) is None


def test_what_ended_stays_ended(ledger: Ledger) -> None:
    entry = an_entry()
    ledger.put_task(entry)
    ledger.put_task(ended(entry))

    with pytest.raises(StorageFailed, match="final"):
        ledger.put_task(entry)
    assert ledger.task(entry.task_id) == ended(entry)


def test_what_ended_may_be_written_again_as_long_as_it_has_ended(ledger: Ledger) -> None:
    later = replace(ended(an_entry()), attempts=3)
    ledger.put_task(ended(an_entry()))
    ledger.put_task(later)

    assert ledger.task("a" * 32) == later


def test_a_failure_may_be_offered_again_by_its_home(ledger: Ledger) -> None:
    failed = replace(ended(an_entry()), outcome=Outcome(status="failed"), task=None)
    ledger.put_task(failed)
    ledger.put_task(an_entry())

    assert ledger.task("a" * 32) == an_entry()


def test_pending_tasks_come_by_priority_then_arrival(ledger: Ledger) -> None:
    for task_id, priority in (("c", 4), ("b", 9), ("a", 4)):
        ledger.put_task(an_entry(task_id * 32, task=a_task(priority=priority)))
    ledger.put_task(placed(an_entry("d" * 32)))

    assert [task.task_id[0] for task in ledger.pending(10)] == ["b", "c", "a"]
    assert [task.task_id[0] for task in ledger.pending(1, 1)] == ["c"]


def test_a_task_that_waits_again_keeps_its_turn(ledger: Ledger) -> None:
    first, second = an_entry("b" * 32), an_entry("a" * 32)
    for entry in (first, second, placed(first), first):
        ledger.put_task(entry)

    assert [task.task_id[0] for task in ledger.pending(10)] == ["b", "a"]


def test_placed_tasks_are_listed_by_node(ledger: Ledger) -> None:
    for task_id, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        ledger.put_task(placed(an_entry(task_id * 32), node))

    assert [task.task_id[0] for task in ledger.placed("n1")] == ["a", "c"]
    assert len(ledger.placed()) == 3


def test_tasks_are_found_newest_first_page_by_page(ledger: Ledger) -> None:
    for digit in "1234":
        ledger.put_task(an_entry(digit * 32, home_node="n2" if digit == "4" else "n1"))

    page = ledger.find(TaskFilter(home_node="n1", limit=2))
    rest = ledger.find(TaskFilter(home_node="n1", limit=2, before=page[-1].task_id))

    assert [[task.task_id[0] for task in part] for part in (page, rest)] == [["3", "2"], ["1"]]
    assert ledger.find(TaskFilter(state=TaskState.ENDED)) == []


def test_counts_follow_every_change(ledger: Ledger) -> None:
    for entry in (an_entry(), placed(an_entry()), ended(an_entry()), an_entry("b" * 32)):
        ledger.put_task(entry)

    assert {state.value: n for state, n in ledger.count_tasks().items()} == {
        "pending": 1,
        "placed": 0,
        "ended": 1,
        "withdrawn": 0,
    }


def test_only_the_oldest_final_tasks_are_forgotten(ledger: Ledger) -> None:
    ledger.put_task(an_entry("0" * 32))
    for digit in "123":
        ledger.put_task(ended(an_entry(digit * 32)))
        ledger.add_placement(Placement(task_id=digit * 32, fence=Fence((1, 1)), node="n1", placed_wall_s=1.0))
    ledger.put_task(an_entry("4" * 32))

    assert ledger.prune(1) == 2
    assert [task.task_id[0] for task in ledger.find(TaskFilter())] == ["4", "3", "0"]
    assert [ledger.count_tasks()[state] for state in (TaskState.PENDING, TaskState.ENDED)] == [2, 1]
    assert (ledger.placements("1" * 32), len(ledger.placements("3" * 32))) == ([], 1)
    assert ledger.prune(1) == 0


def test_a_ledger_that_starts_over_forgets_what_is_open_and_keeps_the_ends(
    reopen: Callable[[], Ledger],
) -> None:
    ledger = reopen()
    for entry in (an_entry("1" * 32), placed(an_entry("2" * 32)), ended(an_entry("3" * 32))):
        ledger.put_task(entry)
    epoch, term = ledger.epoch, ledger.start_over(above=40)
    again = reopen()

    assert [task.task_id[0] for task in again.find(TaskFilter())] == ["3"]
    assert sum(again.count_tasks().values()) == 1
    assert (term, again.begin_term()) == (41, 42)
    assert again.epoch != epoch


def test_placements_keep_their_order_and_their_first_end(ledger: Ledger) -> None:
    decision = Decision(task_id="a" * 32, decided_by="coordinator:greedy", node="n1")
    for number in (1, 2):
        ledger.add_placement(
            Placement(
                task_id="a" * 32, fence=Fence((1, number)), node="n1", placed_wall_s=1.0, decision=decision
            )
        )
    ledger.end_placement("a" * 32, Fence((1, 1)), "lapsed", "no word from n1", 2.0)
    ledger.end_placement("a" * 32, Fence((1, 1)), "ended", "", 3.0)

    first, second = ledger.placements("a" * 32)
    assert (first.ended, first.reason, first.ended_wall_s) == ("lapsed", "no word from n1", 2.0)
    assert (second.ended, second.decision) == ("", decision)


def test_two_placements_never_share_a_fence(ledger: Ledger) -> None:
    placement = Placement(task_id="a" * 32, fence=Fence((1, 1)), node="n1", placed_wall_s=1.0)
    ledger.add_placement(placement)

    with pytest.raises(StorageFailed):
        ledger.add_placement(replace(placement, node="n2"))


def test_command_numbers_are_contiguous_in_a_lane_and_go_on_after_trimming(
    reopen: Callable[[], Ledger],
) -> None:
    ledger = reopen()
    seqs = [ledger.append_command("n1", Lane.CONTROL, "place.task", b"{}") for _ in range(3)]
    ledger.trim_commands("n1", Lane.CONTROL, 3)
    ledger = reopen()

    assert seqs == [1, 2, 3]
    assert ledger.append_command("n1", Lane.CONTROL, "place.task", b"{}") == 4
    assert ledger.append_command("n1", Lane.LIVE, "task.placed", b"{}") == 1
    assert ledger.append_command("n2", Lane.CONTROL, "place.task", b"{}") == 1
    assert ledger.head("n1", Lane.CONTROL) == Head(last=4, acked=3)


def test_what_a_node_has_applied_is_forgotten_in_that_lane_of_it_alone(ledger: Ledger) -> None:
    others = [("n1", Lane.CONTROL), ("n2", Lane.LIVE)]
    for node, lane in [("n1", Lane.LIVE), *others] * 3:
        ledger.append_command(node, lane, "task.placed", b"{}")

    ledger.trim_commands("n1", Lane.LIVE, 2)

    def left(node: str, lane: Lane) -> tuple[list[int], int]:
        rows = ledger.commands(node, lane, 0, limit=9, limit_bytes=1000)
        return [row.seq for row in rows], ledger.head(node, lane).acked

    assert left("n1", Lane.LIVE) == ([3], 2)
    assert [left(*other) for other in others] == [([1, 2, 3], 0)] * 2


def test_commands_are_read_in_order_within_rows_and_bytes(ledger: Ledger) -> None:
    for number in range(5):
        ledger.append_command("n1", Lane.LIVE, "task.placed", b'"%d23456"' % number, key="k")

    by_rows = ledger.commands("n1", Lane.LIVE, 1, limit=2, limit_bytes=1000)
    by_bytes = ledger.commands("n1", Lane.LIVE, 0, limit=9, limit_bytes=17)
    at_least_one = ledger.commands("n1", Lane.LIVE, 0, limit=9, limit_bytes=1)

    assert [row.seq for row in by_rows] == [2, 3]
    assert (bytes(by_rows[0].body), by_rows[0].key, by_rows[0].kind) == (b'"123456"', "k", "task.placed")
    assert [row.seq for row in by_bytes] == [1, 2]
    assert [row.seq for row in at_least_one] == [1]


def test_an_acknowledgement_beyond_what_was_written_is_bounded(ledger: Ledger) -> None:
    ledger.append_command("n1", Lane.LIVE, "task.placed", b"{}")
    ledger.trim_commands("n1", Lane.LIVE, 99)
    ledger.trim_commands("n1", Lane.CONTROL, 99)

    assert ledger.head("n1", Lane.LIVE) == Head(last=1, acked=1)
    assert ledger.head("n1", Lane.CONTROL) == Head()


def test_marks_are_kept_by_node_epoch_and_lane(reopen: Callable[[], Ledger]) -> None:
    mark = Mark(upto=7, session=3, counter=12)
    reopen().put_mark("n1", "e1", Lane.LIVE, mark)

    ledger = reopen()
    assert ledger.mark("n1", "e1", Lane.LIVE) == mark
    assert ledger.mark("n1", "e2", Lane.LIVE) == ledger.mark("n1", "e1", Lane.CONTROL) == Mark()


def test_the_term_grows_with_each_start_and_the_epoch_stays(reopen: Callable[[], Ledger]) -> None:
    first = reopen()
    epoch, terms = first.epoch, [first.begin_term()]
    terms += [reopen().begin_term() for _ in range(2)]

    assert terms == [1, 2, 3]
    assert reopen().epoch == epoch


def test_nodes_and_tokens_are_read_back(ledger: Ledger) -> None:
    node = NodeRecord(name="n1", fleet="f", region="r", public_key="00" * 32, session=4)
    token = Token(digest="ff", made=MOMENT, valid_s=60.0)
    ledger.put_node(replace(node, name="n2"))
    ledger.put_node(node)
    ledger.put_node(replace(node, session=5))
    ledger.put_token(token)
    ledger.put_token(replace(token, used_by="n1"))

    assert [(known.name, known.session) for known in ledger.nodes()] == [("n1", 5), ("n2", 4)]
    assert (ledger.node("n3"), ledger.token("00")) == (None, None)
    assert ledger.token("ff") == replace(token, used_by="n1")


def test_dead_letters_are_listed_newest_first(ledger: Ledger) -> None:
    for seq in range(3):
        ledger.add_dead_letter(
            DeadLetter(
                node="n1", lane=Lane.LIVE, seq=seq, kind="x", body=b"\xff", reason="unknown kind", wall_s=1.0
            )
        )

    newest = ledger.dead_letters(2)
    assert [letter.seq for letter in newest] == [2, 1]
    assert [letter.seq for letter in ledger.dead_letters(2, before=newest[-1].number)] == [0]
    assert newest[0].body == b"\xff"


def test_counters_add_up(reopen: Callable[[], Ledger]) -> None:
    ledger = reopen()
    ledger.count("refused", node="n1", reason="replayed")
    ledger.count("refused", node="n1", reason="replayed", by=2)
    ledger.count("refused", reason="malformed")

    assert [(c.node, c.reason, c.count) for c in reopen().counters()] == [
        ("", "malformed", 1),
        ("n1", "replayed", 3),
    ]


def write_some(ledger: Ledger, digit: str) -> None:
    ledger.put_task(an_entry(digit * 32))
    ledger.append_command("n1", Lane.LIVE, "task.placed", b"{}")
    ledger.put_mark("n1", "e", Lane.LIVE, Mark(upto=int(digit)))
    ledger.count("rows")


def fail_after_writing(ledger: Ledger, digit: str) -> None:
    with ledger.transaction():
        write_some(ledger, digit)
        raise ValueError(digit)


def test_a_transaction_that_raises_leaves_nothing(reopen: Callable[[], Ledger]) -> None:
    ledger = reopen()
    write_some(ledger, "1")

    with pytest.raises(ValueError, match="2"):
        fail_after_writing(ledger, "2")

    ledger = reopen()
    assert [task.task_id[0] for task in ledger.pending(9)] == ["1"]
    assert ledger.mark("n1", "e", Lane.LIVE) == Mark(upto=1)
    assert ledger.append_command("n1", Lane.LIVE, "task.placed", b"{}") == 2
    assert ledger.counters()[0].count == 1


def test_a_nested_transaction_is_undone_alone(reopen: Callable[[], Ledger]) -> None:
    ledger = reopen()
    with ledger.transaction():
        write_some(ledger, "1")
        with pytest.raises(ValueError, match="2"):
            fail_after_writing(ledger, "2")
        with ledger.transaction():
            write_some(ledger, "3")

    ledger = reopen()
    assert [task.task_id[0] for task in ledger.pending(9)] == ["1", "3"]
    assert ledger.head("n1", Lane.LIVE).last == 2
    assert ledger.count_tasks()[TaskState.PENDING] == 2


def test_an_outer_failure_undoes_what_was_nested(reopen: Callable[[], Ledger]) -> None:
    ledger = reopen()

    def outer() -> None:
        with ledger.transaction():
            with ledger.transaction():
                write_some(ledger, "1")
            raise ValueError("outer")

    with pytest.raises(ValueError, match="outer"):
        outer()
    assert reopen().pending(9) == []
