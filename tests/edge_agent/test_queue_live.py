"""The queue of a real agent: backed up and checked beside its work, restored, damaged; recurring tasks."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_agent.backup import DATABASE, verify
from skerry.client import Client
from skerry.endpoint import Endpoint
from skerry.errors import ServiceUnreachable
from skerry.task import CommandSpec, Resources, TaskSpec

PATIENCE_S = 60.0


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


def test_what_a_kill_left_half_made_is_removed_at_the_next_start(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "data"
    (home / ".backup-abc").mkdir(parents=True)
    (home / ".backup-abc" / DATABASE).write_bytes(b"half a copy")
    (home / ".backup-def.zip").write_bytes(b"half an archive")

    start(tmp_path)

    assert [path.name for path in home.iterdir() if path.name.startswith(".backup-")] == []


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
    with client._http.stream("/metrics") as response:
        figures = response.read().decode()
    assert 'skerry_agent_recurring_runs{run="missed"}' in figures
    client.remove_recurring("tick")


def wait_for_runs(client: Client, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while client.get_recurring("tick").runs < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # powered-on seconds of a real agent; polled with a deadline
