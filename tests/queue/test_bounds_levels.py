"""The one function from usage and limits to a level, without any store."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skerry.messages import UpRow
from task_queue.limits import MIB, Limits
from task_queue.retention import CLASS_OF_KIND, RowClass, class_of
from task_queue.watermarks import (
    LOWEST_PRIORITY,
    MOST_SHARE,
    PAUSE_MOST_S,
    Level,
    Usage,
    budget_bytes,
    fullness,
    level,
    pause_s,
    why_full,
)

LIMITS = Limits(max_bytes=110 * MIB, reserve_bytes=10 * MIB, free_floor_bytes=20 * MIB)
PLENTY = 1 << 40
sizes = st.integers(0, 1 << 34)


def used(mib: float, *, free: int = PLENTY, file_mib: float | None = None, log: int = 0) -> Usage:
    file_bytes = int((mib if file_mib is None else file_mib) * MIB)
    return Usage(used_bytes=int(mib * MIB), file_bytes=file_bytes, free_bytes=free, log_bytes=log)


@pytest.mark.parametrize(
    ("mib", "expected"),
    [
        (0, Level.FREE),
        (69.9, Level.FREE),
        (70, Level.SAMPLED),
        (84.9, Level.SAMPLED),
        (85, Level.SLOWED),
        (95, Level.URGENT),
        (99.9, Level.URGENT),
        (100, Level.CLOSED),
        (120, Level.CLOSED),
    ],
)
def test_the_levels_begin_at_their_shares_of_the_configured_budget(mib: float, expected: Level) -> None:
    assert budget_bytes(used(mib), LIMITS) == 100 * MIB
    assert level(used(mib), LIMITS) is expected


def test_what_the_disk_has_left_is_the_budget_when_it_is_less() -> None:
    usage = used(10, free=30 * MIB)

    assert budget_bytes(usage, LIMITS) == 20 * MIB  # ten in the file and ten above the floor
    assert level(usage, LIMITS) is Level.FREE
    assert level(used(10, free=21 * MIB), LIMITS) is Level.SLOWED
    assert level(used(10, free=20 * MIB), LIMITS) is Level.CLOSED
    assert "delete something there" in why_full(used(10, free=20 * MIB), LIMITS)


def test_unused_pages_of_the_file_are_room_that_a_full_disk_cannot_take() -> None:
    assert level(used(10, file_mib=60, free=20 * MIB), LIMITS) is Level.FREE
    assert level(used(10, file_mib=60, free=0), LIMITS) is Level.FREE
    assert level(used(39, file_mib=60, free=0), LIMITS) is Level.URGENT


def test_a_log_that_cannot_be_emptied_closes_the_door_and_says_whose_fault_it_is() -> None:
    limit = LIMITS.max_log_bytes

    levels = [level(used(1, log=int(limit * share)), LIMITS) for share in (0.5, 0.71, 0.86, 0.96, 1.0)]

    assert levels == list(Level)
    assert "reads the database in one long transaction" in why_full(used(1, log=limit), LIMITS)
    assert "raise the queue's limit" in why_full(used(100), LIMITS)


def test_a_budget_that_is_gone_altogether_has_a_share_that_a_document_can_hold() -> None:
    share = fullness(used(10, free=0, file_mib=10), LIMITS)

    assert share == MOST_SHARE
    assert msgspec.json.decode(msgspec.json.encode(share), type=float) == share


@given(sizes, sizes, sizes, sizes)
def test_more_use_never_opens_the_door_wider(used_bytes: int, more: int, free: int, log: int) -> None:
    usage = Usage(used_bytes=used_bytes, file_bytes=used_bytes + more, free_bytes=free, log_bytes=log)
    fuller = msgspec.structs.replace(usage, used_bytes=used_bytes + more)
    shorter = msgspec.structs.replace(usage, free_bytes=free // 2)
    longer = msgspec.structs.replace(usage, log_bytes=log * 2)

    for worse in (fuller, shorter, longer):
        assert level(worse, LIMITS) >= level(usage, LIMITS)
        assert fullness(worse, LIMITS) >= fullness(usage, LIMITS)


@given(st.floats(0, 2), st.integers(0, 9))
def test_a_pause_grows_from_slowed_to_urgent_and_spares_the_urgent(share: float, priority: int) -> None:
    pause = pause_s(share, priority)

    assert 0 <= pause <= PAUSE_MOST_S
    assert (pause > 0) == (share > 0.85 and priority < LOWEST_PRIORITY[Level.URGENT])
    assert pause_s(share + 0.01, priority) >= pause


def test_each_level_accepts_no_more_priorities_than_the_one_below() -> None:
    lowest = [LOWEST_PRIORITY[at] for at in Level]

    assert lowest == sorted(lowest)
    assert LOWEST_PRIORITY[Level.FREE] == 0
    assert LOWEST_PRIORITY[Level.CLOSED] > 9


def test_every_kind_of_row_that_a_node_sends_has_a_class_and_an_unknown_one_is_kept() -> None:
    kinds = {str(kind.__struct_config__.tag) for kind in UpRow.__args__}

    assert set(CLASS_OF_KIND) == kinds
    assert class_of("not.known") is RowClass.TASK
    assert class_of("task.ended") is RowClass.TASK
    assert class_of("decision.recorded") is RowClass.TELEMETRY
