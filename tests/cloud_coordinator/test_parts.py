"""Small parts of the coordinator: order of planning, pace of enrolments, word to a service manager."""

from __future__ import annotations

import socket
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_coordinator.api.pace import Pace
from cloud_coordinator.core.queue import PlanQueue
from cloud_coordinator.ledger.values import Moment
from skerry.clock import WALL_FLOOR_S, Instant
from skerry.notify import ServiceManager

steps = st.lists(
    st.tuples(st.sampled_from(["put", "drop"]), st.sampled_from("abcde"), st.integers(0, 9)), max_size=40
)


@settings(derandomize=True, database=None, deadline=None)
@given(steps, st.integers(0, 9), st.integers(1, 6))
def test_the_queue_gives_what_is_due_earliest_first(
    history: list[tuple[str, str, int]], until: int, limit: int
) -> None:
    queue, plain = PlanQueue(), dict[str, int]()
    for what, task_id, due in history:
        if what == "put":
            queue.put(task_id, Instant("b", due))
            plain[task_id] = due
        else:
            queue.drop(task_id)
            plain.pop(task_id, None)

    expected = sorted((due, task_id) for task_id, due in plain.items() if due <= until)[:limit]
    for _ in range(2):  # looking changes nothing
        assert queue.due(Instant("b", until), limit) == [task_id for _, task_id in expected]
    assert set(queue.ids()) == set(plain)
    first = queue.next_due_s(Instant("b", 0.0))
    assert first == (min(plain.values()) if plain else None)


def test_a_pace_frees_one_place_a_minute_after_it_was_taken() -> None:
    pace = Pace(2)

    assert [pace.take(Instant("b", at)) for at in (0.0, 10.0)] == [0.0, 0.0]
    assert pace.take(Instant("b", 20.0)) == 40.0
    assert pace.take(Instant("b", 60.0)) == 0.0
    assert pace.take(Instant("b", 61.0)) == 9.0


def test_age_counts_the_boot_clock_and_over_a_reboot_a_trusted_wall() -> None:
    moment = Moment(Instant("b1", 100.0), WALL_FLOOR_S + 1000)

    assert moment.age_s(Instant("b1", 130.0), WALL_FLOOR_S + 9e9) == 30.0
    assert moment.age_s(Instant("b2", 5.0), WALL_FLOOR_S + 1050) == 50.0
    assert moment.age_s(Instant("b2", 5.0), 0.0) == 0.0
    assert moment.age_s(Instant("b2", 5.0), WALL_FLOOR_S + 1) == 0.0


def test_a_service_manager_hears_ready_alive_and_stopping(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        service = ServiceManager({"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "60000000"})
        service.ready("term 3")
        service.alive()
        service.stopping()

        assert [manager.recv(100) for _ in range(3)] == [
            b"READY=1\nSTATUS=term 3",
            b"WATCHDOG=1",
            b"STOPPING=1",
        ]
        assert service.alive_every_s == 30.0


def test_without_a_service_manager_nothing_is_said() -> None:
    service = ServiceManager({})
    service.ready()

    assert service.alive_every_s is None
