# pyright: reportMissingImports=false
"""Runs the Flower client for one instruction: what a node's training child calls.

Owns the way from an instruction and a packet to a reply. Whatever the client does, a reply comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flwr.app import Context, Message
from msgspec.structs import replace

from federation.flower import internals
from federation.flower.client_app import app
from federation.flower.records import (
    ARRAYS,
    METRICS,
    NUM_EXAMPLES,
    from_record,
    instruction_content,
    to_record,
)
from federation.values import INLINE_LIMIT_BYTES, Instruction, Reply, Scalar, node_number
from federation.wire import PacketRefused, content_hash, pack, unpack

ClientCall = Callable[[Message, Context], Message]


class ClientRunner:
    """One node's client. node_config: `directory` (what the node recorded), `trainer.*`, …"""

    def __init__(
        self, node: str, node_config: Mapping[str, Scalar] | None = None, *, client: ClientCall = app
    ) -> None:
        """Run `client` for this node."""
        self._node = node
        self._context = internals.context(node_number(node), {"node": node, **(node_config or {})}, {})
        self._client = client

    def run(self, instruction: Instruction, model: bytes) -> tuple[Reply, bytes]:
        """Return the reply and the packet that must be stored for it (empty when it travels inside).

        model: the packet that the instruction names; another one, or a failing client, makes an error reply.
        """
        known = Reply(
            instruction_id=instruction.id,
            run_id=instruction.run_id,
            node=self._node,
            base_version=instruction.version,
        )
        try:
            packet, examples, metrics = self._train(instruction, model)
        except Exception as error:  # the server must learn of it, or it waits for the deadline
            return replace(known, error=f"{type(error).__name__}: {error}"[:500]), b""
        if len(packet) <= INLINE_LIMIT_BYTES:
            return replace(known, inline=packet, num_examples=examples, metrics=metrics), b""
        return replace(known, update=content_hash(packet), num_examples=examples, metrics=metrics), packet

    def _train(self, instruction: Instruction, model: bytes) -> tuple[bytes, int, dict[str, float]]:
        if content_hash(model) != instruction.model:
            raise PacketRefused("the model is not the one that the instruction names")
        content = instruction_content(to_record(unpack(model)), instruction.config)
        number = node_number(self._node)
        asked = internals.instruction(content, number, instruction.id, ttl_s=instruction.ttl_s)
        answer = self._client(asked, self._context)
        metrics = dict(answer.content[METRICS])
        examples = int(metrics.pop(NUM_EXAMPLES))
        return pack(from_record(answer.content[ARRAYS])), examples, {k: float(v) for k, v in metrics.items()}
