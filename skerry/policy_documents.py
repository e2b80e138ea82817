"""What the coordinator's HTTP API says of policies and rollouts: documents for the service and its clients.

Pure values. States are text here, so that an older client can read a newer service's.
"""

from __future__ import annotations

from skerry.documents import Document
from skerry.policy_manifest import Comparison, PolicyManifest


class PolicyVersionView(Document, frozen=True, kw_only=True):
    """One version in the registry. state: vetting, ready, unproven, refused or withdrawn."""

    policy: str  #: file hash
    version: str
    state: str
    reason: str
    added_by: str
    added_wall_s: float
    is_current: bool  #: the fleet runs it
    checked: tuple[Comparison, ...]  #: what the coordinator's own evaluation found
    manifest: PolicyManifest


class PolicyVersionList(Document, frozen=True, kw_only=True):
    """Every version, newest first. current: what the fleet runs; empty: the fallback."""

    policies: tuple[PolicyVersionView, ...]
    current: str = ""


class NodeProgress(Document, frozen=True, kw_only=True):
    """One node in a rollout. progress: waiting, told, trying, passed, failed, silent, away or left."""

    node: str
    progress: str
    state: str = ""  #: its last word: where its gate stands, fetching or refused
    reason: str = ""
    evidence: dict[str, float]
    heard_wall_s: float = 0.0


class RolloutView(Document, frozen=True, kw_only=True):
    """One rollout. state: canary, fleet, paused, done, rolled_back or aborted. Lists leave the nodes out."""

    rollout_id: str
    policy: str
    version: str
    previous: str
    state: str
    reason: str
    canaries: tuple[str, ...]
    started_by: str
    started_wall_s: float
    ended_wall_s: float | None = None
    waits_for: str = ""
    nodes: tuple[NodeProgress, ...] = ()

    @property
    def has_ended(self) -> bool:
        """It moves no more by itself."""
        return self.state in ("done", "rolled_back", "aborted")


class RolloutList(Document, frozen=True, kw_only=True):
    """Every rollout, newest first."""

    rollouts: tuple[RolloutView, ...]
