"""An outage of one's own device, rehearsed: the real agent with its settings and rates, alone for hours.

Owns the course of a rehearsal and what is told of it. Devices and run times are emulated from what was
measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edge_agent.settings import AgentSettings, TrainingSettings
from skerry.errors import SpecError
from task_queue.limits import MIB
from twin.faithful.agent import Node, NodePlan
from twin.faithful.chance import seeded_secrets
from twin.faithful.mishaps import plan_mishaps
from twin.faithful.rehearse_device import TakenDevice
from twin.faithful.run import Broken, Progress, broken_of, whereabouts
from twin.faithful.staging import LOAD_BEGINS_S, Stage
from twin.scenario.faults import AgentKill, Cut, Fault
from twin.scenario.language import Group, Scenario

#: How often the device is looked at, seconds of the world; while it drains, DRAIN_LOOK_S.
LOOK_S, DRAIN_LOOK_S = 30.0, 1.0
#: How long after its return everything must have arrived, at the latest, seconds.
SETTLE_S = 3600.0
_LEAST_QUEUE_BYTES = 2 * MIB


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """What is rehearsed.

    restart_after_h: hours into the outage at which the agent is killed, and started again on its disk.
    """

    hours: float = 72.0
    restart_after_h: tuple[float, ...] = ()
    seed: int = 1


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. None: it did not happen. Bytes are of the queue's database."""

    node: str
    hours: float
    rate_per_s: float
    kinds: tuple[str, ...]
    devices: tuple[str, ...]
    submitted: int
    done: int
    ended: dict[str, int]
    done_alone: int  #: by the end of the outage
    waiting_at_return: int  #: not ended by then
    longest_wait_s: float  #: from a task's acceptance to its end
    held_bytes: int  #: before the outage
    bytes_at_return: int
    limit_bytes: int
    refused_after_h: float | None
    unsent_at_return: int  #: messages that waited to be sent
    drained_s: float | None  #: from the network's return until the last of them was taken
    lost: int
    done_twice: int
    violations: int
    broken: tuple[Broken, ...]
    wall_s: float


def scenario_of(device: TakenDevice, outage: Outage) -> Scenario:
    """Return the scenario of a device's outage.  Raises SpecError for one that is no outage."""
    lasts_s = outage.hours * 3600.0
    if lasts_s <= 0 or any(not 0 < hour < outage.hours for hour in outage.restart_after_h):
        raise SpecError("an outage lasts longer than 0 hours, and restarts lie within it")
    restarts = [AgentKill(at_s=hour * 3600.0, down_s=10.0) for hour in outage.restart_after_h]
    faults: tuple[Fault, ...] = (Cut(at_s=0.0, for_s=lasts_s), *restarts)
    return Scenario(
        name="rehearsal",
        load_s=lasts_s,
        settle_s=SETTLE_S,
        group=(Group(name=device.node, region=device.region),),
        load=device.loads,
        fault=faults,
    )


def rehearse(
    device: TakenDevice,
    outage: Outage,
    *,
    progress: Progress | None = None,
    home: Path | None = None,
) -> Rehearsed:
    """Rehearse a device's outage.  progress: see run_scenario.  home: where the emulated disks are kept."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="skerry-twin-", dir=home) as folder:
        stage = DeviceStage(scenario_of(device, outage), outage.seed, Path(folder), device)
        with seeded_secrets(stage.world.rng("secrets")):
            try:
                return _Rehearsal(stage, device, outage, progress).run(begun)
            finally:
                stage.close()


class DeviceStage(Stage):
    """A stage with one node, which is as the device is."""

    def __init__(self, scenario: Scenario, seed: int, home: Path, device: TakenDevice) -> None:
        """device: what is rehearsed."""
        self._device = device
        super().__init__(scenario, seed, home)

    def _plan(self, group: Group, name: str) -> NodePlan:
        device = self._device
        left = max(_LEAST_QUEUE_BYTES, device.limits.max_bytes - device.held_bytes)
        return NodePlan(
            name=name,
            region=group.region,
            devices=device.devices,
            cpu_millicores=device.cpu_millicores,
            memory_bytes=device.memory_bytes,
            settings=_emulated(device.settings),
            limits=msgspec.structs.replace(device.limits, max_bytes=left),
            recorder_bytes=device.settings.recorder.max_bytes,
        )


def _emulated(settings: AgentSettings) -> AgentSettings:
    """Training takes processes, which no virtual clock has: it is left out."""
    return msgspec.structs.replace(settings, training=TrainingSettings())


class _Rehearsal:
    """One course, looked at on the way."""

    def __init__(
        self,
        stage: Stage,
        device: TakenDevice,
        outage: Outage,
        progress: Progress | None,
    ) -> None:
        self._stage, self._device, self._outage = stage, device, outage
        self._progress = progress
        self._node: Node = stage.nodes[device.node]
        self._back_s = LOAD_BEGINS_S + stage.scenario.load_s
        self._refused_s: float | None = None

    def run(self, begun: float) -> Rehearsed:
        """Go through it."""
        stage, device = self._stage, self._device
        stage.open()
        plan_mishaps(stage)
        self._go_on(self._back_s - DRAIN_LOOK_S, LOOK_S)
        alone, waiting = sum(stage.witness.ended.values()), len(stage.witness.open)
        held, unsent = self._depth()
        drained_s = self._drain()
        lost = stage.witness.at_the_end((self._node,), whereabouts)
        ended = {state.value: count for state, count in sorted(stage.witness.ended.items())}
        return Rehearsed(
            node=device.node,
            hours=self._outage.hours,
            rate_per_s=round(device.rate_per_s, 6),
            kinds=tuple(load.kind for load in device.loads),
            devices=tuple(f"{one.name} ({one.slots} slots)" for one in device.devices),
            submitted=stage.witness.submitted,
            done=ended.get("done", 0),
            ended=ended,
            done_alone=alone,
            waiting_at_return=waiting,
            longest_wait_s=round(self._longest_wait_s(), 1),
            held_bytes=device.held_bytes,
            bytes_at_return=device.held_bytes + held,
            limit_bytes=device.limits.max_bytes,
            refused_after_h=None if self._refused_s is None else round(self._refused_s / 3600.0, 2),
            unsent_at_return=unsent,
            drained_s=drained_s,
            lost=lost,
            done_twice=stage.witness.done_twice,
            violations=stage.witness.count,
            broken=broken_of(stage.witness.violations),
            wall_s=round(time.perf_counter() - begun, 3),
        )

    def _go_on(self, until_s: float, every_s: float) -> None:
        stage, world = self._stage, self._stage.world
        while world.now_s() < until_s:
            world.run(min(until_s, world.now_s() + every_s))
            stage.witness.look_at_bounds(self._node)
            stage.witness.look_at_running(self._node)
            self._look()
            if self._progress is not None:
                self._progress(world.now_s(), self._back_s, stage.witness.submitted)

    def _look(self) -> None:
        if self._stage.refusals and self._refused_s is None:
            self._refused_s = self._stage.world.now_s() - LOAD_BEGINS_S

    def _longest_wait_s(self) -> float:
        """Of those that ended, and of those that have not."""
        witness, now_s = self._stage.witness, self._stage.world.now_s()
        return max([witness.longest_s, *(now_s - promise.at_s for promise in witness.open.values())])

    def _depth(self) -> tuple[int, int]:
        agent = self._node.agent
        if agent is None:
            return 0, 0
        depth = agent.parts.store.depth()
        return depth.bytes_used, sum(depth.outbox.values())

    def _drain(self) -> float | None:
        """Go on until everything has ended and nothing waits to be sent; return how long sending took."""
        end_s, drained_s = self._back_s + SETTLE_S, None
        self._go_on(self._back_s, DRAIN_LOOK_S)
        while self._stage.world.now_s() < end_s and (drained_s is None or self._stage.witness.open):
            self._go_on(self._stage.world.now_s() + DRAIN_LOOK_S, DRAIN_LOOK_S)
            if drained_s is None and not self._depth()[1]:
                drained_s = round(self._stage.world.now_s() - self._back_s, 1)
        return drained_s


def in_words(came: Rehearsed) -> Sequence[str]:
    """Return what would happen, in sentences."""
    share = came.bytes_at_return / came.limit_bytes
    full = (
        "it would never refuse a task"
        if came.refused_after_h is None
        else f"it would refuse tasks from hour {came.refused_after_h:g} on: raise queue.max_bytes"
    )
    drained = (
        f"within {came.drained_s:g} s of its return"
        if came.drained_s is not None
        else f"not within {SETTLE_S:g} s of its return"
    )
    laws = (
        "nothing was lost and nothing took effect twice"
        if not (came.violations or came.lost or came.done_twice)
        else f"{came.violations} laws were broken, {came.lost} tasks lost, {came.done_twice} done twice"
    )
    return (
        f"{came.node} was alone for {came.hours:g} h with {came.rate_per_s:g} tasks a second.",
        f"It took {came.submitted} tasks and ended {came.done_alone} of them alone; {came.waiting_at_return} "
        f"still waited when the network came back. The longest wait was {came.longest_wait_s:g} s.",
        f"Its queue grew from {came.held_bytes / MIB:.1f} to {came.bytes_at_return / MIB:.1f} MiB, "
        f"{share:.0%} of its limit; {full}.",
        f"The {came.unsent_at_return} messages that it owed were taken {drained}.",
        f"Laws 1 to 7 were checked throughout: {laws}.",
    )
