"""Who may speak: the register's keys, and what was said before. Owns the checks before any decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skerry.envelope import Opened, open_envelope
from skerry.identity import parse_public_key
from skerry.node import NodeRecord
from skerry.replay import ReplayWindows
from skerry.signed_http import SeenNonces
from skerry.topics import Leaf


class Senders:
    """The keys of enrolled nodes, in memory, in step with the register."""

    def __init__(self, records: Iterable[NodeRecord], counters: Mapping[str, int] | None = None) -> None:
        """records: the register at the start, with the newest session of each node.

        counters: the highest envelope of that session from which something was written, by node.
        """
        self._keys: dict[str, bytes] = {}
        self._windows = ReplayWindows()
        self.nonces = SeenNonces()  #: of signed HTTP requests
        for record in records:
            self.learn(record, (counters or {}).get(record.name, 0))

    def learn(self, record: NodeRecord, counter: int = 0) -> None:
        """Take note of a node's key and newest session; an empty key is refused from here on.

        What was heard under the key beyond that session is forgotten: it may have been another machine.
        """
        self._windows.forget(record.name)
        if record.public_key:
            self._keys[record.name] = parse_public_key(record.public_key)
            self._windows.remember(record.name, record.session, counter)
        else:
            self._keys.pop(record.name, None)

    def key_of(self, node: str) -> bytes | None:
        """Return the public key of an enrolled node, None for any other name."""
        return self._keys.get(node)

    def open(self, topic: str, payload: bytes) -> Opened:
        """Return a message whose sender is proven.  Raises EnvelopeRefused."""
        opened = open_envelope(payload, topic=topic, key_of=self._keys.get, windows=self._windows)
        if opened.topic.leaf is Leaf.BIRTH:  # whatever was said before it, and comes later, was recorded
            self._windows.remember(opened.source, opened.session, opened.counter)
        return opened

    def claimed(self, topic: str) -> str:
        """Return the enrolled node whose topic this is, else "unknown": labels are bounded."""
        parts = topic.split("/")
        name = parts[3] if len(parts) == 5 else ""
        return name if name in self._keys else "unknown"
