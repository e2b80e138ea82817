"""Whatever happens in whatever order: no task is lost, none has two ends, no two placements share a fence."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloud_coordinator.core.turn import Limits
from cloud_coordinator.ledger.values import LedgerTask, Placement, TaskFilter, TaskState
from cloud_coordinator.testing import ModelFleet
from skerry.fence import Fence
from skerry.messages import TaskOffered
from skerry.testing import a_task

NAMES = ("n1", "n2", "n3")
NODES = st.sampled_from(NAMES)


class CoordinatorMachine(RuleBasedStateMachine):
    """A coordinator, three nodes, and every fault that the links and processes know."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = ModelFleet(limits=Limits(lease_s=60.0))
        self.homes: dict[str, str] = {}
        self.withdrawn: set[str] = set()
        #: Of each task: the ends that its home was told, as (fence, status).
        self.ends: dict[str, set[tuple[Fence, str]]] = defaultdict(set)

    @initialize()
    def a_fleet(self) -> None:
        for name in NAMES:
            self.fleet.add(name)

    @rule(home=NODES, once=st.booleans())
    def offer(self, home: str, once: bool) -> None:
        task = a_task(effect="at_most_once" if once else "idempotent")
        self.homes[self.fleet.offer(home, task)] = home

    @rule(data=st.data())
    @precondition(lambda self: self.homes)
    def offer_again(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.homes)))
        entry = self.fleet.ledger.task(task_id)
        if entry is not None and entry.task is not None:
            self.fleet.nodes[self.homes[task_id]].say(TaskOffered(task_id=task_id, task=entry.task))

    @rule(name=NODES, status=st.sampled_from(["succeeded", "succeeded", "failed"]))
    def finish_one(self, name: str, status: str) -> None:
        node = self.fleet.nodes[name]
        for task_id in list(node.holds)[:1]:
            node.finish(task_id, status=status)

    @rule(name=NODES)
    def refuse_one(self, name: str) -> None:
        node = self.fleet.nodes[name]
        for task_id in list(node.holds)[:1]:
            node.refuse(task_id, "not here")

    @rule(name=NODES)
    def drop_one(self, name: str) -> None:
        """The lease of a task that has not started ran out at the node."""
        node = self.fleet.nodes[name]
        for task_id in list(node.holds)[:1]:
            del node.holds[task_id]

    @rule(data=st.data())
    @precondition(lambda self: self.homes)
    def withdraw(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.homes)))
        home = self.fleet.nodes[self.homes[task_id]]
        if task_id not in home.returned:
            self.withdrawn.add(task_id)
            self.fleet.withdraw(home.name, task_id)

    @rule(name=NODES, works_on=st.booleans())
    def absence(self, name: str, works_on: bool) -> None:
        """A node is away for longer than its leases, goes on working or not, and comes back with its word."""
        self.fleet.cut(name)
        self.fleet.pass_time(80, step_s=10)
        node = self.fleet.nodes[name]
        for task_id in list(node.holds) if works_on else []:
            node.finish(task_id)
        self.fleet.connect(name)

    @rule(name=NODES)
    def cut(self, name: str) -> None:
        self.fleet.cut(name)

    @rule(name=NODES)
    def reconnect(self, name: str) -> None:
        self.fleet.connect(name)

    @rule(name=NODES)
    def repeat(self, name: str) -> None:
        """The same batches twice, as after a lost acknowledgement."""
        self.fleet.send(name)
        self.fleet.send(name)
        self.fleet.settle()

    @rule(seconds=st.sampled_from([1, 20, 70]))
    def wait(self, seconds: int) -> None:
        self.fleet.pass_time(seconds)

    @rule()
    def restart(self) -> None:
        self.fleet.restart()

    @invariant()
    def ends_are_final(self) -> None:
        for name, node in self.fleet.nodes.items():
            for task_id, returned in node.returned.items():
                assert self.homes[task_id] == name
                self.ends[task_id].add((returned.fence, returned.outcome.status))
        for task_id, ends in self.ends.items():
            for_good = {end for end in ends if end[1] != "failed"}
            assert len(for_good) <= 1, (task_id, ends)

    @invariant()
    def placements_are_exact(self) -> None:
        for entry in self.fleet.ledger.find(TaskFilter(limit=500)):
            placements = self.fleet.ledger.placements(entry.task_id)
            fences = [one.fence for one in placements]
            assert fences == sorted(set(fences), key=lambda fence: fence.path)
            current = [one for one in placements if not one.ended]
            is_placed = entry.state is TaskState.PLACED
            assert [one.node for one in current] == ([entry.node] if is_placed else [])
            assert (entry.task_id in self.fleet.core.memory.leases) is is_placed
            _check_end(entry, placements)
            waits = entry.task_id in self.fleet.core.memory.queue
            assert waits or entry.state is not TaskState.PENDING

    def teardown(self) -> None:
        """Links whole, every node working: each task must come to an end that its home knows."""
        for name in NAMES:
            self.fleet.connect(name)
        for _ in range(12):
            self.fleet.pass_time(70, step_s=10)
            for node in self.fleet.nodes.values():
                for task_id in list(node.holds):
                    node.finish(task_id)
            for name in NAMES:  # a new session makes a node forget what it refused
                self.fleet.connect(name)
        self.ends_are_final()
        for task_id, home in self.homes.items():
            state = self.fleet.task(task_id).state
            if task_id in self.withdrawn:
                assert state in (TaskState.WITHDRAWN, TaskState.ENDED)
            else:
                assert state is TaskState.ENDED, (task_id, state)
                assert task_id in self.fleet.nodes[home].returned


def _check_end(entry: LedgerTask, placements: list[Placement]) -> None:
    """An end counts under the last placement alone; what may have taken effect is not tried again."""
    if entry.state is TaskState.ENDED and entry.outcome and entry.outcome.status in ("succeeded", "failed"):
        last = placements[-1]
        assert (last.ended, last.node) == ("ended", entry.node)
        assert entry.fence is not None
        assert entry.fence.path == last.fence.path
    if entry.task is not None and entry.task.effect == "at_most_once":
        assert not any(one.ended == "lapsed" for one in placements[:-1])


TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(
    max_examples=100,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
