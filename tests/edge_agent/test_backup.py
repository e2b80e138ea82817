"""Backups: copies of one moment while commits go on, damage that shows, restores that repeat nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import apsw
import pytest

from edge_agent.backup import DATABASE, make_archive, restore, verify
from edge_agent.leftovers import why_not_to_begin
from edge_agent.runtime_build import open_parts
from edge_agent.settings import AgentSettings
from skerry.errors import BackupError, DirectoryInUse, SettingsError
from skerry.lock import DirectoryLock
from skerry.messages import Lane
from skerry.testing import ManualClock, a_task
from task_queue.backup import MAY_HAVE_RUN, copy_in_use, why_unusable
from task_queue.inspection import check_file, schema_known
from task_queue.operations import AppendOutbox, Enqueue
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import ROOMY, QueueDriver, sqlite_opener

PATIENCE_S = 60.0


def a_queue(home: Path, tasks: int = 20) -> QueueDriver:
    home.mkdir(exist_ok=True, parents=True)
    q = QueueDriver(sqlite_opener(home))
    q.apply(*(Enqueue(task_id=q.ids.next(), task=a_task(), wall_s=q.clock.wall_s()) for _ in range(tasks)))
    return q


def archive(q: QueueDriver, home: Path, target: Path) -> None:
    made_at = q.clock.wall_s()
    make_archive(home / DATABASE, target, node="edge-1", wall_s=made_at, contents=[], pause=lambda _: None)


def brought_back(file: Path, home: Path, *, replace: bool = False) -> SqliteStore:
    clock = ManualClock()
    restore(file, home, replace=replace, now=clock.now(), wall_s=clock.wall_s, reports=True)
    return SqliteStore.open(home / DATABASE, now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)


def test_a_copy_is_of_one_moment_though_commits_go_on(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home", tasks=2000)
    rounds = 0

    def commit_meanwhile(_: float) -> None:
        nonlocal rounds
        rounds += 1
        q.apply(*(Enqueue(task_id=q.ids.next(), task=a_task()) for _ in range(5)))

    copy_in_use(tmp_path / "home" / DATABASE, tmp_path / "copy.db", pause=commit_meanwhile)

    assert rounds >= 1
    assert check_file(tmp_path / "copy.db").rows == 2000
    assert check_file(tmp_path / "copy.db").findings == ()
    assert q.store.depth().by_state[State.READY] == 2000 + 5 * rounds
    q.store.close()


def test_a_copy_is_one_file_and_one_that_fails_leaves_none(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home", tasks=500)

    def fail(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_in_use(tmp_path / "home" / DATABASE, tmp_path / "copy.db", pause=fail)
    assert not (tmp_path / "copy.db").exists()
    copy_in_use(tmp_path / "home" / DATABASE, tmp_path / "copy.db", pause=lambda _: None)

    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("copy")] == ["copy.db"]
    assert why_unusable(tmp_path / "copy.db", schema_known()) == ()
    q.store.close()


def test_an_archive_says_what_it_holds(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home", tasks=7)
    archive(q, tmp_path / "home", tmp_path / "copy.zip")

    manifest = verify(tmp_path / "copy.zip").manifest

    assert (manifest.node, manifest.tasks, manifest.epoch) == ("edge-1", {"ready": 7}, q.store.epoch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.zip", "home"]
    q.store.close()


def test_a_backup_that_would_leave_too_little_room_is_refused_before_it_begins(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home")

    with pytest.raises(BackupError, match="MiB free"):
        make_archive(
            tmp_path / "home" / DATABASE,
            tmp_path / "copy.zip",
            node="edge-1",
            wall_s=0.0,
            contents=[],
            keep_free_bytes=1 << 60,
        )

    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    q.store.close()


def test_any_byte_that_is_wrong_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home", tasks=5)
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    q.store.close()
    sound = verify(tmp_path / "copy.zip").manifest
    content = (tmp_path / "copy.zip").read_bytes()
    rng = Random(5)
    noticed = 0
    for _ in range(80):
        wrong, at = bytearray(content), rng.randrange(len(content))
        wrong[at] ^= 1 << rng.randrange(8)
        (tmp_path / "wrong.zip").write_bytes(wrong)
        try:
            found = verify(tmp_path / "wrong.zip").manifest
        except BackupError:
            noticed += 1
        else:  # a bit in a date or an attribute of the archive, which nothing reads
            assert found == sound, f"byte {at}"

    assert noticed > 60


@pytest.mark.parametrize("kept", [0, 10, 100, 0.5, 0.99])
def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path, kept: float) -> None:
    q = a_queue(tmp_path / "home", tasks=5)
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    q.store.close()
    content = (tmp_path / "copy.zip").read_bytes()
    (tmp_path / "copy.zip").write_bytes(content[: int(kept if kept >= 1 else kept * len(content))])

    with pytest.raises(BackupError, match="damaged"):
        verify(tmp_path / "copy.zip")


def test_a_restored_queue_has_its_tasks_and_another_epoch(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home", tasks=9)
    q.one(AppendOutbox(lane=Lane.LIVE, kind="test.row", body=b"{}"))
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    q.store.close()

    store = brought_back(tmp_path / "copy.zip", tmp_path / "other")

    assert store.epoch != q.store.epoch
    assert store.depth().by_state[State.READY] == 9
    assert [row.kind for row in store.outbox(Lane.LIVE, 0, limit=9, limit_bytes=1 << 20)] == ["test.row"]
    assert store.meta("restored_from")["epoch"] == q.store.epoch
    store.close()


def test_two_restores_of_one_copy_have_epochs_of_their_own(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home")
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    q.store.close()

    stores = [brought_back(tmp_path / "copy.zip", tmp_path / name) for name in ("one", "two")]

    assert len({q.store.epoch, *(store.epoch for store in stores)}) == 3
    for store in stores:
        store.close()


def test_what_may_take_effect_only_once_does_not_run_again_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    q = QueueDriver(sqlite_opener(tmp_path / "home"))
    started, _ = q.run(effect="at_most_once")
    waiting = q.enqueue(effect="at_most_once")
    again = q.enqueue()
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    q.store.close()

    store = brought_back(tmp_path / "copy.zip", tmp_path / "other")

    records = {record.task_id: record for record in store.find(TaskFilter())}
    assert records[started].state is State.UNKNOWN
    assert records[waiting].state is State.CANCELLED
    outcome = records[waiting].outcome
    assert outcome is not None
    assert outcome.error == MAY_HAVE_RUN
    assert records[again].state is State.READY
    store.close()


def test_a_restore_over_a_queue_is_refused_unless_it_is_set_aside(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home", tasks=3)
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    newer = q.enqueue()
    q.store.close()
    before = (tmp_path / "home" / DATABASE).read_bytes()

    with pytest.raises(BackupError, match="--replace"):
        brought_back(tmp_path / "copy.zip", tmp_path / "home")
    assert (tmp_path / "home" / DATABASE).read_bytes() == before
    store = brought_back(tmp_path / "copy.zip", tmp_path / "home", replace=True)

    assert store.get(newer) is None
    (aside,) = (tmp_path / "home").glob("replaced-*")
    assert check_file(aside / DATABASE).rows == 4
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores for somebody else")
def test_what_root_restores_belongs_to_the_directorys_owner(tmp_path: Path) -> None:
    q, home = a_queue(tmp_path / "first"), tmp_path / "home"
    archive(q, tmp_path / "first", tmp_path / "copy.zip")
    a_queue(home).store.close()
    for path in (home, *home.rglob("*")):
        os.chown(path, 4321, 1234)

    q.store.close()
    clock = ManualClock()
    restore(tmp_path / "copy.zip", home, replace=True, now=clock.now(), wall_s=clock.wall_s, reports=True)

    made = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in home.rglob("*")}
    assert {"queue.db", "owner.lock"} <= made.keys()
    assert set(made.values()) == {(4321, 1234)}, made


def test_a_restore_is_refused_while_an_agent_owns_the_directory(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home")
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    q.store.close()

    with DirectoryLock(tmp_path / "home"), pytest.raises(DirectoryInUse, match=str(os.getpid())):
        brought_back(tmp_path / "copy.zip", tmp_path / "home", replace=True)


def test_a_damaged_backup_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home")
    archive(q, tmp_path / "home", tmp_path / "copy.zip")
    q.store.close()
    content = (tmp_path / "copy.zip").read_bytes()
    (tmp_path / "copy.zip").write_bytes(content[:200] + b"\0" * 50 + content[250:])
    before = sorted(path.name for path in (tmp_path / "home").iterdir())

    with pytest.raises(BackupError):
        brought_back(tmp_path / "copy.zip", tmp_path / "home", replace=True)

    after = sorted(path.name for path in (tmp_path / "home").iterdir() if path.name != "owner.lock")
    assert after == [name for name in before if name != "owner.lock"]


def test_a_copy_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    q = a_queue(tmp_path / "home")
    copy_in_use(tmp_path / "home" / DATABASE, tmp_path / "copy.db", pause=lambda _: None)
    q.store.close()
    db = apsw.Connection(str(tmp_path / "copy.db"))
    db.execute(f"PRAGMA user_version = {schema_known() + 1}")
    db.close()

    assert "schema version" in why_unusable(tmp_path / "copy.db", schema_known())[0]


def test_no_backup_is_made_of_a_queue_that_still_comes_back_from_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    q = a_queue(home, tasks=2000)
    q.store.tidy()
    q.store.close()
    with (home / DATABASE).open("r+b") as file:
        db = apsw.Connection(str(home / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
        ((root, size),) = db.execute(
            "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'task'"
        )
        db.close()
        file.seek((root - 1) * size)
        file.write(bytes(size))
    monkeypatch.setattr("task_queue.sqlite_store.SALVAGE_AT_ONCE_S", 0.0)
    q = QueueDriver(sqlite_opener(home))

    with pytest.raises(BackupError, match="would lack"):
        archive(q, home, tmp_path / "early.zip")
    while q.store.tidy():
        pass
    archive(q, home, tmp_path / "whole.zip")

    assert not (tmp_path / "early.zip").exists()
    assert verify(tmp_path / "whole.zip").manifest.tasks == {"ready": 2000}


CUT_OFF = """
import os, sys
from pathlib import Path
import edge_agent.backup as backup
from skerry.clock import SystemClock

def set_aside_and_die(*given):
    whole(*given)
    os._exit(9)

whole, backup._set_aside = backup._set_aside, set_aside_and_die
file, home, clock = Path(sys.argv[1]), Path(sys.argv[2]), SystemClock()
backup.restore(file, home, replace=True, now=clock.now(), wall_s=clock.wall_s, reports=False)
"""


def test_an_agent_does_not_begin_with_nothing_where_a_restore_was_killed_half_way(tmp_path: Path) -> None:
    home, settings = tmp_path / "home", AgentSettings(data_dir=str(tmp_path / "home"))
    q = a_queue(home)
    archive(q, home, tmp_path / "copy.zip")
    q.store.close()
    words = [sys.executable, "-P", "-c", CUT_OFF, str(tmp_path / "copy.zip"), str(home)]
    assert subprocess.run(words, timeout=PATIENCE_S, check=False).returncode == 9
    assert not (home / DATABASE).exists()

    with pytest.raises(SettingsError, match=r"restore.* was cut off.*replaced-\d+-1"):
        open_parts(settings)
    brought_back(tmp_path / "copy.zip", home, replace=True).close()

    assert why_not_to_begin(home) == ""
    assert check_file(home / DATABASE).rows == 20
