"""What goes wrong on a stage, when its scenario says so. One small function a kind of fault.

Owns beginning and ending faults; what follows from them is the product's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cloud_coordinator.core.events import NodeReleased
from edge_agent.runtime_build import open_parts
from edge_agent.settings import AgentSettings
from skerry.errors import DirectoryInUse
from skerry.transport.memory import Faults
from skerry.transport.settings import MqttSettings
from task_queue.sqlite_store import SqliteStore
from twin.faithful.agent import Node
from twin.faithful.coordinator import Cloud
from twin.faithful.damage import damage, do_idle_work
from twin.faithful.staging import LOAD_BEGINS_S, PATIENCE_S, Stage
from twin.scenario import faults
from twin.scenario.language import select

Ends = Callable[[], None]
#: A kill "in a commit" falls on one of the next so many.
SOME_COMMITS = 6
ASKS_AGAIN_S = 5.0
#: Both ends of a connection notice that the other is silent: MQTT 5, 3.1.2.10 (one and a half intervals).
NOTICED_S = 1.5 * MqttSettings().keepalive_s


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
    for node in nodes:
        stage.measures.disturbed(node)
    ends = _start(stage, fault, nodes)
    lasts_s = getattr(fault, "for_s", getattr(fault, "down_s", 0.0))
    if ends:
        stage.world.at(stage.world.now_s() + lasts_s, lambda: _end(stage, fault, ends, nodes))


def _end(stage: Stage, fault: faults.Fault, ends: list[Ends], nodes: list[Node]) -> None:
    stage.note("fault", f"{type(fault).__name__} ends")
    for end in ends:
        end()
    _over(stage, nodes)


def _start(stage: Stage, fault: faults.Fault, nodes: list[Node]) -> list[Ends]:
    match fault:
        case faults.Wire():
            return [_wire(stage, fault)]
        case faults.BrokerCrash():
            stage.world.network.crash()
            return [stage.world.network.restart]
        case faults.Throttle():
            stage.cloud.press(fault.retry_after_s)
            return [lambda: stage.cloud.press(None)]
        case faults.CoordinatorKill():
            _kill_cloud(stage, fault)
            return []
        case faults.ClockStep():
            for machine in [node.machine for node in nodes] + [stage.cloud.machine] * fault.coordinator:
                machine.step_wall(fault.by_s)
            return []
        case faults.AgentKill():
            for node in nodes:
                _kill(stage, fault, node)
            return []
        case faults.PowerCut():
            for node in nodes:
                _cut_power(stage, fault, node)
            return []
        case faults.Damage():
            for node in nodes:
                _damage(stage, fault, node)
            return []
        case faults.SecondStart():
            for node in nodes:
                _start_second(stage, node)
            return []
        case _:
            return [_at_node(stage, fault, node) for node in nodes]


def _at_node(stage: Stage, fault: faults.Fault, node: Node) -> Ends:
    match fault:
        case faults.Cut():
            return _cut(stage, node)
        case faults.Partition():
            return _partition(stage, node)
        case faults.Deaf():
            return _listed(stage.world.network.deaf, node)
        case faults.Mute():
            return _listed(stage.world.network.mute, node)
        case faults.SlowDisk():
            return node.slow_down(fault.commit_s)
        case faults.DiskFull():
            return _fill(node)
        case faults.Clone():
            return _clone(stage, node)
        case faults.Suspend():
            return _suspend(stage, node)
        case faults.DeviceFault():
            return _break_devices(stage, node)
        case _:
            raise TypeError(f"{type(fault).__name__} hits no node")


def _cut(stage: Stage, node: Node) -> Ends:
    network = stage.world.network
    network.cut(node.client_id)
    return lambda: network.heal(node.client_id)


def _partition(stage: Stage, node: Node) -> Ends:
    """Half open until both ends notice: then it is a cut."""
    network = stage.world.network
    over: list[bool] = []
    network.partition(node.client_id)
    stage.world.at(stage.world.now_s() + NOTICED_S, lambda: None if over else network.cut(node.client_id))

    def end() -> None:
        over.append(True)
        network.heal(node.client_id, is_noticed=False)  # it was somewhere on the way

    return end


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
        _release(stage, node)

    return end


def _release(stage: Stage, node: Node) -> None:
    """The operator has looked into it, and looks again: word of the copy may still be on its way."""
    ledger = stage.cloud.ledger if stage.cloud.runtime is not None else None
    record = ledger.node(node.name) if ledger is not None else None
    if record is not None and record.status == "quarantined":
        stage.cloud.tell(NodeReleased(node.name))
    stage.world.at(stage.world.now_s() + ASKS_AGAIN_S, lambda: _release(stage, node))


def _wire(stage: Stage, fault: faults.Wire) -> Ends:
    """The newest that is not over counts."""
    wires = stage.wires
    wires.append(
        Faults(
            delay_s=fault.delay_s,
            loss=fault.loss,
            duplication=fault.duplication,
            reordering=fault.reordering,
            bytes_per_s=fault.bytes_per_s,
        )
    )
    stage.world.network.faults = mine = wires[-1]

    def end() -> None:
        wires[:] = [wire for wire in wires if wire is not mine]
        stage.world.network.faults = wires[-1]

    return end


def _kill(stage: Stage, fault: faults.AgentKill, node: Node) -> None:
    world = stage.world

    def now() -> None:
        stage.note(node.name, "is killed")
        node.kill()
        world.at(world.now_s() + fault.down_s, lambda: _start_again(stage, node))

    if fault.in_commit:
        _after_some_commits(stage, node, now)
    else:
        now()


def _after_some_commits(stage: Stage, process: Node | Cloud, then: Ends) -> None:
    """Do something with one of the next commits on the disk, and nothing of it told."""
    left = stage.world.rng(f"commits {stage.world.now_s()}").randint(1, SOME_COMMITS)

    def count() -> None:
        nonlocal left
        left -= 1
        if left:
            process.after_commit = count
        else:
            stage.world.at(stage.world.now_s(), then)

    process.after_commit = count


def _kill_cloud(stage: Stage, fault: faults.CoordinatorKill) -> None:
    world, cloud = stage.world, stage.cloud

    def now() -> None:
        stage.note("coordinator", "is killed")
        cloud.kill()
        world.at(world.now_s() + fault.down_s, again)

    def again() -> None:
        if cloud.runtime is None:
            cloud.start()
            _over(stage, list(stage.nodes.values()))

    if fault.in_commit:
        _after_some_commits(stage, cloud, now)
    else:
        now()


def _damage(stage: Stage, fault: faults.Damage, node: Node) -> None:
    world, path = stage.world, node.home / "queue.db"
    if node.agent is None:
        return
    stage.note(node.name, f"has its queue damaged: {fault.how}")
    stage.witness.damaged(node)
    if not fault.is_running:
        node.kill()
        world.at(world.now_s() + fault.down_s, lambda: _start_again(stage, node))
    damage(path, fault.how, world.rng(f"damage {node.name} {world.now_s()}"))
    for idle_s in (1.0, 2.0):
        world.at(world.now_s() + fault.down_s + idle_s, lambda: _idle(node, path))


def _idle(node: Node, path: Path) -> None:
    if node.agent is not None and isinstance(node.agent.parts.store, SqliteStore):
        do_idle_work(node.agent.parts.store, path)


def _start_second(stage: Stage, node: Node) -> None:
    """Start another agent as its service does: it must see that the directory has an owner."""
    if node.agent is None:
        return
    try:
        open_parts(AgentSettings(data_dir=str(node.home))).lock.release()
    except DirectoryInUse:
        stage.note(node.name, "a second agent is refused")
    else:
        stage.witness.violated(3, node.name, "a second agent was started on its directory")


def _start_again(stage: Stage, node: Node) -> None:
    if node.agent is None and node.is_powered:
        stage.start(node)
        _over(stage, [node])


def _over(stage: Stage, nodes: list[Node]) -> None:
    for node in nodes:
        if stage.is_in_touch(node):
            stage.measures.restored(node)


def _cut_power(stage: Stage, fault: faults.PowerCut, node: Node) -> None:
    world, power = stage.world, node.power
    assert power is not None, "the stage gave it no power to lose"

    def went() -> None:
        world.at(world.now_s(), off)

    def off() -> None:
        stage.note(node.name, "has no power")
        node.lose_power()
        world.at(world.now_s() + fault.down_s, boot)

    def boot() -> None:
        node.boot(wall_s=fault.wall_s)
        _start_again(stage, node)
        if fault.right_after_s is not None:
            world.at(world.now_s() + fault.right_after_s, node.machine.set_right)

    if node.is_powered and not power.is_off:
        if fault.in_commit:
            power.cut_in_commit(went)
            world.at(world.now_s() + PATIENCE_S, lambda: power.cut_if_armed(went))
        else:
            power.cut(went)


def _suspend(stage: Stage, node: Node) -> Ends:
    node.machine.sleep()

    def end() -> None:
        node.machine.wake()
        stage.world.awake(node.process)

    return end


def _break_devices(stage: Stage, node: Node) -> Ends:
    stage.faulty.add(node.name)
    return lambda: stage.faulty.discard(node.name)
