"""The whole agent in one process with real store and real children: tasks in, results out, restarts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_agent.runtime import Agent
from edge_agent.runtime_build import open_parts
from edge_agent.settings import AgentSettings, RulesSettings
from skerry.errors import DirectoryInUse, StoreTooNew
from skerry.ids import TaskId
from skerry.task import CommandSpec, Constraints, OnnxSpec, Resources, TaskSpec, Tensor
from task_queue.operations import Changed, Enqueued, Refused
from task_queue.store import TaskFilter, TaskRecord
from task_queue.task import State

RunAgent = Callable[..., AbstractAsyncContextManager[Agent]]
PATIENCE_S = 30.0


def command(*argv: str, **fields: Any) -> TaskSpec:
    resources = Resources(cpu_millicores=100, memory_bytes=1 << 26)
    return TaskSpec(**{"spec": CommandSpec(argv=argv), "kind": "test", "resources": resources, **fields})


async def submit(agent: Agent, task: TaskSpec) -> TaskId:
    answer = await agent.submit(task)
    assert isinstance(answer, Enqueued), answer
    return answer.task_id


async def ended(agent: Agent, task_id: TaskId) -> TaskRecord:
    record = await agent.wait(task_id, PATIENCE_S)
    assert record is not None
    return record


async def until(is_so: Callable[[], bool]) -> None:
    """Poll with a deadline: what is waited for happens in a child process."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 # a child process sets no event of this loop
            await asyncio.sleep(0.01)


def test_a_command_runs_and_its_output_comes_back(run_agent: RunAgent) -> None:
    async def story() -> TaskRecord:
        async with run_agent() as agent:
            return await ended(agent, await submit(agent, command("echo", "hello")))

    record = asyncio.run(story())

    assert record.state is State.DONE
    assert record.outcome is not None
    assert "hello" in str(record.outcome.result)
    assert record.attempts[0].decision is not None


def test_a_command_that_does_not_exist_ends_with_its_name(run_agent: RunAgent) -> None:
    async def story() -> TaskRecord:
        async with run_agent() as agent:
            return await ended(agent, await submit(agent, command("no-such-command-here")))

    record = asyncio.run(story())

    assert (record.state, record.attempt) == (State.DEAD, 1)
    assert record.outcome is not None
    assert "no-such-command-here" in record.outcome.error


def test_a_large_result_goes_to_the_content_store_and_is_named_by_its_hash(
    run_agent: RunAgent, agent_settings: AgentSettings
) -> None:
    from devices.port import Job, Report
    from edge_agent.core.actions import RunAttempt
    from edge_agent.core.events import AttemptEnded
    from edge_agent.runtime_attempts import Attempts
    from skerry.blobs import BlobStore
    from skerry.fence import Fence

    class Verbose:
        """An executor whose result is larger than what travels inline."""

        async def run(self, job: Job) -> Report:
            return Report(status="succeeded", result={"text": "x" * 100_000})

    async def story() -> tuple[AttemptEnded, BlobStore]:
        posted: asyncio.Queue[AttemptEnded] = asyncio.Queue()
        blobs = BlobStore(agent_settings.home / "content", 1 << 20)

        async def make_room(size_bytes: int) -> None:
            return

        attempts = Attempts({("cpu-0", "command"): Verbose()}, blobs, posted.put_nowait, make_room)  # type: ignore[dict-item, arg-type]
        action = RunAttempt(
            task_id=TaskId("0" * 32), fence=Fence((), 1), task=command("true"), device_id="cpu-0"
        )
        attempts.run(action)
        return await asyncio.wait_for(posted.get(), PATIENCE_S), blobs

    event, blobs = asyncio.run(story())

    (name,) = event.blobs
    assert event.report.result["blob"] == name
    assert msgspec.json.decode(blobs.path(name).read_bytes()) == {"text": "x" * 100_000}


def test_a_backlog_survives_a_restart_and_ends(run_agent: RunAgent) -> None:
    async def before() -> list[TaskId]:
        async with run_agent() as agent:
            return [await submit(agent, command("true", delay_s=0.2)) for _ in range(20)]

    async def after(ids: list[TaskId]) -> list[State]:
        async with run_agent() as agent:
            return [(await ended(agent, task_id)).state for task_id in ids]

    ids = asyncio.run(before())

    assert set(asyncio.run(after(ids))) == {State.DONE}


def test_ids_go_on_growing_over_a_restart(run_agent: RunAgent) -> None:
    async def one() -> TaskId:
        async with run_agent() as agent:
            return await submit(agent, command("true"))

    first, second = asyncio.run(one()), asyncio.run(one())

    assert second > first


def test_a_running_command_is_stopped_by_cancel(run_agent: RunAgent, tmp_path: Path) -> None:
    async def story() -> tuple[Changed | Refused, TaskRecord]:
        async with run_agent() as agent:
            task_id = await submit(agent, command("sleep", "600"))
            await until(lambda: agent.parts.store.get(task_id).state is State.RUNNING)  # type: ignore[union-attr]
            answer = await agent.cancel(task_id)
            record = await ended(agent, task_id)
            await until(lambda: not agent.core.entries)
            return answer, record

    answer, record = asyncio.run(story())

    assert isinstance(answer, Changed)
    assert record.state is State.CANCELLED


def test_a_dead_task_can_be_replayed(run_agent: RunAgent, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def story() -> TaskRecord:
        async with run_agent() as agent:
            task_id = await submit(agent, command("ls", str(flag), retries=0))
            assert (await ended(agent, task_id)).state is State.DEAD
            flag.touch()
            assert isinstance(await agent.replay(task_id), Changed)
            return await ended(agent, task_id)

    assert asyncio.run(story()).state is State.DONE


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (command("true", resources=Resources(memory_bytes=1 << 43)), "resources.memory_bytes"),
        (command("true", resources=Resources(cpu_millicores=64_000)), "has 2000"),
        (command("true", constraints=Constraints(regions=("south",))), "region south"),
        (
            command(
                "true",
                spec=OnnxSpec(
                    model="sha256:" + "ab" * 32,
                    inputs={"x": Tensor(dtype="float32", shape=(1,), base64="AAAAAA==")},
                ),
            ),
            "skerry models add",
        ),
    ],
)
def test_what_can_never_run_is_refused_at_the_door_with_what_is_missing(
    run_agent: RunAgent, task: TaskSpec, named: str
) -> None:
    async def story() -> tuple[Enqueued | Refused, int]:
        async with run_agent() as agent:
            return await agent.submit(task), len(await agent.list(TaskFilter()))

    answer, count = asyncio.run(story())

    assert isinstance(answer, Refused)
    assert named in answer.message
    assert count == 0


def test_watchers_see_each_change_and_waiting_ends_with_the_task(run_agent: RunAgent) -> None:
    async def story() -> list[str]:
        async with run_agent() as agent:
            states: list[str] = []
            with agent.watch() as changes:
                await submit(agent, command("true"))
                while not states or states[-1] != "done":
                    change = await asyncio.wait_for(anext(changes), PATIENCE_S)
                    assert change is not None
                    states.append(change.state)
            return states

    assert asyncio.run(story()) == ["ready", "running", "done"]


def test_the_report_tells_devices_load_and_that_there_is_no_link(run_agent: RunAgent) -> None:
    async def story() -> object:
        async with run_agent() as agent:
            await ended(agent, await submit(agent, command("true")))
            return await agent.report()

    report = asyncio.run(story())

    assert report.link.state == "off"  # type: ignore[attr-defined]
    assert report.queue.by_state["done"] == 1  # type: ignore[attr-defined]
    assert report.inventory.devices[0].device_class == "cpu"  # type: ignore[attr-defined]


def test_a_data_directory_has_one_agent(run_agent: RunAgent, agent_settings: AgentSettings) -> None:
    async def story() -> None:
        async with run_agent():
            open_parts(agent_settings)

    with pytest.raises(DirectoryInUse, match=str(os.getpid())):
        asyncio.run(story())


def test_rules_that_cannot_be_evaluated_refuse_every_task_and_say_how_to_get_them(
    run_agent: RunAgent, agent_settings: AgentSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "regorus", None)  # as on a machine without the extra
    settings = msgspec.structs.replace(agent_settings, rules=RulesSettings(enabled=True))

    async def story() -> tuple[Enqueued | Refused, list[str]]:
        async with run_agent(settings) as agent:
            return await agent.submit(command("true")), list(agent.not_ready_because())

    answer, reasons = asyncio.run(story())

    assert isinstance(answer, Refused)
    assert "rules" in answer.message
    assert reasons


def test_an_agent_whose_queue_has_no_room_says_that_it_is_not_ready_and_still_takes_cancels(
    run_agent: RunAgent, agent_settings: AgentSettings
) -> None:
    full = msgspec.structs.replace(agent_settings.queue, min_free_bytes=1 << 60)  # more than any disk has

    async def before() -> tuple[TaskId, list[str]]:
        async with run_agent() as agent:
            return await submit(agent, command("true", delay_s=3600.0)), list(agent.not_ready_because())

    async def after(task_id: TaskId) -> list[str]:
        async with run_agent(msgspec.structs.replace(agent_settings, queue=full)) as agent:
            assert isinstance(await agent.submit(command("true")), Refused)
            assert isinstance(await agent.cancel(task_id), Changed)
            return list(agent.not_ready_because())

    waiting, reasons = asyncio.run(before())
    assert reasons == []

    (reason,) = asyncio.run(after(waiting))
    assert "file system is full" in reason


def test_measured_run_times_are_kept_over_a_restart(run_agent: RunAgent) -> None:
    async def before() -> None:
        async with run_agent() as agent:
            await ended(agent, await submit(agent, command("true", kind="measured/kind")))

    async def after() -> list[str]:
        async with run_agent() as agent:
            return [one.kind for one in agent.parts.decider.profile.dump()]

    asyncio.run(before())

    assert asyncio.run(after()) == ["measured/kind"]


def run_module(settings: Path, *, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    command_line = [sys.executable, "-P", "-m", "edge_agent", "--config", str(settings)]
    return subprocess.run(command_line, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[nodde]\n", ["nodde", "node"]),
        ("[scheduler]\nname = 'fifo-first-fitt'\n", ["fifo-first-fit"]),
        ("[api]\ntcp = '0.0.0.0:0'\n", ["loopback", "tls_certificate"]),
        ("[api]\ntcp = 'nonsense'\n", ["host:port"]),
        ("[node]\nname = 'Not Valid'\n", ["node.name"]),
        ("[devices]\nemulated = ['hailo-9']\n", ["hailo-8l"]),
        ("data_dir = 'x'\n[queue", ["TOML"]),
    ],
)
def test_a_mistake_in_the_settings_is_one_clear_line(tmp_path: Path, toml: str, words: list[str]) -> None:
    file = tmp_path / "agent.toml"
    head = "" if "data_dir" in toml else f"data_dir = '{tmp_path / 'data'}'\n"
    file.write_text(head + toml)

    ended = run_module(file)

    assert ended.returncode == 2
    line = ended.stderr.strip().splitlines()[-1]
    assert line.startswith("skerry agent: ")
    assert all(word in line for word in words), line
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["queue.db", "api-token"])
def test_a_folder_in_the_place_of_a_file_is_named_and_left_alone(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    (data / name / "something").mkdir(parents=True)
    file = tmp_path / "agent.toml"
    file.write_text(f"data_dir = '{data}'\n[api]\ntcp = '127.0.0.1:0'\n")

    ended = run_module(file)

    assert ended.returncode == 2
    (line,) = ended.stderr.strip().splitlines()
    assert str(data) in line
    assert "is a directory" in line.lower()
    assert (data / name / "something").is_dir()


def test_a_file_in_the_place_of_the_content_store_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "content").touch()
    file = tmp_path / "agent.toml"
    file.write_text(f"data_dir = '{data}'\n")

    ended = run_module(file)

    assert ended.returncode == 2
    (line,) = ended.stderr.strip().splitlines()
    assert str(data / "content") in line


def test_run_times_that_cannot_be_kept_hinder_nothing(
    run_agent: RunAgent, agent_settings: AgentSettings, caplog: pytest.LogCaptureFixture
) -> None:
    (agent_settings.home / "profile.db").mkdir(parents=True)

    async def story() -> TaskRecord:
        async with run_agent() as agent:
            return await ended(agent, await submit(agent, command("true")))

    assert asyncio.run(story()).state is State.DONE
    assert any("profile.db" in record.getMessage() for record in caplog.records)


def test_a_database_of_a_newer_version_is_left_alone(agent_settings: AgentSettings, tmp_path: Path) -> None:
    import apsw

    parts = open_parts(agent_settings)
    parts.writer.close()
    parts.store.close()
    parts.lock.release()
    database = apsw.Connection(str(agent_settings.home / "queue.db"))
    database.execute("PRAGMA user_version = 999")
    database.close()

    with pytest.raises(StoreTooNew):
        open_parts(agent_settings)
    file = tmp_path / "agent.toml"
    file.write_text(f"data_dir = '{agent_settings.home}'\n")
    assert run_module(file).returncode == 4
