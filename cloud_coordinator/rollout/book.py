"""What is known of policies and rollouts, in the ledger's documents. Owns names and kinds, no decision."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.rollout.values import FINAL, Current, NodePolicy, PolicyVersion, Rollout
from skerry.errors import PolicyNotFound

T = TypeVar("T", bound=msgspec.Struct)

VERSION, ROLLOUT, NODE, CURRENT = "policy.version", "policy.rollout", "policy.node", "policy.current"
#: What a canary, or a node that failed, said last in a rollout that it has left.
LEFT = "policy.left"


class Book:
    """Read once from the ledger; every change is written through, inside the caller's transaction."""

    def __init__(self, ledger: Ledger) -> None:
        """Read everything."""
        self._ledger = ledger
        self.versions = {v.policy: v for v in self._read(VERSION, PolicyVersion)}
        self.rollouts = {r.rollout_id: r for r in self._read(ROLLOUT, Rollout)}
        self.nodes = {n.node: n for n in self._read(NODE, NodePolicy)}
        self.left = {(n.rollout, n.node): n for n in self._read(LEFT, NodePolicy)}
        self.current = next(iter(self._read(CURRENT, Current)), Current())

    @property
    def active(self) -> Rollout | None:
        """The one rollout that goes on, None when there is none."""
        return next((one for one in self.rollouts.values() if one.state not in FINAL), None)

    def version(self, name: str) -> PolicyVersion:
        """Return a version by its hash or the first digits of it.  Raises PolicyNotFound."""
        digits = name.removeprefix("sha256:")
        found = [
            v for p, v in self.versions.items() if digits and p.removeprefix("sha256:").startswith(digits)
        ]
        if len(found) == 1:
            return found[0]
        problem = "several policies begin with" if found else "there is no policy"
        raise PolicyNotFound(f"{problem} {name[:80]!r}; `skerry rollout policies` lists them")

    def rollout(self, rollout_id: str) -> Rollout:
        """Return a rollout.  Raises PolicyNotFound."""
        found = self.rollouts.get(rollout_id)
        if found is None:
            raise PolicyNotFound(f"there is no rollout {rollout_id[:80]!r}; `skerry rollout list` shows them")
        return found

    def node(self, name: str) -> NodePolicy:
        """Return what a node was told and said; empty for one that was never told anything."""
        return self.nodes.get(name) or NodePolicy(node=name)

    def node_in(self, rollout_id: str, name: str) -> NodePolicy:
        """Return what a node was told and said in a rollout: its last words there when it has left."""
        known = self.node(name)
        left = self.left.get((rollout_id, name), NodePolicy(node=name))
        return known if known.rollout == rollout_id else left

    def put_version(self, version: PolicyVersion) -> None:
        """Write a version."""
        self.versions[version.policy] = version
        self._write(VERSION, version.policy, version)

    def put_rollout(self, rollout: Rollout) -> None:
        """Write a rollout."""
        self.rollouts[rollout.rollout_id] = rollout
        self._write(ROLLOUT, rollout.rollout_id, rollout)

    def put_node(self, node: NodePolicy) -> None:
        """Write what a node was told and said."""
        self.nodes[node.node] = node
        self._write(NODE, node.node, node)

    def put_left(self, node: NodePolicy) -> None:
        """Keep a node's last words in the rollout that it leaves."""
        self.left[node.rollout, node.node] = node
        self._write(LEFT, f"{node.rollout} {node.node}", node)

    def put_current(self, current: Current) -> None:
        """Write what the fleet runs."""
        self.current = current
        self._write(CURRENT, "fleet", current)

    def _read(self, kind: str, of: type[T]) -> list[T]:
        return [msgspec.json.decode(body, type=of) for _, body in self._ledger.documents(kind)]

    def _write(self, kind: str, name: str, value: msgspec.Struct) -> None:
        self._ledger.put_document(kind, name, msgspec.json.encode(value))
