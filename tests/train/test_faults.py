"""A run through faults: killed workers, restarted coordinators, late nodes, too few nodes, a cancel."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from federation.rounds.service import RoundService, RunReport
from federation.values import Instruction, Reply, ReplyState, RunSpec, RunState
from skerry.errors import FederationError

SPEC = RunSpec(run_id="r1", trainer="null", rounds=3, quorum=2, seed=3, config={"size": 200})
KILLS = 10

Story = Callable[..., None]
Eventually = Callable[..., Any]


def counted(report: RunReport) -> Counter[str]:
    """How often each instruction was merged: never more than once by construction, counted all the same."""
    return Counter(entry.instruction.id for entry in report.entries if entry.counted_in is not None)


async def kill_worker(service: RoundService, run_id: str, after_s: float) -> None:
    """Kill the run's worker so long after it is there, and return when it is gone."""
    while (pid := service.worker_pid(run_id)) is None:  # noqa: ASYNC110  # the supervisor starts it, wakes nobody
        await asyncio.sleep(0.01)
    await asyncio.sleep(after_s)  # the moment of the kill is what is tested
    os.kill(pid, signal.SIGKILL)
    while service.worker_pid(run_id) == pid:  # noqa: ASYNC110  # the kernel ends it, wakes nobody
        await asyncio.sleep(0.01)


def held_back(here: Any, version: int, go: threading.Event) -> dict[str, Callable[[Instruction], Reply]]:
    """Nodes that answer after a moment, and for this version and later ones not before `go`."""

    def answer(instruction: Instruction) -> Reply:
        if instruction.version >= version:
            go.wait(30)
        time.sleep(0.05)  # so that kills fall into the time of waiting, too
        return cast(Reply, here.honest(instruction))

    return {name: answer for name in here.configs}


def test_a_worker_killed_at_random_moments_goes_on_at_the_same_version(
    place: Callable[[int], Any], story: Story
) -> None:
    rng = random.Random(20)
    here = place(4)
    go = threading.Event()
    versions: list[int] = []
    models: dict[int, str] = {}

    async def run() -> None:
        fleet = here.fleet(**held_back(here, 11, go))
        async with here.open(fleet, restarts=99, first_delay_s=0.01, longest_delay_s=0.01) as service:
            await service.start(replace(SPEC, rounds=12))
            for _ in range(KILLS):
                # A start takes about a second: the moments fall into start, asking, waiting and keeping.
                await kill_worker(service, "r1", rng.uniform(0.0, 2.0))
                report = await service.show("r1")
                versions.append(report.run.version)
                for made in report.versions:
                    assert models.setdefault(made.version, made.model) == made.model
            go.set()
            final = await service.wait("r1")
            report = await service.show("r1")
        assert final.state is RunState.DONE
        assert versions == sorted(versions)
        assert [v.version for v in report.versions] == list(range(13))
        assert max(counted(report).values()) == 1
        assert len(counted(report)) == 12 * 4
        assert {entry.state for entry in report.entries} == {ReplyState.ACCEPTED}

    story(run())


def test_a_run_that_was_killed_ends_with_the_same_bits(place: Callable[[int], Any], story: Story) -> None:
    here = place(3)
    models: list[str] = []

    async def run(run_id: str, kills: int) -> None:
        go = threading.Event()
        fleet = here.fleet(**held_back(here, 2, go))
        async with here.open(fleet, first_delay_s=0.01) as service:
            await service.start(replace(SPEC, run_id=run_id))
            for _ in range(kills):
                await kill_worker(service, run_id, 1.1)
            go.set()
            await service.wait(run_id)
            models.append((await service.show(run_id)).versions[-1].model)

    story(run("calm", 0))
    story(run("killed", 2))
    assert models[0] == models[1]


def test_a_coordinator_that_stops_in_mid_round_goes_on_with_the_replies_it_has(
    place: Callable[[int], Any], story: Story, eventually: Eventually
) -> None:
    here = place(3)
    is_silent = True

    def sometimes_silent(instruction: Instruction) -> Reply | None:
        return None if is_silent else here.honest(instruction)

    async def first_life() -> None:
        fleet = here.fleet(n2=sometimes_silent)
        async with here.open(fleet) as service:
            await service.start(replace(SPEC, quorum=3))

            async def two_answers() -> bool:
                report = await service.show("r1")
                return [e.state for e in report.entries].count(ReplyState.RECEIVED) == 2

            await eventually(two_answers)

    async def second_life() -> None:
        fleet = here.fleet()
        async with here.open(fleet) as service:
            assert (await service.wait("r1")).state is RunState.DONE
            asked_again = {i.node for i in fleet.sent if i.version == 0}
            assert asked_again == {"n2"}
            report = await service.show("r1")
            assert [v.accepted for v in report.versions] == [0, 3, 3, 3]

    story(first_life())
    is_silent = False
    story(second_life())


def test_a_late_reply_counts_in_the_next_version_with_less_weight(
    place: Callable[[int], Any], story: Story, eventually: Eventually
) -> None:
    here = place(3)

    async def run() -> None:
        fleet = here.fleet()
        fleet.cut_off("n2")
        async with here.open(fleet) as service:
            await service.start(replace(SPEC, deadline_s=2.0))

            async def first_version() -> bool:
                return (await service.show("r1")).run.version >= 1

            await eventually(first_version)
            await fleet.come_back("n2")
            await service.wait("r1")
            report = await service.show("r1")
        late = next(e for e in report.entries if e.instruction.node == "n2" and e.instruction.version == 0)
        assert (late.state, late.is_late, late.staleness) == (ReplyState.ACCEPTED, True, 1)
        assert late.counted_in == 2
        # It shares one node's weight with the fresh reply of the same version.
        assert 0 < late.weight < 1 / 2**0.5 + 1e-9
        assert report.versions[1].accepted == 2

    story(run())


def test_a_late_reply_that_came_before_the_worker_was_killed_is_counted_by_the_next_one(
    place: Callable[[int], Any], story: Story, eventually: Eventually
) -> None:
    here = place(3)
    go = threading.Event()

    async def run() -> None:
        fleet = here.fleet(**held_back(here, 1, go))
        fleet.cut_off("n2")
        async with here.open(fleet, first_delay_s=0.01) as service:
            await service.start(replace(SPEC, rounds=2, deadline_s=4.0))

            async def answered_by_the_others() -> bool:
                return (await service.show("r1")).run.version >= 1

            async def late_reply() -> bool:
                return any(e.state is ReplyState.LATE for e in (await service.show("r1")).entries)

            await eventually(answered_by_the_others)
            await fleet.come_back("n2")
            await eventually(late_reply)
            await kill_worker(service, "r1", 0.0)
            go.set()
            await service.wait("r1")
            report = await service.show("r1")
        late = next(e for e in report.entries if e.instruction.node == "n2" and e.instruction.version == 0)
        assert (late.state, late.staleness, late.counted_in) == (ReplyState.ACCEPTED, 1, 2)

    story(run())


def test_a_reply_that_is_too_late_is_refused_by_name(
    place: Callable[[int], Any], story: Story, eventually: Eventually
) -> None:
    here = place(3)

    async def run() -> None:
        fleet = here.fleet()
        fleet.cut_off("n2")
        async with here.open(fleet) as service:
            await service.start(replace(SPEC, deadline_s=0.3, rounds=4, max_staleness=1))

            async def third_version() -> bool:
                return (await service.show("r1")).run.version >= 3

            await eventually(third_version)
            await fleet.come_back("n2")
            await service.wait("r1")
            report = await service.show("r1")
        first = next(e for e in report.entries if e.instruction.node == "n2" and e.instruction.version == 0)
        assert first.state is ReplyState.REFUSED
        assert first.code in {"stale", "run_over"}
        assert first.code in {r.code for r in report.refusals if r.node == "n2"} | {"run_over"}

    story(run())


def test_a_node_that_says_it_was_superseded_is_not_waited_for(
    place: Callable[[int], Any], story: Story
) -> None:
    here = place(3)

    def superseded(instruction: Instruction) -> Reply:
        return replace(here.honest(instruction), inline=b"", error="superseded")

    async def run() -> None:
        async with here.open(here.fleet(n2=superseded)) as service:
            await service.start(replace(SPEC, deadline_s=600.0))
            assert (await service.wait("r1")).state is RunState.DONE
            report = await service.show("r1")
        assert {(r.node, r.code) for r in report.refusals} == {("n2", "superseded")}

    story(run())


def test_too_few_nodes_wait_with_a_reason_until_more_come(
    place: Callable[[int], Any], story: Story, eventually: Eventually
) -> None:
    here = place(2)

    async def run() -> None:
        fleet = here.fleet()
        fleet.nodes["n1"] = replace(fleet.nodes["n1"], has_opted_in=False)
        async with here.open(fleet) as service:
            await service.start(SPEC)

            async def waits() -> bool:
                return (await service.show("r1")).run.state is RunState.WAITING

            await eventually(waits)
            run = (await service.show("r1")).run
            assert run.reason == "1 nodes are eligible, 2 are needed (1 not opted in)"
            fleet.nodes["n1"] = replace(fleet.nodes["n1"], has_opted_in=True)
            service.nodes_changed()
            assert (await service.wait("r1")).state is RunState.DONE

    story(run())


def test_patience_ends_with_a_failed_run_and_its_reason(place: Callable[[int], Any], story: Story) -> None:
    here = place(1)

    async def run() -> None:
        async with here.open(here.fleet()) as service:
            await service.start(replace(SPEC, patience_s=0.2))
            final = await service.wait("r1")
        assert final.state is RunState.FAILED
        assert "1 nodes are eligible, 2 are needed" in final.reason

    story(run())


def test_after_the_deadline_a_run_waits_for_its_quorum_and_says_so(
    place: Callable[[int], Any], story: Story, eventually: Eventually
) -> None:
    here = place(2)

    async def run() -> None:
        fleet = here.fleet()
        fleet.cut_off("n1")
        async with here.open(fleet) as service:
            await service.start(replace(SPEC, deadline_s=0.2, rounds=1))

            async def waits() -> bool:
                return (await service.show("r1")).run.state is RunState.WAITING

            await eventually(waits)
            reason = (await service.show("r1")).run.reason
            assert reason == "1 usable replies came before the deadline, 2 are needed"
            await fleet.come_back("n1")
            assert (await service.wait("r1")).state is RunState.DONE

    story(run())


@pytest.mark.parametrize("when", ["waiting for nodes", "waiting for replies", "at the start"])
def test_a_run_is_cancelled_within_a_second(
    when: str, place: Callable[[int], Any], story: Story, eventually: Eventually
) -> None:
    here = place(1 if when == "waiting for nodes" else 2)

    async def run() -> None:
        fleet = here.fleet(n0=lambda instruction: None)
        async with here.open(fleet) as service:
            await service.start(SPEC)

            async def is_there() -> bool:
                state = (await service.show("r1")).run.state
                return when == "at the start" or state is not RunState.CREATED

            await eventually(is_there)
            begun = time.monotonic()
            run = await service.cancel("r1", "no longer wanted")
            took = time.monotonic() - begun
            pid = service.worker_pid("r1")
        assert (run.state, run.reason) == (RunState.CANCELLED, "no longer wanted")
        assert took < 1.0  # the promise itself, not a measurement
        assert pid is None
        assert fleet.withdrawn == ["r1"]

    story(run())


def test_a_worker_that_cannot_start_fails_the_run_with_its_last_words(
    place: Callable[[int], Any], story: Story
) -> None:
    here = place(2)

    async def run() -> None:
        broken = {"PYTHONPATH": str(here.directory)}
        (here.directory / "flwr.py").write_text("raise ImportError('flwr is broken here')\n")
        async with here.open(here.fleet(), restarts=1, first_delay_s=0.01, environment=broken) as service:
            await service.start(SPEC)
            final = await service.wait("r1")
        assert final.state is RunState.FAILED
        assert "flwr is broken here" in final.reason

    story(run())


@pytest.mark.parametrize("part", ["send", "candidates"])
def test_what_the_coordinator_cannot_do_now_is_asked_again(
    part: str, place: Callable[[int], Any], story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = place(2)
    failures = ["busy", "still busy"]

    async def run() -> None:
        fleet = here.fleet()
        works = getattr(fleet, part)

        def sometimes(*arguments: Any) -> Any:
            if failures:
                raise FederationError(failures.pop())
            return works(*arguments)

        monkeypatch.setattr(fleet, part, sometimes)
        async with here.open(fleet, first_delay_s=0.01) as service:
            await service.start(replace(SPEC, rounds=2))
            assert (await service.wait("r1")).state is RunState.DONE
            report = await service.show("r1")
        assert failures == []
        assert max(counted(report).values()) == 1

    story(run())


def test_mistakes_get_a_clear_answer(place: Callable[[int], Any], story: Story) -> None:
    here = place(2)

    async def run() -> None:
        async with here.open(here.fleet()) as service:
            await service.start(replace(SPEC, rounds=1))
            await service.wait("r1")
            for call, message in (
                (service.start(SPEC), "a run r1 already"),
                (service.cancel("r1"), "is done already"),
                (service.resume("r1"), "is done already"),
                (service.show("other"), "no run 'other'"),
            ):
                with pytest.raises(FederationError, match=message):
                    await call

    story(run())
