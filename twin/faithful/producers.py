"""The applications of a world: they submit tasks at a node, and ask again until they are answered.

Owns when and what is submitted; every draw comes from the node's own stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random

from skerry.ids import TaskId
from skerry.task import CommandSpec, Constraints, Resources, TaskSpec
from task_queue.operations import Enqueued, Refused
from twin.faithful.agent import Node
from twin.faithful.world import World
from twin.scenario.arrivals import Arrival, arrivals, stream_name
from twin.scenario.language import Load

#: An application that hears nothing asks again after this, and after a refusal too.
ASK_AGAIN_S = 5.0

Accepted = Callable[[Node, TaskId, TaskSpec, bool], None]


class Producer:
    """One application at one node."""

    def __init__(
        self, world: World, node: Node, load: Load, number: int, *, end_s: float, accepted: Accepted
    ) -> None:
        """number: of this load in the scenario.  end_s: when it stops.  accepted: told of each answer."""
        self._world, self._node, self._load, self._number = world, node, load, number
        self._end_s, self._accepted = end_s, accepted
        self._rng: Random = world.rng(stream_name(number, node.name))
        self._made = 0
        self.unanswered: dict[int, TaskSpec] = {}
        self._again: deque[tuple[float, int]] = deque()  #: when to ask again, and for which: in order
        self._is_waiting = False  #: for the first of them
        self.refusals = 0

    @property
    def node(self) -> str:
        """The node at which it submits."""
        return self._node.name

    def start(self, at_s: float) -> None:
        """Begin at a moment of the world."""
        self._wait_for_next(
            arrivals(self._load, self._rng, begin_s=at_s + self._load.begin_s, end_s=self._end_s)
        )

    def _wait_for_next(self, stream: Iterator[Arrival]) -> None:
        arrival = next(stream, None)
        if arrival is not None:
            self._world.at(arrival.at_s, lambda: self._submit(arrival, stream))

    def _submit(self, arrival: Arrival, stream: Iterator[Arrival]) -> None:
        number, self._made = self._made, self._made + 1
        self.unanswered[number] = self._task(number, arrival)
        self._ask(number)
        self._wait_for_next(stream)

    def _ask(self, number: int) -> None:
        """Submit; without an answer, submit again under the same key. An unkeyed one is given up."""
        task = self.unanswered.get(number)
        if task is None:
            return
        self._node.ask(lambda agent: agent.submit(task), lambda answer: self._hear(number, answer))
        if self._load.is_keyed:
            self._again.append((self._world.now_s() + ASK_AGAIN_S, number))
            self._wait_to_ask_again()

    def _wait_to_ask_again(self) -> None:
        """Be woken for the first that has no answer yet; most have one, and none of them is an event."""
        if self._is_waiting:
            return
        while self._again and self._again[0][1] not in self.unanswered:
            self._again.popleft()
        if self._again:
            self._is_waiting = True
            self._world.at(self._again[0][0], self._ask_again)

    def _ask_again(self) -> None:
        self._is_waiting = False
        _, number = self._again.popleft()
        self._ask(number)
        self._wait_to_ask_again()

    def _hear(self, number: int, answer: Enqueued | Refused) -> None:
        if isinstance(answer, Refused):
            self.refusals += 1
            return
        task = self.unanswered.pop(number, None)
        if task is not None:
            self._accepted(self._node, answer.task_id, task, answer.is_new)

    def _task(self, number: int, arrival: Arrival) -> TaskSpec:
        load, fails = self._load, int(arrival.is_bad)
        order = f"k{number % load.ordering_keys}" if load.ordering_keys else None
        returns = (str(load.result_bytes),) if load.result_bytes else ()
        return TaskSpec(
            spec=CommandSpec(
                argv=(f"{arrival.takes_s:.3f}", str(fails), *returns), stdin="x" * load.payload_bytes
            ),
            kind=load.kind,
            idempotency_key=f"{self._number}-{number}" if load.is_keyed else None,
            resources=Resources(cpu_millicores=100, memory_bytes=1 << 24, accelerator=load.needs),
            priority=load.priority,
            expires_after_s=load.expires_after_s,
            max_runtime_s=load.max_runtime_s,
            constraints=Constraints(nodes=(load.pin,) if load.pin else ()),
            retries=load.retries,
            effect=load.effect,
            ordering_key=order,
        )
