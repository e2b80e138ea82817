# pyright: reportMissingImports=false, reportUntypedBaseClass=false
"""Admission before aggregation, around any strategy: one bad reply is refused by name and ends nothing.

Knows which instructions are out, which versions are kept and what an update usually looks like. An admitted
reply reaches the inner strategy clipped, moved onto the newest version, and with its weight as the number of
examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from federation.admission import AdmissionPolicy, Asked, Offer, difference, judge_all
from federation.flower.records import offer_of, replace_content
from federation.values import Accepted, Refused, Verdict
from federation.wire import Arrays


class Memory(msgspec.Struct, kw_only=True):
    """What must be known again after a restart. asked: instruction id → (node number, version)."""

    norms: list[float] = []
    asked: dict[str, tuple[int, int]] = {}


class Guarded(Strategy):
    """Wraps `inner`; `verdicts` holds what was decided in the last aggregation, by instruction id."""

    def __init__(self, inner: Strategy, *, policy: AdmissionPolicy) -> None:
        """Guard the inner strategy."""
        self.inner = inner
        self.policy = policy
        self.memory = Memory()
        self.verdicts: dict[str, Verdict] = {}
        self.bases: dict[int, Arrays] = {}
        self.version = 0

    def begin(self, version: int, bases: Mapping[int, Arrays]) -> None:
        """Say which version is the newest and which are kept."""
        self.version, self.bases = version, dict(bases)

    def remember(self, instruction_id: str, node: int) -> None:
        """Say that an instruction for the newest version is out."""
        self.memory.asked.setdefault(instruction_id, (node, self.version))

    def busy(self) -> frozenset[int]:
        """Return the nodes whose reply would still be fresh enough to be used."""
        oldest = self.version - self.policy.max_staleness
        return frozenset(node for node, version in self.memory.asked.values() if version >= oldest)

    def encode(self) -> bytes:
        """Return the memory as bytes."""
        return msgspec.msgpack.encode(self.memory)

    def decode(self, state: bytes) -> None:
        """Take the memory back."""
        self.memory = msgspec.msgpack.decode(state, type=Memory) if state else Memory()

    def judge(self, replies: Iterable[Message]) -> list[tuple[Message, Offer, Verdict]]:
        """Return each reply with its verdict; decides nothing for good."""
        pairs = [(reply, self._offer(reply)) for reply in replies]
        verdicts = judge_all(
            [offer for _, offer in pairs],
            asked={id: Asked(node=str(node), version=v) for id, (node, v) in self.memory.asked.items()},
            bases=self.bases,
            version=self.version,
            norms=self.memory.norms,
            policy=self.policy,
        )
        return [(reply, offer, verdict) for (reply, offer), verdict in zip(pairs, verdicts, strict=True)]

    def _offer(self, reply: Message) -> Offer:
        node, version = self.memory.asked.get(reply.metadata.reply_to_message_id, (0, -1))
        # Errors that Flower itself makes up for a node name the server as their source.
        source = node if reply.has_error() else reply.metadata.src_node_id
        return offer_of(reply, node=str(source), version=version)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Judge the replies and hand the admitted ones to the inner strategy."""
        judged = self.judge(replies)
        self.verdicts = {offer.instruction_id: verdict for _, offer, verdict in judged if _is_asked(verdict)}
        admitted = [
            self._admitted(reply, offer, verdict)
            for reply, offer, verdict in judged
            if isinstance(verdict, Accepted)
        ]
        for instruction_id in self.verdicts:
            self.memory.asked.pop(instruction_id, None)
        norms = [v.norm * v.scale for v in self.verdicts.values() if isinstance(v, Accepted)]
        # In the order of size: the order of arrival must not leave a trace in what is kept.
        self.memory.norms = [*self.memory.norms, *sorted(norms)][-self.policy.norms_kept :]
        if not admitted:
            return None, None
        aggregated: tuple[ArrayRecord | None, MetricRecord | None] = self.inner.aggregate_train(
            server_round, admitted
        )
        return aggregated

    def _admitted(self, reply: Message, offer: Offer, verdict: Accepted) -> Message:
        arrays = offer.arrays
        if verdict.staleness or verdict.scale != 1.0:
            arrays = _moved(
                offer.arrays, self.bases[offer.base_version], self.bases[self.version], verdict.scale
            )
        return replace_content(reply, arrays, verdict.weight, offer.metrics)

    # --- handed on --------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's instructions."""
        messages: Iterable[Message] = self.inner.configure_train(server_round, arrays, config, grid)
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's instructions."""
        messages: Iterable[Message] = self.inner.configure_evaluate(server_round, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        return self.inner.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Say what the inner strategy says."""
        self.inner.summary()


def _is_asked(verdict: Verdict) -> bool:
    """Tell a verdict on an instruction's own reply from one on a stranger's, which must not close it."""
    strangers = {"unknown_instruction", "foreign_node", "duplicate"}
    return not (isinstance(verdict, Refused) and verdict.code in strangers)


def _moved(arrays: Arrays, base: Arrays, newest: Arrays, scale: float) -> Arrays:
    """Return newest + scale · (arrays − base), in the model's own types."""
    update = difference(arrays, base)
    return {
        key: np.asarray(newest[key].astype(np.float64) + scale * update[key]).astype(newest[key].dtype)
        for key in newest
    }
