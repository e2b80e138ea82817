"""Queues that were lost, restored or copied, and keys on two machines: told apart, and nobody unheard."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import pytest

from skerry.link.actions import Quarantine, SessionOpened
from skerry.link.edge import EdgeLink, Phase
from skerry.link.hub import HubLink
from skerry.link.testing import MemoryStore, Peer
from skerry.messages import Lane
from tests.link.conftest import World, said


def quarantines(world: World) -> list[str]:
    return [action.reason for action in world.hub.actions if isinstance(action, Quarantine)]


def phase(peer: Peer) -> Phase:
    return cast(EdgeLink, peer.core).phase


def settled(world: World, rows: int = 5) -> None:
    """Bring a few sessions and rows about."""
    for _ in range(3):
        world.restart_edge()
        world.run(2)
    for number in range(rows):
        world.edge.put(Lane.LIVE, f"row {number}")
    world.run(3)
    assert len(said(world.hub_store, Lane.LIVE)) == rows


def test_a_node_whose_queue_was_lost_is_heard_again_though_its_sessions_begin_anew(world: World) -> None:
    settled(world)

    world.edge_store = MemoryStore("edge-store-2")
    world.restart_edge()
    world.edge.put(Lane.LIVE, "after the loss")
    world.run(30)

    assert phase(world.edge) is Phase.WELCOMED
    assert said(world.hub_store, Lane.LIVE)[-1] == "after the loss"
    assert quarantines(world) == []


def test_a_queue_restored_from_an_older_copy_loses_no_row_in_silence(world: World) -> None:
    settled(world)
    older = copy.deepcopy(world.edge_store)
    settled_more = [f"later {number}" for number in range(4)]
    for text in settled_more:
        world.edge.put(Lane.LIVE, text)
    world.restart_edge()
    world.run(3)

    world.edge_store = older
    world.restart_edge()
    world.edge.put(Lane.LIVE, "said under a number that was used before")
    world.run(30)

    assert "older copy" in quarantines(world)[0]
    assert older.waiting >= 1
    hub = cast(HubLink, world.hub.core)
    hub.release()
    world.run(400)
    assert phase(world.edge) is Phase.HELD
    assert "restored from an older copy" in world.edge.alarms[-1]
    assert older.waiting >= 1


@pytest.mark.parametrize("is_running_while_copied", [True, False])
def test_two_processes_on_copies_of_one_queue_are_quarantined_within_a_minute(
    new_world: Callable[..., World], is_running_while_copied: bool
) -> None:
    world = new_world()
    settled(world)
    original, first_store = world.edge, world.edge_store
    if not is_running_while_copied:
        original.die()
    world.edge_store = copy.deepcopy(first_store)
    if not is_running_while_copied:
        first_store.session -= 1
        world.edge_store = first_store
        original = world.new_edge()
        world.edge_store = copy.deepcopy(first_store)
        world.edge_store.session -= 1
    world.run(2)

    world.new_edge()  # the broker lets one connection of a name live: they take it from each other
    for _ in range(3):
        world.run(8)
        world.reconnect(original)
    world.run(8)

    assert quarantines(world), world.hub.refused
    opened = [action for action in world.hub.actions if isinstance(action, SessionOpened)]
    assert len(opened) <= 8
    assert not cast(HubLink, world.hub.core).is_open


def test_one_process_that_repeats_itself_is_no_copy(world: World) -> None:
    settled(world)
    for _ in range(20):
        world.broker.cut("north-1")
        world.broker.heal("north-1")
        world.run(5)

    assert quarantines(world) == []
    assert phase(world.edge) is Phase.WELCOMED
