"""Topics: one form, one owner each, and filters that cover exactly a side's part."""

from __future__ import annotations

import pytest

from skerry.errors import SpecError
from skerry.topics import COORDINATOR, DOWN, UP, Leaf, build, coordinator_filters, node_filters, parse
from skerry.transport.memory import matches


@pytest.mark.parametrize("leaf", Leaf)
def test_a_topic_is_read_as_it_was_built(leaf: Leaf) -> None:
    topic = parse(build("demo", "north-1", leaf))

    assert (topic.fleet, topic.node, topic.leaf) == ("demo", "north-1", leaf)
    assert topic.owner == ("north-1" if leaf in UP else COORDINATOR)


@pytest.mark.parametrize("leaf", Leaf)
def test_each_side_subscribes_to_what_the_other_says(leaf: Leaf) -> None:
    topic = build("demo", "north-1", leaf)

    assert any(matches(f, topic) for f in node_filters("demo", "north-1")) is (leaf in DOWN)
    assert any(matches(f, topic) for f in coordinator_filters("demo")) is (leaf in UP)
    assert not any(matches(f, topic) for f in node_filters("demo", "north-2"))
    assert not any(matches(f, topic) for f in coordinator_filters("other"))


@pytest.mark.parametrize("name", ["", "+", "#", "a/b", "North", "-a", "a-", "a" * 65, "ä", "a\x00"])
def test_a_name_that_may_not_stand_in_a_topic_is_refused(name: str) -> None:
    with pytest.raises(SpecError):
        build("demo", name, Leaf.BIRTH)
    with pytest.raises(SpecError):
        build(name, "north-1", Leaf.BIRTH)
    with pytest.raises(SpecError):
        parse(f"skerry/1/demo/{name}/birth")


def test_no_node_bears_the_coordinators_name() -> None:
    with pytest.raises(SpecError, match="coordinator"):
        build("demo", COORDINATOR, Leaf.BIRTH)
