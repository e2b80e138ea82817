"""Who may take part in a run. Pure: the register's view in, names and reasons out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from federation.values import Candidate, CohortRule


def why_not(node: Candidate, rule: CohortRule) -> str:
    """Return why this node takes no part; empty when it does. Being offline is no reason."""
    if not node.is_trusted:
        return "quarantined"
    if rule.nodes and node.name not in rule.nodes:
        return "not named by the run"
    if rule.regions and node.region not in rule.regions:
        return "in another region"
    if not node.has_opted_in:
        return "not opted in"
    if not node.seen_ago_s <= rule.seen_within_s:
        return f"not seen for {rule.seen_within_s / 3600:g} h"
    return ""


def eligible(nodes: Iterable[Candidate], rule: CohortRule) -> list[str]:
    """Return the names of those that may take part, in order."""
    return sorted(node.name for node in nodes if not why_not(node, rule))


def shortage(nodes: Iterable[Candidate], rule: CohortRule, minimum: int) -> str:
    """Return a sentence that says how many are missing and why the others are out."""
    reasons = Counter(why_not(node, rule) for node in nodes)
    there = reasons.pop("", 0)
    others = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"{there} nodes are eligible, {minimum} are needed" + (f" ({others})" if others else "")
