"""What a power cut leaves at the end of a log is no damage; what stands before a whole commit is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import apsw
import pytest

from task_queue.damage.log_frames import FRAME_HEAD_BYTES, HEADER_BYTES, read_log
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter
from task_queue.testing import QueueDriver, sqlite_opener

PAGE = 1024
STRIDE = FRAME_HEAD_BYTES + PAGE
COMMITS = 4


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of four commits, as a killed process leaves it."""
    db = apsw.Connection(str(tmp_path / "a.db"))
    db.execute(f"PRAGMA page_size = {PAGE}; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
    db.execute("CREATE TABLE t (x)")
    for number in range(COMMITS):
        db.execute("INSERT INTO t VALUES (?)", (bytes([number]) * 3000,))
    copy = tmp_path / "copy-wal"
    copy.write_bytes((tmp_path / "a.db-wal").read_bytes())
    db.close()
    return copy


def frames(log: Path) -> list[bytes]:
    data = log.read_bytes()
    return [data[at : at + STRIDE] for at in range(HEADER_BYTES, len(data), STRIDE)]


def torn(frame: bytes, *, ends_commit: bool) -> bytes:
    """Return a frame half of which never reached the disk."""
    size = (99).to_bytes(4, "big") if ends_commit else bytes(4)
    return frame[:4] + size + frame[8:FRAME_HEAD_BYTES] + bytes(PAGE // 2) + frame[-PAGE // 2 :]


def test_torn_commits_of_several_power_cuts_behind_each_other_are_no_damage(log: Path) -> None:
    whole = frames(log)
    sample = whole[-1]
    left = [torn(sample, ends_commit=end) for end in (False, True, False, True, False, False, True)]
    log.write_bytes(log.read_bytes() + b"".join(left))

    found = read_log(log, PAGE)

    assert not found.is_damaged
    assert len(found.frames) == len(whole)


def test_a_broken_frame_with_a_whole_commit_behind_it_is_damage_and_nothing_behind_is_given_up(
    log: Path,
) -> None:
    whole = frames(log)
    data = bytearray(log.read_bytes())
    at = HEADER_BYTES + (len(whole) // 2) * STRIDE + FRAME_HEAD_BYTES
    data[at : at + 64] = bytes(range(64))
    log.write_bytes(data)

    found = read_log(log, PAGE)

    assert found.is_damaged
    assert len(found.frames) == len(whole)


@pytest.mark.parametrize("seed", range(6))
def test_a_sector_of_zeros_over_a_frame_s_head_takes_no_commit_behind_it(tmp_path: Path, seed: int) -> None:
    q = QueueDriver(sqlite_opener(tmp_path / "a"))
    ids = [q.enqueue() for _ in range(60)]
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("*-shm"))
    q.store.close()
    _zero_a_head(tmp_path / "b" / "queue.db-wal", random.Random(seed))

    q = QueueDriver(sqlite_opener(tmp_path / "b"))

    present = {record.task_id for record in q.store.find(TaskFilter(limit=1000))}
    missing = [number for number, task_id in enumerate(ids) if task_id not in present]
    assert len(missing) < 12, missing
    assert isinstance(q.store, SqliteStore)
    assert q.store.salvaged is not None
    q.store.close()


def _zero_a_head(log: Path, draw: random.Random) -> None:
    """Overwrite the sector in which the head of a frame begins, somewhere in the middle third."""
    data = bytearray(log.read_bytes())
    stride = FRAME_HEAD_BYTES + PAGE_BYTES
    frames = (len(data) - HEADER_BYTES) // stride
    at = (HEADER_BYTES + draw.randrange(frames // 3, frames // 2) * stride) // 512 * 512
    data[at : at + 512] = bytes(512)
    log.write_bytes(data)
