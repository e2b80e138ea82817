"""Answers to training instructions on their way from a node's stream to the round ledger. Owns the letters.

A row's mark moves with the letter in one commit; the letter goes once the round ledger has it. The two have
databases of their own: a crash between them offers the letter again, and the round ledger counts it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from cloud_coordinator.core.actions import RepliesKept
from cloud_coordinator.core.turn import Turn
from cloud_coordinator.ledger.port import Ledger
from federation.values import Reply
from skerry.errors import SpecError
from skerry.messages import FederationReply

if TYPE_CHECKING:
    from cloud_coordinator.core.core import CoordinatorCore

LETTER = "federation.reply"
#: Letters that may wait, for example while rounds are off: what comes beyond is set aside as dead letters.
LIMIT = 2000
_ID_DIGITS = 32


def keep(turn: Turn, node: str, said: FederationReply) -> None:
    """Keep a node's answer until it is taken.  Raises SpecError when it can answer nothing, or too many wait.

    The node is the one whose envelope it came in; a second answer to one instruction changes nothing.
    """
    if len(said.instruction_id) != _ID_DIGITS or not said.instruction_id.isalnum():
        raise SpecError("it is not the answer to an instruction", field="instruction_id")
    if turn.ledger.document(LETTER, f"{node}/{said.instruction_id}") is not None:
        turn.count("duplicates", node=node, reason="federation.reply")
        return
    memory = turn.memory
    if memory.letters is None:
        memory.letters = len(turn.ledger.documents(LETTER))
    if memory.letters >= LIMIT:
        raise SpecError(f"{LIMIT} answers wait to be taken already")
    put(turn.ledger, _reply(node, said))
    memory.letters += 1
    turn.count("federation_replies", node=node)
    turn.act(RepliesKept())


def put(ledger: Ledger, reply: Reply) -> None:
    """Write a letter."""
    ledger.put_document(LETTER, f"{reply.node}/{reply.instruction_id}", msgspec.json.encode(reply))


def waiting(ledger: Ledger, limit: int = 200) -> dict[str, Reply]:
    """Return letters by name."""
    letters = ledger.documents(LETTER)[:limit]
    return {name: msgspec.json.decode(body, type=Reply) for name, body in letters}


def forget(core: CoordinatorCore, names: Iterable[str]) -> None:
    """The round ledger has these."""
    core.memory.letters = None
    with core.ledger.transaction():
        for name in names:
            core.ledger.drop_document(LETTER, name)


def _reply(node: str, said: FederationReply) -> Reply:
    return Reply(
        instruction_id=said.instruction_id,
        run_id=said.run_id[:80],
        node=node,
        base_version=said.version,
        num_examples=said.num_examples,
        inline=said.inline,
        update=said.update[:80],
        metrics=said.metrics,
        error=said.error[:500],
    )
