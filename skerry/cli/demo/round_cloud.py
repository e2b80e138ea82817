"""The operator of the round demo: asks the coordinator by the same commands and documents as people do.

Owns how it is asked; decides nothing. A coordinator that was killed answers nothing, which is told as None.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from skerry.cli.coordinator import connection
from skerry.cli.demo.process import FleetError, run_skerry
from skerry.documents import Document
from skerry.errors import ServiceUnreachable
from skerry.policy_documents import PolicyVersionView, RolloutView
from skerry.policy_manifest import decode_manifest, manifest_path
from skerry.round_documents import RoundView

D = TypeVar("D", bound=Document)


class Operator:
    """Whoever sits at the coordinator's command line."""

    def __init__(self, config: Path) -> None:
        """config: the coordinator's settings file, to find it by."""
        self._where = ("--config", str(config))
        self._http = connection(config, None)

    def start_run(self, *options: str) -> str:
        """`skerry round start`; return the run's name.  Raises FleetError."""
        return str(json.loads(run_skerry("round", "start", *options, "--json", *self._where))["name"])

    def run(self, name: str) -> RoundView | None:
        """Return a run as it stands, None while nobody answers."""
        return self._get(RoundView, f"/v1/rounds/{name}")

    def push(self, file: Path) -> str:
        """`skerry policy push`; return why the policy is refused, empty when it is not."""
        try:
            run_skerry("policy", "push", str(file), "--json", *self._where)
        except FleetError as error:
            said = str(error).partition("skerry: ")[2] or str(error)
            return said.partition(" is refused: ")[2] or said
        return ""

    def version(self, policy: str) -> PolicyVersionView | None:
        """Return a version of the registry as it stands.  policy: its file hash, or the first digits."""
        return self._get(PolicyVersionView, f"/v1/policies/{policy.removeprefix('sha256:')}")

    def version_in(self, file: Path) -> PolicyVersionView | None:
        """Return what the registry has of a policy file."""
        return self.version(decode_manifest(manifest_path(file).read_bytes()).file_hash)

    def start_rollout(self, policy: str, *options: str) -> str:
        """`skerry rollout start`; return the rollout's id.  Raises FleetError."""
        digits = policy.removeprefix("sha256:")
        words = ("rollout", "start", digits, *options, "--json", *self._where)
        return str(json.loads(run_skerry(*words))["rollout_id"])

    def rollout(self, name: str) -> RolloutView | None:
        """Return a rollout as it stands."""
        return self._get(RolloutView, f"/v1/rollouts/{name}")

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def _get(self, kind: type[D], path: str) -> D | None:
        try:
            return self._http.json(kind, "GET", path)
        except ServiceUnreachable:
            return None
