"""Training at work with a real child process; a small program stands in for the training environment."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_agent.training_child import TrainingChild
from edge_agent.training_service import STATE, TRIES, TrainingService
from skerry.blobs import BlobStore
from skerry.clock import SystemClock
from skerry.errors import BlobError, BlobNotFound, StorageFailed
from skerry.link.actions import ReceivedRow
from skerry.messages import FederationOver, FederationReply, FederationRequest, Lane, Row, row_of
from task_queue.operations import AppendOutbox, Operation, PutMeta

PATIENCE_S = 30.0
MODEL = b"version 0"
#: What the child does with `order` and `place`, and what it leaves there.
HONEST = 'answer({"inline": "dXBkYXRl", "num_examples": 7, "metrics": {"loss": 0.5}})'
_PROGRAM = """\
#!{python}
import hashlib, json, os, pathlib, sys, time
assert sys.argv[1:4] == ["-P", "-m", "federation.edge_child"], sys.argv
place = pathlib.Path(sys.argv[4])
order = json.loads((place / "instruction.json").read_text())
with open({begun!r}, "a") as begun: begun.write("x")
def answer(said):
    one = order["instruction"]
    told = dict(instruction_id=one["id"], run_id=one["run_id"], node=one["node"], base_version=one["version"])
    (place / "reply.json").write_text(json.dumps({{**told, **said}}))
{body}
"""


class World:
    """A node's store, content and training; `disk` is what survives a restart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = BlobStore(directory / "content", 1 << 26)
        self.model = self.blobs.put_bytes(MODEL)
        self.disk: dict[str, Any] = {}
        self.said: list[FederationReply] = []
        self.is_disk_full = False
        self.load = 0.0
        self.missing: BlobError | None = None

    @property
    def begun(self) -> int:
        """How often a child began."""
        file = self.directory / "begun"
        return len(file.read_text()) if file.exists() else 0

    def program(self, body: str) -> Path:
        """Write the stand-in for the training environment's interpreter."""
        path = self.directory / "python"
        begun = str(self.directory / "begun")
        path.write_text(_PROGRAM.format(python=sys.executable, begun=begun, body=body))
        path.chmod(0o700)
        return path

    async def commit(self, *operations: Operation) -> None:
        """One commit: all of it or nothing."""
        if self.is_disk_full:
            raise StorageFailed("the disk is full")
        for operation in operations:
            if isinstance(operation, PutMeta):
                self.disk[operation.name] = operation.value
            elif isinstance(operation, AppendOutbox):
                assert operation.lane is Lane.BACKLOG
                self.said.append(msgspec.json.decode(operation.body, type=FederationReply))

    async def have(self, name: str) -> None:
        """The content cache."""
        if self.missing is not None:
            raise self.missing

    async def record(self, directory: Path) -> None:
        """What the node recorded."""
        (directory / "experience.json").write_text("{}")

    @asynccontextmanager
    async def training(self, body: str, **options: Any) -> AsyncIterator[TrainingService]:
        """One life of the agent's training."""
        limits = {"time_limit_s": 20.0, "memory_bytes": 1 << 29, **options.pop("limits", {})}
        service = TrainingService(
            self.disk.get(STATE),
            node="n1",
            child=TrainingChild(self.program(body), marker="SKERRY_AGENT=test", **limits),
            directory=self.directory / "training",
            blobs=self.blobs,
            have=self.have,
            commit=self.commit,
            clock=SystemClock(),
            load=lambda: self.load,
            record=self.record,
            **{"start_below_load": 0.5, "patience_s": 1e6, "node_config": {}, **options},
        )
        service.start()
        try:
            yield service
        finally:
            await service.close()

    async def ask(self, service: TrainingService, *messages: FederationRequest | FederationOver) -> None:
        """Have rows applied, as the uplink does."""
        rows = []
        for n, message in enumerate(messages):
            kind, body = row_of(message)
            rows.append(ReceivedRow(Row(seq=n, kind=kind, body=msgspec.Raw(body)), message))
        await self.commit(*service.note(rows))

    def request(self, run: str = "r1", version: int = 0, **fields: Any) -> FederationRequest:
        """An instruction with this node's model."""
        values = {"ttl_s": 1e6, "model": self.model, "trainer": "null", **fields}
        return FederationRequest(instruction_id=f"{run}-{version}", run_id=run, version=version, **values)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def until(is_so: Callable[[], bool]) -> None:
    """Poll with a deadline: what is waited for happens in a child process."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 # a child process sets no event of this loop
            await asyncio.sleep(0.01)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 2 * PATIENCE_S))


def test_an_instruction_is_trained_and_answered_in_the_commit_that_ends_it(world: World) -> None:
    async def story() -> None:
        async with world.training(HONEST) as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    (said,) = world.said
    assert (said.inline, said.num_examples, said.metrics) == (b"update", 7, {"loss": 0.5})
    assert (said.instruction_id, said.run_id, said.version) == ("r1-0", "r1", 0)
    assert not world.disk[STATE]["asked"]
    assert not any((world.directory / "training").iterdir())


def test_the_child_sees_the_model_the_record_and_little_else(world: World) -> None:
    body = """\
files = sorted(path.name for path in place.iterdir())
assert files == ["experience.json", "instruction.json", "model.packet"], files
assert (place / "model.packet").read_bytes() == b"version 0"
assert order["parent"] == os.getppid()
assert set(os.environ) <= {"PATH", "LANG", "LD_LIBRARY_PATH", "SKERRY_AGENT", "HOME", "TMPDIR", "LC_CTYPE"}
answer({"inline": "dXBkYXRl"})"""

    async def story() -> None:
        async with world.training(body) as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    assert world.said[0].error == ""


def test_a_large_update_is_in_the_content_store_before_the_answer(world: World) -> None:
    body = """\
data = b"u" * 100_000
(place / "update.packet").write_bytes(data)
answer({"update": "sha256:" + hashlib.sha256(data).hexdigest()})"""

    async def story() -> None:
        async with world.training(body) as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    assert world.blobs.path(world.said[0].update).read_bytes() == b"u" * 100_000
    assert list(world.disk[STATE]["updates"]) == [world.said[0].update]


def test_an_update_that_is_not_what_its_hash_says_is_not_answered(world: World) -> None:
    body = """\
(place / "update.packet").write_bytes(b"other")
answer({"update": "sha256:" + "0" * 64})"""

    async def story() -> None:
        async with world.training(body) as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    assert "could not be kept" in world.said[0].error
    assert world.begun == TRIES


def test_a_child_that_dies_is_tried_again_and_then_answered_for(world: World) -> None:
    async def story() -> None:
        async with world.training("sys.exit('no more')") as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    assert world.begun == TRIES
    assert "no more" in world.said[0].error


def test_a_child_that_takes_too_long_is_ended_and_answered_for_at_once(world: World) -> None:
    async def story() -> None:
        async with world.training("time.sleep(600)", limits={"time_limit_s": 1.0}) as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))
            assert service.child_pid is None

    run(story())
    assert world.begun == 1
    assert "more than 1 s" in world.said[0].error


def test_a_child_that_grows_too_large_is_ended(world: World) -> None:
    body = "held = b'x' * (200 << 20)\ntime.sleep(600)"

    async def story() -> None:
        async with world.training(body, limits={"memory_bytes": 100 << 20}) as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    assert "100 MiB" in world.said[0].error


def test_an_agent_that_was_killed_while_training_trains_again(world: World) -> None:
    async def first_life() -> None:
        async with world.training("time.sleep(600)") as service:
            await world.ask(service, world.request())
            await until(lambda: world.begun == 1)
            world.is_disk_full = True  # nothing of an orderly end reaches the disk

    async def second_life() -> None:
        world.is_disk_full = False
        assert world.disk[STATE]["asked"][0]["tries"] == 1
        async with world.training(HONEST):
            await until(lambda: bool(world.said))

    run(first_life())
    run(second_life())
    assert [said.error for said in world.said] == [""]
    assert world.begun == 2


def test_a_training_that_kills_the_agent_each_time_is_answered_for_in_the_end(world: World) -> None:
    async def life() -> None:
        world.is_disk_full = False
        async with world.training("time.sleep(600)") as service:
            before = world.begun
            if not before:
                await world.ask(service, world.request())
            await until(lambda: world.begun > before or bool(world.said))
            world.is_disk_full = True

    for _ in range(TRIES + 1):
        run(life())
    assert world.begun == TRIES
    assert f"begun {TRIES} times" in world.said[0].error


def test_an_agent_that_stops_in_order_leaves_no_child_and_counts_no_try(world: World) -> None:
    pids: list[int] = []

    async def story() -> None:
        async with world.training("time.sleep(600)") as service:
            await world.ask(service, world.request())
            await until(lambda: world.begun == 1)
            assert service.child_pid is not None
            pids.append(service.child_pid)

    run(story())
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    assert world.disk[STATE]["asked"][0]["tries"] == 0


def test_live_tasks_come_first_until_patience_is_over(world: World) -> None:
    async def busy() -> None:
        world.load = 0.9
        async with world.training(HONEST) as service:
            await world.ask(service, world.request())
            await asyncio.sleep(0.3)  # long enough for a child that was wrongly begun
            assert world.begun == 0
            world.load = 0.1
            await until(lambda: bool(world.said))

    async def impatient() -> None:
        world.load = 0.9
        async with world.training(HONEST, patience_s=0.0) as service:
            await world.ask(service, world.request(version=1))
            await until(lambda: len(world.said) == 2)

    run(busy())
    run(impatient())


def test_a_newer_instruction_replaces_one_that_waits_for_a_quiet_moment(world: World) -> None:
    async def story() -> None:
        world.load = 0.9
        async with world.training(HONEST) as service:
            await world.ask(service, world.request(version=0))
            await asyncio.sleep(0)
            await world.ask(service, world.request(version=1))
            world.load = 0.0
            await until(lambda: len(world.said) == 2)

    run(story())
    assert [(said.version, said.error) for said in world.said] == [(0, "superseded"), (1, "")]
    assert world.begun == 1


def test_the_end_of_the_run_ends_its_child(world: World) -> None:
    async def story() -> None:
        async with world.training("time.sleep(600)") as service:
            await world.ask(service, world.request())
            await until(lambda: world.begun == 1)
            await world.ask(service, FederationOver(run_id="r1"))
            await until(lambda: service.child_pid is None)
            await until(lambda: not world.disk[STATE]["asked"])

    run(story())
    assert world.said == []


def test_a_full_disk_delays_the_answer_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_agent.training_service.RETRY_S", 0.05)
    go = world.directory / "go"
    body = f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n{HONEST}"

    async def story() -> None:
        async with world.training(body) as service:
            await world.ask(service, world.request())
            await until(lambda: world.begun == 1)
            world.is_disk_full = True
            go.touch()
            await until(lambda: service.child_pid is None)
            await asyncio.sleep(0.2)  # a few refused commits
            assert world.said == []
            world.is_disk_full = False
            await until(lambda: bool(world.said))

    run(story())
    assert len(world.said) == 1
    assert world.begun == 1


def test_a_model_that_is_nowhere_is_answered_for(world: World) -> None:
    world.missing = BlobNotFound("nobody has it")

    async def story() -> None:
        async with world.training(HONEST) as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    assert "nowhere" in world.said[0].error


def test_a_model_that_cannot_be_fetched_yet_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_agent.training_service.RETRY_S", 0.05)
    world.missing = BlobError("the coordinator cannot be reached")

    async def story() -> None:
        async with world.training(HONEST) as service:
            await world.ask(service, world.request())
            await asyncio.sleep(0.2)  # a few tries
            assert world.said == []
            world.missing = None
            await until(lambda: bool(world.said))

    run(story())
    assert world.said[0].error == ""


def test_a_reply_to_another_instruction_does_not_count(world: World) -> None:
    async def story() -> None:
        async with world.training('answer({"instruction_id": "x", "inline": "dQ=="})') as service:
            await world.ask(service, world.request())
            await until(lambda: bool(world.said))

    run(story())
    assert "another instruction" in world.said[0].error
