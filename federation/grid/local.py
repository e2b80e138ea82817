# pyright: reportMissingImports=false
"""A grid inside one process: N virtual nodes that run the client app in turn. For tests and simulations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from flwr.app import Context, Message

from federation.flower import internals
from federation.flower.journal import Journal
from federation.flower.records import error_of
from federation.grid.base import EventGrid
from federation.values import Scalar, instruction_id, node_number

ClientCall = Callable[[Message, Context], Message]


class LocalGrid(EventGrid):
    """Virtual nodes by name. A message is handled when its reply is pulled; nothing runs at the same time.

    journal: where the server keeps versions; None leaves that to the server app.
    """

    def __init__(
        self, client: ClientCall, nodes: Mapping[str, Mapping[str, Scalar]], *, journal: Journal | None = None
    ) -> None:
        """Run `client` on every node; nodes: name → its configuration."""
        super().__init__()
        self.journal = journal
        self._client = client
        self._nodes = {node_number(name): (name, dict(config)) for name, config in nodes.items()}
        self._contexts: dict[int, Context] = {}
        self._queued: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        """Return the numbers of all nodes."""
        return sorted(self._nodes)

    def wait_for_nodes(self, minimum: int, patience_s: float) -> list[int]:
        """Return all nodes: no more will come."""
        return self.get_node_ids()

    def wait_for_replies(self, message_ids: Collection[str], minimum: int, timeout_s: float) -> None:
        """Return at once: a pull does the work."""

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Queue the messages; return their ids."""
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        name, _ = self._nodes[message.metadata.dst_node_id]
        config = message.content["config"]
        message_id = instruction_id(str(config["run"]), int(config["version"]), name)
        self._queued[message_id] = internals.stamp(message, message_id)
        return message_id

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Handle the queued messages among these, in a fixed order, and return the replies."""
        wanted = [
            self._queued.pop(message_id) for message_id in sorted(message_ids) if message_id in self._queued
        ]
        return [self._handle(message) for message in wanted]

    def _handle(self, message: Message) -> Message:
        number = message.metadata.dst_node_id
        try:
            return self._client(message, self._context(number))
        except Exception as error:  # whatever a client does, it is that node's own failure
            return internals.reply_of(message, error_of("node_error", f"{type(error).__name__}: {error}"))

    def _context(self, number: int) -> Context:
        if number not in self._contexts:
            name, config = self._nodes[number]
            self._contexts[number] = internals.context(number, {"node": name, **config}, {})
        return self._contexts[number]


def numbered(names: Iterable[str]) -> dict[str, dict[str, Scalar]]:
    """Return the configuration of nodes numbered in the order of their names, as in a simulation."""
    ordered = sorted(names)
    return {name: {"partition-id": n, "num-partitions": len(ordered)} for n, name in enumerate(ordered)}
