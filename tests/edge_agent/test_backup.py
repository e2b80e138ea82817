"""Backups: copies of one moment while commits go on, damage that shows, restores that repeat nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from edge_agent.backup import DATABASE, make_archive, restore, verify
from skerry.client import Client
from skerry.endpoint import Endpoint
from skerry.errors import BackupError, DirectoryInUse, ServiceUnreachable
from skerry.lock import DirectoryLock
from skerry.messages import Lane
from skerry.task import CommandSpec, Resources, TaskSpec
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


def test_what_a_kill_left_half_made_is_removed_at_the_next_start(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "data"
    (home / ".backup-abc").mkdir(parents=True)
    (home / ".backup-abc" / DATABASE).write_bytes(b"half a copy")
    (home / ".backup-def.zip").write_bytes(b"half an archive")

    start(tmp_path)

    assert [path.name for path in home.iterdir() if path.name.startswith(".backup-")] == []


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


# --- the real agent


def settings(home: Path) -> Path:
    file = home / "agent.toml"
    file.write_text(
        f"data_dir = '{home / 'data'}'\n[node]\nname = 'edge-1'\n[limits]\nstop_grace_s = 0.2\n"
        "[devices.children]\nkill_grace_s = 0.2\n[rules]\nenabled = false\n"
    )
    return file


def skerry(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-c", "from skerry.cli import main; main()", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


Start = Callable[[Path], tuple[subprocess.Popen[bytes], Client]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts agents; what is left of them is ended by id."""
    processes: list[subprocess.Popen[bytes]] = []
    clients: list[Client] = []

    def run(home: Path) -> tuple[subprocess.Popen[bytes], Client]:
        command_line = [sys.executable, "-P", "-m", "edge_agent", "--config", str(settings(home))]
        process = subprocess.Popen(command_line)
        processes.append(process)
        client = Client.at(Endpoint(socket=home / "data" / "agent.sock"))
        clients.append(client)
        deadline = time.monotonic() + PATIENCE_S
        while not client.is_ready():
            assert process.poll() is None, "the agent has ended"
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the process starts in its own time; polled with a deadline
        return process, client

    yield run
    for client in clients:
        client.close()
    for process in processes:
        process.kill()
        process.wait()


def waiting_task(**fields: object) -> TaskSpec:
    resources = Resources(cpu_millicores=100, memory_bytes=1 << 26)
    spec = CommandSpec(argv=("true",))
    return TaskSpec(spec=spec, resources=resources, delay_s=3600.0, **fields)  # type: ignore[arg-type]


def test_a_backup_of_a_busy_agent_holds_everything_acknowledged_before_it_and_is_restored(
    start: Start, tmp_path: Path
) -> None:
    process, client = start(tmp_path)
    before = [answer.task_id for answer in client.submit_many(waiting_task() for _ in range(400))]
    is_over = threading.Event()
    meanwhile: list[str] = []

    def submit_on() -> None:
        with Client.at(client.endpoint) as other:
            while not is_over.is_set():
                meanwhile.append(other.submit(waiting_task()).task_id)

    producer = threading.Thread(target=submit_on)
    producer.start()
    file = tmp_path / "copy.zip"
    made = skerry("backup", "create", str(file), "--config", str(tmp_path / "agent.toml"))
    refused = skerry("backup", "restore", str(file), "--config", str(tmp_path / "agent.toml"), "--replace")
    is_over.set()
    producer.join(PATIENCE_S)

    assert made.returncode == 0, made.stderr
    assert refused.returncode == 2
    assert f"in use by process {process.pid}" in refused.stderr
    assert len(meanwhile) > 0
    held = verify(file).manifest.tasks["delayed"]
    assert 400 <= held <= 400 + len(meanwhile)
    assert [path.name for path in (tmp_path / "data").glob(".backup-*")] == []

    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    done = skerry("backup", "restore", str(file), "--config", str(tmp_path / "agent.toml"), "--replace")
    assert done.returncode == 0, done.stderr
    _, client = start(tmp_path)

    kept = {task.task_id for task in client.list(limit=1000).tasks}
    assert set(before) <= kept
    assert len(kept) == held
    assert client.queue().epoch != verify(file).manifest.epoch
    assert client.run(TaskSpec(spec=CommandSpec(argv=("true",))), timeout_s=PATIENCE_S).status == "succeeded"


def test_a_check_beside_the_work_finds_a_whole_queue_and_is_remembered(start: Start, tmp_path: Path) -> None:
    process, client = start(tmp_path)
    list(client.submit_many(waiting_task() for _ in range(50)))

    found = client.check_queue()

    assert (found.is_whole, found.rows) == (True, 50)
    assert client.queue().last_check == found
    process.kill()
    process.wait()
    shown = skerry("queue", "show", "--config", str(tmp_path / "agent.toml"))
    assert "no agent answers" in shown.stderr
    assert "whole, 50 tasks" in shown.stdout
    with pytest.raises(ServiceUnreachable):
        client.queue()


def test_damage_that_a_check_finds_is_dealt_with_by_the_running_agent(start: Start, tmp_path: Path) -> None:
    _, client = start(tmp_path)
    list(client.submit_many(waiting_task() for _ in range(400)))
    path = tmp_path / "data" / DATABASE
    deadline = time.monotonic() + PATIENCE_S
    while client.queue().log_bytes:
        assert time.monotonic() < deadline
        time.sleep(
            0.1
        )  # the idle agent writes its log into the file after some seconds; polled with a deadline
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        for page in range(pages // 2, pages // 2 + 3):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)

    found = client.check_queue()
    while not client.check_queue().is_whole:
        assert time.monotonic() < deadline
        time.sleep(0.1)  # the agent gives the file up in its own time; polled with a deadline

    assert not found.is_whole
    assert client.run(TaskSpec(spec=CommandSpec(argv=("true",))), timeout_s=PATIENCE_S).status == "succeeded"


def test_a_recurring_task_runs_at_a_real_agent_and_goes_on_after_a_kill(start: Start, tmp_path: Path) -> None:
    process, client = start(tmp_path)
    task = {"spec": {"executor": "command", "argv": ["true"]}, "kind": "tick"}
    client.put_recurring({"name": "tick", "every_s": 1, "task": task, "overlap": "allow"})

    wait_for_runs(client, 2)
    process.kill()
    process.wait()
    _, client = start(tmp_path)
    wait_for_runs(client, 4)

    keys = [client.get(each.task_id).task.idempotency_key for each in client.list(kind="tick").tasks]  # type: ignore[union-attr]
    assert len(set(keys)) == len(keys) >= 4
    client.remove_recurring("tick")


def wait_for_runs(client: Client, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while client.get_recurring("tick").runs < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # powered-on seconds of a real agent; polled with a deadline
