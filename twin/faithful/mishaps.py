"""What goes wrong on a stage, when its scenario says so. One small function a kind of fault.

Owns beginning and ending faults; what follows from them is the product's affair.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from cloud_coordinator.core.events import NodeReleased
from skerry.transport.memory import Faults
from twin.faithful.agent import Node
from twin.faithful.staging import LOAD_BEGINS_S, Stage
from twin.scenario import faults
from twin.scenario.language import select

Ends = Callable[[], None]


def plan_mishaps(stage: Stage) -> None:
    """Put every fault of the scenario on the world's agenda."""
    rng = stage.world.rng("faults")
    for fault in stage.scenario.fault:
        for turn in range(fault.times):
            at_s = LOAD_BEGINS_S + fault.at_s + turn * fault.every_s + rng.uniform(0.0, fault.spread_s)
            names = _names(stage, fault.on)
            stage.world.at(at_s, lambda fault=fault, names=names: _begin(stage, fault, names))  # type: ignore[misc]


def _names(stage: Stage, who: str) -> tuple[str, ...]:
    if who.startswith("some:"):
        return tuple(sorted(stage.world.rng(f"faults {who}").sample(list(stage.nodes), int(who[5:]))))
    return select(stage.scenario, who)


def _begin(stage: Stage, fault: faults.Fault, names: tuple[str, ...]) -> None:
    stage.note("fault", f"{type(fault).__name__} begins")
    nodes = [stage.nodes[name] for name in names]
    ends = [end for end in (_start(stage, fault, nodes)) if end is not None]
    lasts_s = getattr(fault, "for_s", getattr(fault, "down_s", 0.0))
    if ends:
        stage.world.at(stage.world.now_s() + lasts_s, lambda: _end(stage, fault, ends))


def _end(stage: Stage, fault: faults.Fault, ends: list[Ends]) -> None:
    stage.note("fault", f"{type(fault).__name__} ends")
    for end in ends:
        end()


def _start(stage: Stage, fault: faults.Fault, nodes: list[Node]) -> list[Ends | None]:
    match fault:
        case faults.Cut():
            return [_cut(stage, node) for node in nodes]
        case faults.Partition():
            return [_partition(stage, node) for node in nodes]
        case faults.Deaf():
            return [_listed(stage.world.network.deaf, node) for node in nodes]
        case faults.Mute():
            return [_listed(stage.world.network.mute, node) for node in nodes]
        case faults.Wire():
            return [_wire(stage, fault)]
        case faults.BrokerCrash():
            stage.world.network.crash()
            return [stage.world.network.restart]
        case faults.CoordinatorKill():
            stage.cloud.kill()
            return [lambda: None if stage.cloud.runtime else stage.cloud.start()]
        case faults.AgentKill():
            return [_kill(stage, node) for node in nodes]
        case faults.SlowDisk():
            return [_slow(node, fault.commit_s) for node in nodes]
        case faults.DiskFull():
            return [_fill(node) for node in nodes]
        case faults.Clone():
            return [_clone(stage, node) for node in nodes]
        case faults.ClockStep():
            for node in nodes:
                node.machine.step_wall(fault.by_s)
            return []
        case faults.Suspend():
            return [_suspend(stage, node) for node in nodes]
        case faults.DeviceFault():
            return [_break_devices(stage, node) for node in nodes]
        case _:
            raise NotImplementedError(type(fault).__name__)


def _cut(stage: Stage, node: Node) -> Ends:
    network = stage.world.network
    network.cut(node.client_id)
    return lambda: network.heal(node.client_id)


def _partition(stage: Stage, node: Node) -> Ends:
    network = stage.world.network
    network.partition(node.client_id)
    return lambda: network.heal(node.client_id)


def _listed(clients: set[str], node: Node) -> Ends:
    clients.add(node.client_id)
    return lambda: clients.discard(node.client_id)


def _fill(node: Node) -> Ends:
    node.refuse_writes("the disk is full (emulated)")
    return lambda: node.refuse_writes("")


def _clone(stage: Stage, node: Node) -> Ends:
    """Start a copy of the disk on another machine: the same name, key and database, other hardware."""
    clone = stage.copy_of(node)
    clone.start()

    def end() -> None:
        clone.kill()
        stage.cloud.tell(NodeReleased(node.name))  # the operator has looked into it

    return end


def _wire(stage: Stage, fault: faults.Wire) -> Ends:
    network = stage.world.network
    before = network.faults
    network.faults = Faults(
        delay_s=fault.delay_s,
        loss=fault.loss,
        duplication=fault.duplication,
        reordering=fault.reordering,
        bytes_per_s=fault.bytes_per_s,
    )

    def end() -> None:
        network.faults = before

    return end


def _kill(stage: Stage, node: Node) -> Ends:
    node.kill()
    return lambda: None if node.agent else stage.start(node)


def _slow(node: Node, commit_s: float) -> Ends:
    before = node.commit_s
    node.set_commit_s(lambda: commit_s)
    return lambda: node.set_commit_s(before)


def _suspend(stage: Stage, node: Node) -> Ends:
    node.machine.sleep()

    def end() -> None:
        node.machine.wake()
        stage.world.awake(node.process)

    return end


def _break_devices(stage: Stage, node: Node) -> Ends:
    stage.faulty.add(node.name)
    return lambda: stage.faulty.discard(node.name)


def clear(stage: Stage) -> None:
    """Remove the disks of a run that is over."""
    shutil.rmtree(stage.home, ignore_errors=True)
