"""Who may speak: the register's keys, and what was said before. Owns the checks before any decoding."""

from __future__ import annotations

from collections.abc import Iterable

from skerry.clock import Instant
from skerry.envelope import Opened, open_envelope
from skerry.identity import parse_public_key
from skerry.node import NodeRecord
from skerry.replay import ReplayWindows

#: One line a reason in so many seconds: a flood of forgeries must not fill the disk.
LOG_EVERY_S = 10.0


class Gate:
    """The keys of enrolled nodes, in memory, in step with the register."""

    def __init__(self, fleet: str, records: Iterable[NodeRecord]) -> None:
        """records: the register at the start, with the newest session of each node."""
        self._fleet = fleet
        self._keys: dict[str, bytes] = {}
        self._windows = ReplayWindows()
        self._logged: dict[str, Instant] = {}
        for record in records:
            self.learn(record)
            self._windows.remember(record.name, record.session)

    def learn(self, record: NodeRecord) -> None:
        """Take note of a node's key; an empty one is refused from here on."""
        self._windows.forget(record.name)
        if record.public_key:
            self._keys[record.name] = parse_public_key(record.public_key)
        else:
            self._keys.pop(record.name, None)

    def key_of(self, node: str) -> bytes | None:
        """Return the public key of an enrolled node, None for any other name."""
        return self._keys.get(node)

    def open(self, topic: str, payload: bytes) -> Opened:
        """Return a message whose sender is proven.  Raises EnvelopeRefused."""
        return open_envelope(payload, topic=topic, key_of=self._keys.get, windows=self._windows)

    def claimed(self, topic: str) -> str:
        """Return the enrolled node whose topic this is, else "unknown": labels are bounded."""
        parts = topic.split("/")
        name = parts[3] if len(parts) == 5 else ""
        return name if name in self._keys else "unknown"

    def may_log(self, reason: str, now: Instant) -> bool:
        """Decide whether a refusal is worth a line now."""
        last = self._logged.get(reason)
        if last is not None and last.boot_id == now.boot_id and now.since(last) < LOG_EVERY_S:
            return False
        self._logged[reason] = now
        return True
