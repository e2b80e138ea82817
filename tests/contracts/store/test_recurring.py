"""The store's contract, recurring tasks: each time becomes at most one task, whatever clocks and power do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from skerry.clock import WALL_FLOOR_S
from skerry.errors import StorageFailed
from skerry.recurring import RecurringSpec
from skerry.testing import a_task
from task_queue.operations import Advance, Advanced, Cancel, DropRecurring, Ok, PutRecurring
from task_queue.recurring_row import RecurringRecord
from task_queue.store import TaskFilter
from task_queue.task import FINAL
from task_queue.testing import QueueDriver, reason_of

HOUR = 3600.0
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()


def at(q: QueueDriver, wall_s: float) -> None:
    """Set the wall clock alone."""
    q.clock.step_wall(wall_s - q.clock.wall_s())


def put(q: QueueDriver, **fields: Any) -> RecurringSpec:
    spec = RecurringSpec(
        **{"name": "report", "task": a_task(kind="report", **fields.pop("task", {})), **fields}
    )
    assert q.one(PutRecurring(recurring_id=q.ids.next(), spec=spec)) == Ok()
    return spec


def advance(q: QueueDriver) -> Advanced:
    answer = q.one(Advance())
    assert isinstance(answer, Advanced)
    return answer


def fired(q: QueueDriver) -> list[str]:
    """Let time be looked at and return the times that became tasks, ending each at once."""
    answer = advance(q)
    keys = [q.record(task_id).task.idempotency_key or "" for task_id in answer.fired]
    q.drain()
    return [key.partition("@")[2] for key in keys]


def shown(q: QueueDriver) -> RecurringRecord:
    (record,) = q.store.recurring(now=q.clock.now())
    return record


def test_every_so_many_seconds_a_task_is_accepted_and_the_beat_is_kept(q: QueueDriver) -> None:
    put(q, every_s=60)
    assert advance(q).next_due_in_s == pytest.approx(60)

    counts = []
    for seconds in (59.0, 1.5, 59.0, 1.0, 75.0):
        q.clock.advance(seconds)
        counts.append(len(fired(q)))

    assert counts == [0, 1, 0, 1, 1]
    assert (shown(q).runs, shown(q).missed) == (3, 0)
    assert advance(q).next_due_in_s == pytest.approx(240 - 195.5)


def test_a_cron_schedule_follows_the_wall_clock_in_its_time_zone(q: QueueDriver) -> None:
    at(q, NOON - 1)
    put(q, cron="30 14 * * *", timezone="Europe/Berlin")
    q.clock.advance(1)
    early = fired(q)

    q.clock.advance(90 * 60)

    assert (early, fired(q)) == ([], ["2026-11-30T13:30Z"])
    assert shown(q).next_wall_s == NOON + 25.5 * HOUR


def test_the_task_and_the_next_time_are_one_commit(q: QueueDriver) -> None:
    put(q, every_s=60)
    q.clock.advance(60)
    (task_id,) = advance(q).fired

    q.kill()

    assert advance(q).fired == ()
    assert q.record(task_id).task.kind == "report"
    assert shown(q).last_task == task_id
    assert [record.task_id for record in q.store.find(TaskFilter())] == [task_id]


def test_the_schedule_goes_on_over_a_restart_and_a_power_cut(q: QueueDriver) -> None:
    put(q, every_s=100)
    q.clock.advance(40)
    advance(q)

    q.reboot(off_s=30 * 86400.0)
    early = fired(q)
    q.clock.advance(61)

    assert (early, len(fired(q))) == ([], 1)


@pytest.mark.parametrize("step_s", [HOUR, -HOUR, 20 * 365 * 86400.0, -2 * 365 * 86400.0, -1.7e9])
def test_a_step_of_the_wall_clock_does_not_touch_powered_on_seconds(q: QueueDriver, step_s: float) -> None:
    put(q, every_s=60)
    q.clock.step_wall(step_s)
    q.kill()
    early = fired(q)
    q.clock.advance(60)

    assert (early, len(fired(q)), fired(q)) == ([], 1, [])


def test_a_clock_that_steps_back_fires_no_time_twice(q: QueueDriver) -> None:
    at(q, NOON - 90)
    put(q, cron="*/10 * * * *")
    q.clock.advance(90)
    seen = fired(q)

    for _ in range(3):
        q.clock.step_wall(-HOUR)
        for _ in range(8):
            q.clock.advance(10 * 60)
            now = datetime.fromtimestamp(q.clock.wall_s(), UTC).strftime("%Y-%m-%dT%H:%MZ")
            came = fired(q)
            assert all(time <= now for time in came), "a time was fired early"
            seen += came

    whole = [f"2026-11-30T{hour}:{minute}0Z" for hour in (11, 12, 13) for minute in range(6)]
    assert seen[0] == "2026-11-30T12:00Z"
    assert sorted(seen) == [time for time in whole if "2026-11-30T11:20Z" <= time <= "2026-11-30T13:00Z"]


def test_a_time_that_was_dealt_with_is_not_fired_again_when_its_task_is_forgotten(q: QueueDriver) -> None:
    at(q, NOON - 1)
    put(q, cron="0 * * * *")
    q.clock.advance(1)
    assert len(fired(q)) == 1
    q.clock.advance(40 * 86400.0)  # ended tasks are forgotten after 30 days
    fired(q)
    fired(q)
    assert not [r for r in q.store.find(TaskFilter()) if r.accepted_wall_s <= NOON]

    at(q, NOON - 1)

    assert fired(q) == []
    q.clock.advance(1)
    assert fired(q) == []
    q.clock.advance(HOUR)
    assert fired(q) == ["2026-11-30T13:00Z"]


def test_a_clock_that_was_twenty_years_ahead_holds_nothing_up_once_it_is_set_right(q: QueueDriver) -> None:
    at(q, NOON - 1)
    put(q, cron="0 * * * *", missed="once")
    q.clock.advance(1)
    fired(q)

    q.clock.step_wall(20 * 365 * 86400.0)
    wrong = fired(q)
    q.clock.advance(HOUR)
    wrong += fired(q)
    at(q, NOON + HOUR - 1)
    early = fired(q)
    q.clock.advance(1)

    assert all(time.startswith("2046") for time in wrong)
    assert (early, fired(q)) == ([], ["2026-11-30T13:00Z"])


@pytest.mark.parametrize("rule", ["skip", "once", "all"])
def test_a_clock_that_lost_a_year_and_found_it_again_repeats_nothing(q: QueueDriver, rule: str) -> None:
    at(q, NOON - HOUR)
    put(q, cron="0 * * * *", missed=rule)
    seen: list[str] = []
    for _ in range(6):
        q.clock.advance(HOUR)
        seen += fired(q)

    q.reboot(off_s=HOUR)
    right = q.clock.wall_s()
    at(q, right - 300 * 86400.0)
    for _ in range(3):
        q.clock.advance(HOUR)
        seen += fired(q)
    at(q, right + 3.5 * HOUR)
    for _ in range(5):
        seen += fired(q)

    assert sorted(set(seen)) == sorted(seen)
    on_time = [f"2026-11-30T{hour}:00Z" for hour in range(12, 18)]
    made_up = [f"2026-11-30T{hour}:00Z" for hour in range(18, 22)]
    assert [time for time in seen if time.startswith("2026-11-30")] == (
        on_time + {"skip": [], "once": made_up[-1:], "all": made_up}[rule]
    )
    assert shown(q).missed == 4


def test_a_clock_that_starts_in_1970_is_waited_for(q: QueueDriver) -> None:
    at(q, 1000.0)
    put(q, cron="* * * * *")
    q.clock.advance(3 * HOUR)
    before = fired(q)
    assert shown(q).next_wall_s is None

    at(q, NOON + 30)
    none_yet = fired(q)
    q.clock.advance(30)

    assert (before, none_yet, fired(q)) == ([], [], ["2026-11-30T12:01Z"])


def test_a_boot_in_1970_fires_nothing_and_what_it_missed_is_told_once_the_clock_is_right(
    q: QueueDriver,
) -> None:
    at(q, NOON - 1)
    put(q, cron="0 * * * *", missed="all", missed_limit=2)
    q.clock.advance(1)
    fired(q)

    q.reboot(off_s=HOUR)
    at(q, 5.0)
    in_1970 = fired(q)
    at(q, NOON + 4.5 * HOUR)

    made_up = fired(q) + fired(q)
    assert in_1970 == []
    assert made_up == ["2026-11-30T15:00Z", "2026-11-30T16:00Z"]
    assert (shown(q).missed, shown(q).runs, shown(q).owed) == (4, 3, 0)


@pytest.mark.parametrize(("rule", "expected"), [("skip", 0), ("once", 1), ("all", 3)])
def test_missed_times_follow_the_rule(q: QueueDriver, rule: str, expected: int) -> None:
    put(q, every_s=600, missed=rule, missed_limit=3, overlap="allow")

    q.clock.advance(600 * 5 + 300)

    assert len(fired(q)) == expected
    assert shown(q).missed == 5
    q.clock.advance(300)
    assert len(fired(q)) == 1


def test_a_start_within_the_grace_is_not_late(q: QueueDriver) -> None:
    put(q, every_s=600, grace_s=120)
    q.clock.advance(720)

    assert len(fired(q)) == 1
    assert shown(q).missed == 0


@pytest.mark.parametrize("rule", ["skip", "once", "all"])
def test_a_run_that_goes_on_is_not_overlapped_and_the_time_counts_as_missed(
    q: QueueDriver, rule: str
) -> None:
    put(q, every_s=60, missed=rule)
    q.clock.advance(60)
    (running,) = advance(q).fired
    for _ in range(3):
        q.clock.advance(60)
        assert advance(q).fired == ()
    assert shown(q).missed == 3
    assert running in shown(q).note

    q.drain()
    made_up = sum(len(fired(q)) for _ in range(4))

    assert made_up == {"skip": 0, "once": 1, "all": 3}[rule]
    assert shown(q).owed == 0


def test_with_allow_runs_may_overlap(q: QueueDriver) -> None:
    put(q, every_s=60, overlap="allow")
    for _ in range(3):
        q.clock.advance(60)
        assert len(advance(q).fired) == 1
    assert shown(q).missed == 0


@pytest.mark.parametrize("end", ["cancelled", "done"])
def test_any_end_of_the_last_run_lets_the_next_one_begin(q: QueueDriver, end: str) -> None:
    put(q, every_s=60)
    q.clock.advance(60)
    (task_id,) = advance(q).fired
    if end == "cancelled":
        q.one(Cancel(task_id=task_id))
    else:
        q.drain()

    q.clock.advance(60)

    assert q.state(task_id) in FINAL
    assert len(advance(q).fired) == 1


def test_putting_the_same_again_changes_nothing_and_another_schedule_begins_anew(q: QueueDriver) -> None:
    put(q, every_s=100)
    q.clock.advance(90)
    put(q, every_s=100, task={"priority": 9})
    kept = shown(q).next_in_s
    put(q, every_s=50, task={"priority": 9})

    assert kept == pytest.approx(10)
    assert shown(q).next_in_s == pytest.approx(50)
    q.clock.advance(50)
    (task_id,) = advance(q).fired
    assert q.record(task_id).task.priority == 9


def test_a_dropped_one_fires_no_more_and_its_tasks_go_on(q: QueueDriver) -> None:
    put(q, every_s=60)
    q.clock.advance(60)
    (task_id,) = advance(q).fired

    assert q.one(DropRecurring(name="report")) == Ok()
    q.clock.advance(600)

    assert advance(q).fired == ()
    assert q.store.recurring(now=q.clock.now()) == []
    assert q.drain() == [task_id]
    assert reason_of(q.one(DropRecurring(name="report"))) == "not_found"


def test_dropping_and_putting_again_does_not_fire_a_time_twice(q: QueueDriver) -> None:
    at(q, NOON - 1)
    put(q, cron="0 * * * *")
    q.clock.advance(1)
    first = fired(q)
    q.one(DropRecurring(name="report"))
    at(q, NOON - 1)
    put(q, cron="0 * * * *")
    q.clock.advance(1)

    assert (first, fired(q)) == (["2026-11-30T12:00Z"], [])


def test_two_stores_give_their_tasks_different_ids(q: QueueDriver) -> None:
    put(q, every_s=60)
    put(q, name="other", every_s=60)
    q.clock.advance(60)

    tasks = advance(q).fired

    assert len(set(tasks)) == 2
    assert all(q.record(task_id).accepted_wall_s > WALL_FLOOR_S for task_id in tasks)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "exactly one"),
        ({"every_s": 60, "cron": "* * * * *"}, "exactly one"),
        ({"cron": "61 * * * *"}, "61 * * * *"),
        ({"cron": "* * * *"}, "five are needed"),
        ({"cron": "* * * * *", "timezone": "Mars/Base"}, "Mars/Base"),
        ({"every_s": 60, "name": "No Spaces"}, "No Spaces"),
        ({"every_s": 60, "task": a_task(idempotency_key="k")}, "leave it out"),
    ],
)
def test_what_could_never_run_is_refused_in_words(q: QueueDriver, fields: dict[str, Any], word: str) -> None:
    spec = RecurringSpec(**{"name": "report", "task": a_task(), **fields})

    answer = q.one(PutRecurring(recurring_id=q.ids.next(), spec=spec))

    assert reason_of(answer) == "unsatisfiable"
    assert word in str(answer)


def test_what_fails_to_be_written_is_fired_by_the_next_look(
    q: QueueDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(q, every_s=60)
    q.clock.advance(60)
    tables = q.store._tables  # type: ignore[attr-defined]  # both stores have them; only the disk is broken
    with monkeypatch.context() as broken:
        broken.setattr(type(tables), "put_recurring", _refuse)
        with pytest.raises(StorageFailed):
            advance(q)
    assert q.store.find(TaskFilter()) == []

    assert len(advance(q).fired) == 1


def _refuse(*_: object) -> None:
    raise StorageFailed("the disk refuses")
