"""How instructions reach nodes and who the nodes are: two ports that the coordinator implements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from federation.values import Candidate, Instruction


class Courier(Protocol):
    """Carries instructions to nodes durably. Replies come back by RoundService.on_reply."""

    def send(self, instructions: Sequence[Instruction]) -> None:
        """Hand over, durably, before returning; the same instruction may be handed over again after a crash.

        Called on the service's own thread, not on the event loop. Raises SkerryError when it cannot: the
        instructions stay in the ledger and are handed over at the next start.
        """
        ...

    def withdraw(self, run_id: str, reason: str) -> None:
        """The run is over: instructions of it that have not left yet need not leave."""
        ...


class Roster(Protocol):
    """The register as the choice of participants sees it."""

    def candidates(self) -> Sequence[Candidate]:
        """Return every enrolled node."""
        ...
