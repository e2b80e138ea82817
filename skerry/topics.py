"""The topic tree `skerry/1/<fleet>/<node>/<leaf>`. Owns its form and which side may speak on which leaf.

Knows nothing of message bodies or of the broker.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from skerry.errors import SpecError
from skerry.ids import check_name

ROOT = "skerry/1"

#: The coordinator's name as a sender; no node may bear it.
COORDINATOR = "coordinator"


class Leaf(StrEnum):
    """The last part of a topic: what is said there, and by whom."""

    BIRTH = "birth"  #: up: first word of a session
    PRESENCE = "presence"  #: up, retained: online, or the will
    STATE = "state"  #: up: load and held placements
    EVENTS = "events"  #: up: batches of the node's stream
    UP_ACK = "up-ack"  #: up: commands applied
    WELCOME = "welcome"  #: down: answer to a birth
    ACK = "ack"  #: down: events committed
    COMMANDS = "commands"  #: down: batches of the node's command log
    HINT = "hint"  #: down: come back later, say your birth again


UP = frozenset({Leaf.BIRTH, Leaf.PRESENCE, Leaf.STATE, Leaf.EVENTS, Leaf.UP_ACK})
DOWN = frozenset(Leaf) - UP


class Topic(msgspec.Struct, frozen=True):
    """A topic taken apart."""

    fleet: str
    node: str
    leaf: Leaf

    def __str__(self) -> str:
        """Return the topic as the broker sees it."""
        return f"{ROOT}/{self.fleet}/{self.node}/{self.leaf.value}"

    @property
    def owner(self) -> str:
        """The only sender that may speak here: the node itself, or the coordinator."""
        return self.node if self.leaf in UP else COORDINATOR


def check_node_name(name: str) -> str:
    """Return name when a node may bear it; else raise SpecError. `coordinator` is taken."""
    if name == COORDINATOR:
        raise SpecError(f"node {name!r} is not valid: the name is the coordinator's own", field="node")
    return check_name(name, what="node")


def build(fleet: str, node: str, leaf: Leaf) -> str:
    """Return the topic.  Raises SpecError when a name may not stand in one."""
    return str(Topic(check_name(fleet, what="fleet"), check_node_name(node), leaf))


def parse(topic: str) -> Topic:
    """Take a topic apart.  Raises SpecError for anything that `build` does not make."""
    parts = topic.split("/") if len(topic) <= 256 else []
    if len(parts) != 5 or "/".join(parts[:2]) != ROOT or parts[4] not in set(Leaf):
        raise SpecError(f"{topic[:80]!r} is not a topic of Skerry", field="topic")
    return Topic(check_name(parts[2], what="fleet"), check_node_name(parts[3]), Leaf(parts[4]))


def node_filters(fleet: str, node: str) -> tuple[str, ...]:
    """Return what a node subscribes to: its own topics, downward, one filter a leaf."""
    return tuple(build(fleet, node, leaf) for leaf in Leaf if leaf in DOWN)


def coordinator_filters(fleet: str) -> tuple[str, ...]:
    """Return what the coordinator subscribes to: every node's topics, upward, one filter a leaf."""
    check_name(fleet, what="fleet")
    return tuple(f"{ROOT}/{fleet}/+/{leaf.value}" for leaf in Leaf if leaf in UP)
