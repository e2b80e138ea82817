"""A queue that was restored from a backup: old rows under a new epoch, heard in full, taken for no others."""

from __future__ import annotations

import copy
from typing import cast

from skerry.link.actions import Quarantine
from skerry.link.edge import EdgeLink, Phase
from skerry.messages import Lane
from tests.link.conftest import World, said


def test_what_a_restored_queue_says_is_heard_though_its_numbers_were_used_before(world: World) -> None:
    for number in range(5):
        world.edge.put(Lane.LIVE, f"row {number}")
    world.run(3)
    older = copy.deepcopy(world.edge_store)
    for number in range(4):
        world.edge.put(Lane.LIVE, f"said after the copy {number}")
    world.run(3)

    older.epoch = "restored-epoch"
    world.edge_store = older
    world.restart_edge()
    for number in range(3):
        world.edge.put(Lane.LIVE, f"said after the restore {number}")
    world.run(60)

    assert cast(EdgeLink, world.edge.core).phase is Phase.WELCOMED
    assert said(world.hub_store, Lane.LIVE)[-3:] == [
        f"said after the restore {number}" for number in range(3)
    ]
    assert not [action for action in world.hub.actions if isinstance(action, Quarantine)]
    assert older.waiting == 0
