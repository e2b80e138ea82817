"""What the agent and its training child hand each other: files in one directory. Values and names only."""

from __future__ import annotations

import msgspec

from federation.values import Instruction, Scalar

#: The order and the model go in; a reply comes out, and beside it an update that is too large for the reply.
INSTRUCTION, MODEL, REPLY, UPDATE = "instruction.json", "model.packet", "reply.json", "update.packet"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the instruction's file. parent: the process without which the child has nothing to do."""

    instruction: Instruction
    parent: int = 0
    node_config: dict[str, Scalar] = {}
