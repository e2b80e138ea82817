"""Whatever network and disks do, each row is applied exactly once and in order, by lane, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skerry.messages import Lane
from skerry.transport.memory import Faults

shares = st.sampled_from([0.0, 0.1, 0.5, 1.0])
steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(["edge", "hub"]), st.sampled_from(Lane), st.integers(1, 450)),
    st.tuples(st.just("run"), st.floats(0.01, 100.0)),
    st.tuples(st.sampled_from(["partition", "cut", "heal"]), st.sampled_from(["north-1", "coordinator"])),
    st.tuples(st.sampled_from(["crash", "restart_broker", "restart_edge", "restart_hub"])),
    st.tuples(st.just("refuse_commits"), st.sampled_from(["edge", "hub"]), st.integers(1, 3)),
    st.tuples(
        st.just("faults"),
        st.builds(
            Faults,
            delay_s=st.sampled_from([(0.001, 0.001), (0.01, 5.0), (1.0, 40.0)]),
            loss=shares,
            duplication=shares,
            reordering=st.booleans(),
            bytes_per_s=st.sampled_from([0.0, 2000.0]),
        ),
    ),
)


class Story:
    """Plays steps on a world and knows what must come out."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.wanted: dict[tuple[str, Lane], list[str]] = {}

    def play(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        getattr(self, name)(*arguments)

    def put(self, side: str, lane: Lane, count: int) -> None:
        wanted = self.wanted.setdefault((side, lane), [])
        peer = getattr(self.world, side)
        for _ in range(count):
            wanted.append(f"{side}-{lane.value}-{len(wanted)}")
            peer.put(lane, wanted[-1])

    def run(self, seconds: float) -> None:
        self.world.run(seconds)

    def partition(self, client: str) -> None:
        self.world.broker.partition(client)

    def cut(self, client: str) -> None:
        self.world.broker.cut(client)

    def heal(self, client: str) -> None:
        self.world.broker.heal(client)

    def crash(self) -> None:
        self.world.broker.crash()

    def restart_broker(self) -> None:
        self.world.broker.restart()

    def restart_edge(self) -> None:
        self.world.restart_edge()

    def restart_hub(self) -> None:
        self.world.restart_hub()

    def refuse_commits(self, side: str, count: int) -> None:
        getattr(self.world, f"{side}_store").failures_left = count

    def faults(self, faults: Faults) -> None:
        self.world.broker.faults = faults

    def end_well(self) -> None:
        broker = self.world.broker
        broker.faults = Faults()
        broker.heal("north-1")
        broker.heal("coordinator")
        broker.restart()
        self.world.run(600.0)

    def check(self) -> None:
        stores = {"edge": self.world.hub_store, "hub": self.world.edge_store}
        for (side, lane), wanted in self.wanted.items():
            assert [text for at, _, text in stores[side].applied if at == lane] == wanted
        assert self.world.edge_store.waiting == 0
        assert self.world.hub_store.waiting == 0


@settings(
    max_examples=250,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1000), schedule=st.lists(steps, max_size=25))
def test_any_fault_schedule_applies_each_row_once_and_in_order(
    new_world: Callable[..., Any], seed: int, schedule: list[tuple[Any, ...]]
) -> None:
    story = Story(new_world(seed))

    for step in schedule:
        story.play(step)
    story.end_well()

    story.check()
