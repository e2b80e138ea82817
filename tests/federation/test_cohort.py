"""Who takes part: opted in, trusted, seen lately; being offline now is no reason."""

from __future__ import annotations

import math

import pytest

from federation.rounds.cohort import eligible, shortage, why_not
from federation.values import Candidate, CohortRule

RULE = CohortRule(seen_within_s=3600.0)


def a_node(name: str = "n1", **fields: object) -> Candidate:
    """A node that takes part."""
    return Candidate(**{"name": name, "has_opted_in": True, "seen_ago_s": 60.0, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("node", "rule", "why"),
    [
        (a_node(), RULE, ""),
        (a_node(seen_ago_s=3600.0), RULE, ""),
        (a_node(seen_ago_s=3601.0), RULE, "not seen for 1 h"),
        (a_node(seen_ago_s=math.inf), RULE, "not seen for 1 h"),
        (a_node(seen_ago_s=math.nan), RULE, "not seen for 1 h"),
        (a_node(has_opted_in=False), RULE, "not opted in"),
        (a_node(is_trusted=False), RULE, "quarantined"),
        (a_node(), CohortRule(nodes=("n2",)), "not named by the run"),
        (a_node(region="south"), CohortRule(regions=("north",)), "in another region"),
        (a_node(region="north"), CohortRule(regions=("north",)), ""),
    ],
)
def test_each_condition_keeps_a_node_out_with_its_reason(node: Candidate, rule: CohortRule, why: str) -> None:
    assert why_not(node, rule) == why


def test_names_come_in_order() -> None:
    assert eligible([a_node("c"), a_node("a"), a_node("b", has_opted_in=False)], RULE) == ["a", "c"]


def test_a_shortage_says_why_the_others_are_out() -> None:
    nodes = [a_node("a"), a_node("b", has_opted_in=False), a_node("c", seen_ago_s=9e9)]

    assert shortage(nodes, RULE, 2) == (
        "1 nodes are eligible, 2 are needed (1 not opted in, 1 not seen for 1 h)"
    )
