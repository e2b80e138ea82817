"""Guards that evaluate nothing: one denies everything and says why, one was told to allow everything."""

from __future__ import annotations

from collections.abc import Sequence

from policy.port import NodeView
from skerry.decision import Verdict
from skerry.node import Device
from skerry.task import TaskSpec


class DenyAll:
    """Stands in where rules are wanted and cannot be evaluated: no task runs, and each hears why."""

    revision = "none"

    def __init__(self, why: str) -> None:
        """why: for people: what is missing and what to do."""
        self._verdict = Verdict(rule="rules-unavailable", allowed=False, message=why)

    def verdicts(
        self, task: TaskSpec, node: NodeView, devices: Sequence[Device]
    ) -> list[tuple[Verdict, ...]]:
        """Deny every device with the one reason."""
        return [(self._verdict,)] * len(devices)


class AllowAll:
    """No rules at all, because the settings say so; only the capability filters remain."""

    revision = "off"

    def verdicts(
        self, task: TaskSpec, node: NodeView, devices: Sequence[Device]
    ) -> list[tuple[Verdict, ...]]:
        """Say nothing against any device."""
        return [()] * len(devices)
