"""A fleet on a virtual clock: the coordinator's rollout core, and nodes that answer as they are told to."""

from __future__ import annotations

from collections.abc import Iterable

from cloud_coordinator.ledger.memory import MemoryLedger
from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.rollout import registry
from cloud_coordinator.rollout.core import Rollouts
from cloud_coordinator.rollout.progress import Now
from cloud_coordinator.rollout.registry import Vetted
from cloud_coordinator.rollout.values import PolicyVersion, Rollout, RolloutSpec, RolloutState
from skerry.clock import Instant
from skerry.identity import PrivateKey
from skerry.messages import ActivatePolicy, GateEvidence, PolicyReport
from skerry.policy_manifest import (
    Comparison,
    EvaluationSummary,
    Lineage,
    PolicyManifest,
    decode_manifest,
    sign_manifest,
)

KEY = PrivateKey.generate()


def a_comparison(high: float = 0.9) -> Comparison:
    return Comparison(
        devices=8, scenarios=200, against="full-cost", cost=0.2, other_cost=0.3, ratio=high - 0.05,
        low=high - 0.1, high=high, wins=0.8,
    )  # fmt: skip


def a_manifest(digit: str = "a", **fields: object) -> PolicyManifest:
    values = {
        "file_hash": f"sha256:{digit * 64}",
        "file_bytes": 100,
        "schema_hash": "s",
        "lineage": Lineage(command="skerry policy train", seed=1),
        "evaluation": EvaluationSummary(seed=1, comparisons=(a_comparison(),)),
        "golden": (0.1,),
    }
    return sign_manifest(PolicyManifest(**{**values, **fields}), KEY)  # type: ignore[arg-type]


class Coordinator:
    """The rollout core with a clock, a register of nodes, and the commands it wrote."""

    def __init__(self, *nodes: str, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or MemoryLedger()
        self.rollouts = Rollouts(self.ledger)
        self.fleet = dict.fromkeys(nodes, True)
        self.told: dict[str, list[ActivatePolicy]] = {name: [] for name in nodes}
        self.now_s = 1000.0
        self.boot = "boot-1"
        self._count = 0

    @property
    def at(self) -> Now:
        return Now(Instant(self.boot, self.now_s), 1.9e9 + self.now_s)

    @property
    def only(self) -> Rollout:
        (rollout,) = self.rollouts.book.rollouts.values()
        return rollout

    @property
    def current(self) -> str:
        return self.rollouts.book.current.policy

    def restart(self) -> None:
        """Begin again from the ledger, on another boot of the machine."""
        self.rollouts = Rollouts(self.ledger)
        self.boot += "+"

    def tell(self, node: str, message: ActivatePolicy) -> None:
        self.told[node].append(message)

    def add(self, digit: str = "a", *checked: Comparison, **fields: object) -> PolicyVersion:
        """A version in the registry that has been vetted."""
        manifest = a_manifest(digit, **fields)
        registry.add(self.rollouts.book, manifest, by="operator", wall_s=self.at.wall_s)
        result = Vetted(checked=checked or (a_comparison(),))
        version = registry.vetted(self.rollouts.book, manifest.file_hash, result)
        assert version is not None
        return version

    def start(self, digit: str = "a", **fields: object) -> Rollout:
        spec = RolloutSpec(policy=digit * 12, **fields)  # type: ignore[arg-type]
        self._count += 1
        return self.rollouts.start(
            spec, self.at, self.fleet, self.tell, rollout_id=f"r{self._count}", by="operator"
        )

    def wait(self, seconds: float, step_s: float = 10.0) -> None:
        """Let time pass, with ticks."""
        until = self.now_s + seconds
        while self.now_s < until:
            self.now_s += step_s
            self.rollouts.tick(self.at, self.fleet, self.tell)

    def say(self, node: str, state: str, reason: str = "") -> None:
        """A node answers what it was told last."""
        last = self.told[node][-1]
        policy = decode_manifest(last.manifest.encode()).file_hash if last.manifest else ""
        report = PolicyReport(policy=policy, state=state, reason=reason, rollout=last.rollout)
        self.rollouts.reported(node, report, self.at, self.fleet, self.tell)

    def evidence(self, node: str, gate_state: str, reason: str = "") -> None:
        """A node's gate has taken a step."""
        policy = self.rollouts.book.node(node).policy
        said = GateEvidence(
            policy=policy, gate_state=gate_state, evidence={"cost_excess": 0.5}, reason=reason
        )
        self.rollouts.reported(node, said, self.at, self.fleet, self.tell)

    def leave(self, node: str) -> None:
        self.fleet[node] = False

    def come_back(self, node: str, store_epoch: str = "store-1") -> None:
        self.fleet[node] = True
        self.rollouts.connected(node, self.at, self.tell, store_epoch=store_epoch)

    def policies_told(self, node: str) -> list[str]:
        """The policies a node was told, by their hash's first digit; "" is the fallback."""
        return [
            decode_manifest(m.manifest.encode()).version[0] if m.manifest else "" for m in self.told[node]
        ]

    def done(self, digit: str = "a", *, nodes: Iterable[str] = ()) -> None:
        """A whole good rollout."""
        rollout = self.start(digit)
        self.evidence(rollout.canaries[0], "full")
        for node in self.fleet:
            if node not in rollout.canaries and self.fleet[node]:
                self.say(node, "shadow")
        assert self.rollouts.book.rollout(rollout.rollout_id).state is RolloutState.DONE
