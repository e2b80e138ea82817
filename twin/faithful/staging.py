"""A scenario put on the stage: the world with its coordinator, nodes, producers and witness.

Owns how a scenario's words become parts. What goes wrong on it is mishaps.py's.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cloud_coordinator.core.turn import Limits as CloudLimits
from devices.port import Job
from edge_agent.settings import AgentSettings, TrainingSettings
from skerry.fence import parse_fence
from skerry.identity import Enrolment, PrivateKey
from skerry.messages import Lane
from skerry.node import Device, DeviceClass, NodeRecord
from skerry.round_documents import RoundAsked
from skerry.task import CommandSpec
from task_queue.limits import Limits
from task_queue.testing_lossy_disk import on_lossy_disks
from twin.faithful.agent import Node, NodePlan
from twin.faithful.coordinator import Cloud
from twin.faithful.executor import Behaviour
from twin.faithful.measures import Measures, RolloutFigures, missed, missed_rollouts
from twin.faithful.overseer import Overseer
from twin.faithful.power import Power
from twin.faithful.producers import ASK_AGAIN_S, Producer
from twin.faithful.witness import Witness
from twin.faithful.world import World
from twin.scenario.faults import PowerCut, over_s
from twin.scenario.language import Group, RolloutPart, Round, Scenario, names_of, select

if TYPE_CHECKING:
    from edge_agent.content import Remote
    from edge_agent.policy_holder import PolicyRunner
    from edge_agent.training_child import Child

FLEET = "twin"
#: Without a commit in so many seconds the power goes between two.
PATIENCE_S = 10.0
#: The fleet has come together by then, and the load begins.
LOAD_BEGINS_S = 20.0
_encode = msgspec.json.Encoder().encode
#: How much faster than a processor each class of emulated device is.
_SPEED = {"cpu": 1.0, "gpu": 6.0, "npu": 4.0, "tpu": 4.0}


class RoundFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run. late: counted though their version was over; refused: with the reasons' codes."""

    name: str
    state: str
    reason: str
    version: int
    accepted: int
    late: int
    refused: dict[str, int]


class Stage:
    """Everything of one run."""

    def __init__(self, scenario: Scenario, seed: int, home: Path, *, recorder_bytes: int = 0) -> None:
        """home: an empty directory for the disks.  recorder_bytes: of each flight recorder; 0: off."""
        self.scenario, self.seed, self.home = scenario, seed, home
        self._recorder_bytes = recorder_bytes
        self.world = World(seed)
        self.cloud_key = _key(seed, "coordinator")
        part = scenario.coordinator
        self.witness = Witness(self.world.now_s, self._cloud_mark)
        overseer = self.overseer = Overseer(
            self.world.now_s,
            self.witness.violated,
            lease_s=part.lease_s,
            state_interval_s=part.state_interval_s,
        )
        self.cloud = Cloud(
            self.world,
            home / "coordinator",
            fleet=FLEET,
            key=self.cloud_key,
            limits=CloudLimits(
                lease_s=part.lease_s,
                state_interval_s=part.state_interval_s,
                reconnects_per_s=part.reconnects_per_s,
            ),
            overseer=overseer,
        )
        self.measures = Measures(self.world, overseer)
        self.log: Callable[[str], None] = lambda line: None
        self.copies = 0
        self.faulty: set[str] = set()  #: nodes whose devices fail every attempt
        self.wires = [self.world.network.faults]  #: the good ones, and bad ones that are not over
        if scenario.round or scenario.rollout:
            from twin.faithful.rounds import WorldOffice  # what rounds need costs the others nothing

            self.cloud.make_office = WorldOffice
        self._loses_power = _who_loses_power(scenario)
        self.nodes = {name: self._node(group, name) for group in scenario.group for name in names_of(group)}
        self.producers = self._producers()

    def open(self) -> None:
        """Start everything; the fleet comes together."""
        self.cloud.start()
        for node in self.nodes.values():
            public = node.key.public_hex
            self.cloud.enrol(
                NodeRecord(name=node.name, fleet=FLEET, region=node.plan.region, public_key=public)
            )
        self.world.run(1.0)
        for node in self.nodes.values():
            self.start(node)
        for producer in self.producers:
            producer.start(LOAD_BEGINS_S)
        for asked in self.scenario.round:
            self.world.at(LOAD_BEGINS_S + asked.at_s, partial(self._begin_round, asked))
        for part in self.scenario.rollout:
            self.world.at(LOAD_BEGINS_S + part.at_s, partial(self._begin_rollout, part))
        if self.scenario.expect.objects_grown is not None:
            self.world.at(LOAD_BEGINS_S + self.scenario.load_s / 4, self.measures.weigh)
        self.world.run(LOAD_BEGINS_S)

    def copy_of(self, node: Node) -> Node:
        """Return a machine with a copy of the node's disk: same name, key and database, other hardware."""
        self.copies += 1
        home = self.home / f"{node.name}.copy-{self.copies}"
        shutil.copytree(node.home, home)
        (home / "owner.lock").unlink(missing_ok=True)
        return Node(
            self.world,
            node.plan,
            home,
            enrolment=node.enrolment,
            key=node.key,
            behave=lambda job, rng: self._behave(node.name, job, rng),
            effect=lambda *seen: None,
            hardware=home.name,
        )

    def start(self, node: Node) -> None:
        """Start a node's agent, with the witness watching."""
        node.start()
        self.witness.settled(node)
        self.measures.started(node)
        self.note(node.name, "starts")

    def close(self) -> None:
        """End everything that runs."""
        for node in self.nodes.values():
            node.kill()
            if node.power is not None:
                node.power.close()
        self.cloud.kill()

    @contextmanager
    def disks(self) -> Iterator[None]:
        """Have the machines that lose power write to disks that lose what was not synced."""
        vfs_of = {str(n.home): n.power.vfs for n in self.nodes.values() if n.power is not None}
        with on_lossy_disks(lambda path: vfs_of.get(str(path.parent))) if vfs_of else nullcontext():
            yield

    def is_quiet(self) -> bool:
        """Decide whether work and trouble are over, everything has ended, and leases would have run out."""
        ends_s = [over_s(fault) + PATIENCE_S for fault in self.scenario.fault]
        quiet_s = LOAD_BEGINS_S + max([self.scenario.load_s, *ends_s])
        waits_s = min(self.scenario.coordinator.lease_s, 60.0) + 30.0
        return not self.witness.open and self.world.now_s() > quiet_s + waits_s

    def is_in_touch(self, node: Node) -> bool:
        """Decide whether nothing of what the scenario does keeps node and coordinator apart now."""
        network = self.world.network
        is_connected = network.reaches(node.client_id) and network.reaches(self.cloud.client_id)
        return is_connected and self.cloud.takes_rows and node.machine.asleep_since is None

    @property
    def refusals(self) -> int:
        """How often producers were told no."""
        return sum(producer.refusals for producer in self.producers)

    def rounds(self) -> tuple[RoundFigures, ...]:
        """Return what came of the scenario's rounds so far."""
        if self.cloud.office is None:
            return ()
        from twin.faithful.rounds import round_figures

        return round_figures(self.cloud.office)

    def rollouts(self) -> tuple[RolloutFigures, ...]:
        """Return where the scenario's rollouts are."""
        if self.cloud.core is None or not self.scenario.rollout:
            return ()
        from twin.faithful.rounds import rollout_figures

        return rollout_figures(self.cloud.core, self.overseer.rollout_paths)

    def judge(self) -> None:
        """Hold the run against what its scenario expects."""
        found = missed(
            self.scenario.expect,
            {**self.measures.figures(), "gone": self.witness.gone},
            ended={state.value: count for state, count in self.witness.ended.items()},
            refusals=self.refusals,
            statuses=self.overseer.statuses,
            named=lambda who: select(self.scenario, who),
        )
        for node, what in (*found, *missed_rollouts(self.scenario.expect, self.rollouts())):
            self.witness.violated(0, node, what)

    def note(self, who: str, what: str) -> None:
        """Write a line of the event log."""
        self.log(f"{self.world.now_s():.6f} {who} {what}")

    def _node(self, group: Group, name: str) -> Node:
        key = _key(self.seed, name)
        node = Node(
            self.world,
            self._plan(group, name),
            self.home / name,
            enrolment=Enrolment(
                fleet=FLEET,
                node=name,
                region=group.region,
                site=group.site,
                coordinator_url="",
                coordinator_public_key=self.cloud_key.public_hex,
                broker_url="mqtt://emulated",
            ),
            key=key,
            behave=lambda job, rng: self._behave(name, job, rng),
            effect=self._effect,
            remote=self._remote,
            child=self._child,
            runner=self._runner(),
            power=Power(self.home / name, self.world.rng(f"power {name}"))
            if name in self._loses_power
            else None,
        )
        node.committed = self._committed
        return node

    def _remote(self, node: Node) -> Remote | None:
        if not (self.scenario.round or self.scenario.rollout):
            return None
        from twin.faithful.rounds import WorldRemote

        return WorldRemote(node, self.cloud)

    def _child(self, node: Node) -> Child | None:
        asked = next((one for one in self.scenario.round if self._trains(node.name, one)), None)
        if asked is None:
            return None
        from twin.faithful.rounds import EmulatedTraining

        return EmulatedTraining(self.world.rng(f"training {node.name} {node.starts}"), asked.train_s)

    def _trains(self, name: str, asked: Round) -> bool:
        return name in select(self.scenario, asked.on)

    def _begin_round(self, asked: Round) -> None:
        office, loop = self.cloud.office, self.cloud.process.loop
        if office is None or loop is None:  # the coordinator does not run: its operator asks again
            self.world.at(self.world.now_s() + ASK_AGAIN_S, partial(self._begin_round, asked))
            return
        document = RoundAsked(
            name=asked.name,
            trainer="null",
            strategy=asked.strategy,
            rounds=asked.rounds,
            quorum=asked.quorum,
            deadline_s=asked.deadline_s,
            patience_s=asked.patience_s,
            max_staleness=asked.max_staleness,
            seed=self.seed,
            nodes=select(self.scenario, asked.on),
            config={"size": asked.size},
        )
        self.note("round", f"{asked.name} begins")
        loop.run_inside(lambda: office.begin_round(document))

    def _begin_rollout(self, asked: RolloutPart) -> None:
        office, loop = self.cloud.office, self.cloud.process.loop
        if office is None or loop is None:
            self.world.at(self.world.now_s() + ASK_AGAIN_S, partial(self._begin_rollout, asked))
            return
        self.note("rollout", f"{asked.version} begins")
        loop.run_inside(lambda: office.begin_rollout(asked))

    def _runner(self) -> PolicyRunner | None:
        if not self.scenario.rollout:
            return None
        from twin.faithful.rounds import emulated_policies

        return emulated_policies()

    def _plan(self, group: Group, name: str) -> NodePlan:
        return NodePlan(
            name=name,
            region=group.region,
            devices=tuple(_device(kind, group.slots) for kind in group.devices),
            cpu_millicores=1000 * group.slots,
            settings=AgentSettings(
                training=TrainingSettings(enabled=any(self._trains(name, one) for one in self.scenario.round))
            ),
            limits=Limits(max_bytes=group.queue_bytes),
            recorder_bytes=self._recorder_bytes,
        )

    def _producers(self) -> list[Producer]:
        made = []
        for number, load in enumerate(self.scenario.load):
            begins_s = LOAD_BEGINS_S + load.begin_s
            end_s = begins_s + (load.for_s or self.scenario.load_s - load.begin_s)
            for name in select(self.scenario, load.on):
                producer = Producer(
                    self.world, self.nodes[name], load, number, end_s=end_s, accepted=self.witness.accepted
                )
                made.append(producer)
        return made

    def _committed(self, node: Node, operations: object, answers: object) -> None:
        self.witness.committed(node, operations, answers)  # type: ignore[arg-type]
        self.note(node.name, f"commits {_digest(operations, answers)}")

    def _behave(self, name: str, job: Job, rng: Random) -> Behaviour:
        assert isinstance(job.spec, CommandSpec)  # producers submit nothing else
        takes_s, fails, *returns = float(job.spec.argv[0]), job.spec.argv[1] == "1", *job.spec.argv[2:]
        if name in self.faulty:
            return Behaviour(takes_s=min(takes_s, 0.1), status="device_fault")
        return Behaviour(
            takes_s=takes_s,
            status="failed" if fails and rng.random() < 0.5 else "succeeded",
            result_bytes=int(returns[0]) if returns else 0,
        )

    def _effect(self, node: Node, job: Job, what: str) -> None:
        self.note(node.name, f"{what} {job.task_id} {job.fence}")
        if what == "begins":
            self.measures.attempted(node, parse_fence(job.fence).attempt)
        self.witness.effect(node, job, what)

    def _cloud_mark(self, node: str, epoch: str, lane: Lane) -> int:
        return self.overseer.marks.get((node, epoch, lane), 0)


def _who_loses_power(scenario: Scenario) -> frozenset[str]:
    """Return the nodes that lose power at some time; any may, where they are drawn."""
    who = [fault.on for fault in scenario.fault if isinstance(fault, PowerCut)]
    return frozenset(n for on in who for n in select(scenario, "all" if on.startswith("some:") else on))


def _key(seed: int, name: str) -> PrivateKey:
    seeded = hashlib.sha256(f"twin {seed} {name}".encode()).digest()
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(seeded))


def _device(kind: DeviceClass, slots: int) -> Device:
    return Device(
        device_id=f"{kind}-0",
        device_class=kind,
        name=f"emulated {kind}",
        executors=("command", "onnx"),
        slots=slots,
        speed=_SPEED[kind],
        emulated=True,
    )


def _digest(operations: object, answers: object) -> str:
    return hashlib.blake2b(_encode((operations, answers)), digest_size=8).hexdigest()
