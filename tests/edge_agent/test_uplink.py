"""The uplink of a real agent against the coordinator's link core, over the transport in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from edge_agent.runtime import Agent
from skerry.envelope import Speaker
from skerry.errors import StorageFailed, StoreDamaged
from skerry.fence import Fence
from skerry.identity import PrivateKey
from skerry.ids import TaskId
from skerry.messages import (
    Outcome,
    PlacementRefused,
    RevokePlacement,
    StoreSalvaged,
    TaskEnded,
    TaskOffered,
    TaskReturned,
    UpRow,
)
from skerry.task import Constraints, Resources
from skerry.topics import COORDINATOR, Leaf, build
from skerry.transport.memory import MemoryTransport
from task_queue.operations import Enqueued
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskRecord
from task_queue.task import State
from tests.edge_agent.net import FLEET, NODE, PATIENCE_S, Connect, Net, a_command, is_welcomed, place

RunAgent = Callable[..., AbstractAsyncContextManager[Agent]]


def test_an_enrolled_agent_is_welcomed_and_its_local_work_is_reported(connect: Connect) -> None:
    async def story() -> list[UpRow]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            answer = await net.agent.submit(a_command("true"))
            assert isinstance(answer, Enqueued)
            await net.until(lambda: net.coordinator.heard_of(TaskEnded))
            await net.until(lambda: not sum(net.agent.parts.store.depth().outbox.values()))
            return net.coordinator.heard_of(TaskEnded)

    (ended,) = asyncio.run(story())
    assert isinstance(ended, TaskEnded)
    assert (ended.outcome.status, ended.is_placed) == ("succeeded", False)


def test_a_placed_task_runs_and_its_end_is_reported_under_its_placement(connect: Connect) -> None:
    async def story() -> UpRow:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            place(net, a_command("echo", "placed"))
            await net.until(lambda: net.coordinator.heard_of(TaskEnded))
            return net.coordinator.heard_of(TaskEnded)[0]

    ended = asyncio.run(story())
    assert isinstance(ended, TaskEnded)
    assert ended.fence == Fence((1, 1), 1)
    assert ended.is_placed


def test_a_task_for_another_region_is_offered_and_its_end_comes_home(connect: Connect) -> None:
    async def story() -> TaskRecord:
        async with connect() as net:
            answer = await net.agent.submit(a_command("true", constraints=Constraints(regions=("south",))))
            assert isinstance(answer, Enqueued)
            await net.until(lambda: net.coordinator.heard_of(TaskOffered))
            outcome = Outcome(status="succeeded", result=42, node="edge-9")
            net.coordinator.command(
                TaskReturned(task_id=answer.task_id, fence=Fence((1, 5), 1), outcome=outcome)
            )
            return await net.end_of(answer.task_id)

    record = asyncio.run(story())
    assert record.state is State.DONE
    assert record.outcome is not None
    assert record.outcome.result == 42


def test_a_damaged_queue_goes_on_in_a_fresh_store_and_the_coordinator_hears_of_it(connect: Connect) -> None:
    async def story() -> tuple[Net, str, TaskId]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            store = net.agent.parts.store
            assert isinstance(store, SqliteStore)
            epoch = store.epoch
            place(net, a_command("true"), number=1)
            await net.until(lambda: net.coordinator.heard_of(TaskEnded))
            running = place(net, a_command("sleep", "2"), number=2)
            await net.until(lambda: store.depth().by_state[State.RUNNING])

            store.suspect(StoreDamaged("a page of it cannot be read"))
            answer = await net.agent.submit(a_command("true"))
            assert isinstance(answer, Enqueued)
            await net.until(lambda: net.coordinator.heard_of(StoreSalvaged))
            await net.until(lambda: len(net.coordinator.heard_of(TaskEnded)) == 3)
            await net.until(lambda: not sum(store.depth().outbox.values()))

            assert store.epoch != epoch
            assert net.coordinator.hub._store_epoch == store.epoch  # it was told in a birth
            assert "damage" in net.agent.alarms_now()
            return net, epoch, running

    net, _, running = asyncio.run(story())
    ended = [row.task_id for row in net.coordinator.heard if isinstance(row, TaskEnded)]
    assert len(ended) == len(set(ended)) == 3
    assert running in ended, "an attempt that ran through the change of stores was lost"
    (salvaged,) = net.coordinator.heard_of(StoreSalvaged)
    assert isinstance(salvaged, StoreSalvaged)
    assert salvaged.kept["task"] == 2
    assert salvaged.rows_lost == 0


def test_a_revoked_placement_stops_the_process(connect: Connect) -> None:
    async def story() -> None:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            task_id = place(net, a_command("sleep", "600"))
            await net.until(
                lambda: net.agent.core.entries.get(task_id) and net.agent.core.used_cpu_millicores
            )
            net.coordinator.command(RevokePlacement(task_id=task_id, fence=Fence((1, 1))))
            await net.until(lambda: not net.agent.core.entries)
            assert net.coordinator.heard_of(TaskEnded) == []

    asyncio.run(story())


def test_work_goes_on_through_a_partition_and_every_report_arrives_once(connect: Connect) -> None:
    async def story() -> tuple[list[TaskId], list[str]]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            net.broker.partition(NODE)
            ids = []
            for _ in range(30):
                answer = await net.agent.submit(a_command("true"))
                assert isinstance(answer, Enqueued)
                ids.append(answer.task_id)
            for task_id in ids:
                await net.end_of(task_id)
            assert net.coordinator.heard_of(TaskEnded) == []
            net.broker.cut(NODE)
            net.broker.heal(NODE)
            await net.until(lambda: len(net.coordinator.heard_of(TaskEnded)) >= len(ids))
            return ids, [row.task_id for row in net.coordinator.heard if isinstance(row, TaskEnded)]

    ids, heard = asyncio.run(story())
    assert sorted(heard) == sorted(ids)


def test_commands_that_are_not_understood_are_set_aside_and_the_rest_goes_on(connect: Connect) -> None:
    async def story() -> tuple[dict[str, int], list[UpRow], object]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            net.coordinator.command_raw("from.the.future", b'{"kind":"from.the.future"}')
            future = {
                "kind": "place.task",
                "task_id": "0" * 31 + "7",
                "fence": {"path": [1, 7], "attempt": 0},
                "task": {"spec": {"executor": "quantum"}},
                "home_node": "edge-9",
                "lease_s": 60.0,
            }
            net.coordinator.command_raw("place.task", msgspec.json.encode(future))
            place(net, a_command("true"), number=3)
            await net.until(lambda: net.coordinator.heard_of(TaskEnded))
            await net.until(lambda: net.coordinator.heard_of(PlacementRefused))
            assert net.agent.uplink is not None
            kept = net.agent.parts.store.meta("link.dead_letters")
            return dict(net.agent.uplink.refused), net.coordinator.heard_of(PlacementRefused), kept

    refused, given_back, kept = asyncio.run(story())
    assert refused["dead_letter"] == 2
    assert isinstance(given_back[0], PlacementRefused)
    assert given_back[0].fence == Fence((1, 7))
    assert [letter["kind"] for letter in kept] == ["from.the.future", "place.task"]  # type: ignore[attr-defined]


def test_forged_and_foreign_messages_are_refused_and_counted(connect: Connect) -> None:
    async def story() -> dict[str, int]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            intruder = MemoryTransport(net.broker, client_id="intruder")
            intruder.start(net.coordinator)
            await net.until(lambda: intruder.is_up)
            topic = build(FLEET, NODE, Leaf.COMMANDS)
            forged = Speaker(PrivateKey.generate(), source=COORDINATOR, session=99)
            intruder.publish(topic, forged.seal(topic, "stream.batch", b"{}"))
            stranger = Speaker(PrivateKey.generate(), source="edge-2", session=1)
            intruder.publish(topic, stranger.seal(topic, "stream.batch", b"{}"))
            intruder.publish(topic, b"noise")
            uplink = net.agent.uplink
            assert uplink is not None
            await net.until(lambda: sum(uplink.refused.values()) >= 3)
            return dict(uplink.refused)

    assert asyncio.run(story()) == {"bad_signature": 1, "unknown_sender": 1, "malformed": 1}


def test_an_agent_without_a_broker_works_and_keeps_what_it_has_to_say(
    run_agent: RunAgent, connect: Connect
) -> None:
    async def story() -> tuple[TaskRecord | None, int, str]:
        async with run_agent() as agent:  # enrolled by `connect`; the real transport finds no broker
            answer = await agent.submit(a_command("true"))
            assert isinstance(answer, Enqueued)
            record = await agent.wait(answer.task_id, PATIENCE_S)
            report = await agent.report()
            return record, sum(report.queue.outbox.values()), report.link.state

    record, unsent, link = asyncio.run(story())
    assert record is not None
    assert record.state is State.DONE
    assert (unsent, link) == (1, "down")


def test_a_placement_that_waits_longer_than_its_lease_on_a_quiet_link_stays(connect: Connect) -> None:
    async def story() -> tuple[list[UpRow], list[UpRow]]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            lease_s = 2.0
            whole = Resources(cpu_millicores=net.agent.parts.facts.cpu_millicores, memory_bytes=1 << 26)
            place(net, a_command("sleep", "4", resources=whole), number=1, lease_s=lease_s)
            await net.until(lambda: net.agent.core.used_cpu_millicores)
            place(net, a_command("true", resources=whole), number=2, lease_s=lease_s)
            await net.until(lambda: len(net.coordinator.heard_of(TaskEnded)) == 2)
            return net.coordinator.heard_of(TaskEnded), net.coordinator.heard_of(PlacementRefused)

    ended, given_back = asyncio.run(story())
    assert [row.fence.path for row in ended if isinstance(row, TaskEnded)] == [(1, 1), (1, 2)]
    assert given_back == []


def test_leases_are_renewed_while_the_coordinator_speaks(connect: Connect) -> None:
    async def story() -> tuple[float, bool]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            long_one = place(net, a_command("sleep", "600"), number=1, lease_s=900.0)
            await net.until(lambda: long_one in net.agent.core.entries)
            place(net, a_command("true"), number=2, lease_s=900.0)
            await net.until(lambda: net.coordinator.heard_of(TaskEnded))
            kept = net.agent.parts.store.meta("link.lease_s")
            return kept, long_one in net.agent.core.entries

    assert asyncio.run(story()) == (900.0, True)


def test_reads_that_fail_while_it_says_what_it_does_are_tried_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    held = SqliteStore.held_placements

    def seldom(store: SqliteStore) -> object:
        nonlocal reads
        reads += 1
        if reads <= 3:
            raise StorageFailed("the disk does not answer")
        return held(store)

    async def story() -> None:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            await net.until(lambda: reads > 3)

    monkeypatch.setattr(SqliteStore, "held_placements", seldom)
    asyncio.run(story())
