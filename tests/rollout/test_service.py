"""The registry's shell: whose papers are taken, what the vetting process may do, what a restart finds."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from cloud_coordinator.rollout.core import Rollouts
from cloud_coordinator.rollout.registry import Vetted, verdict_on
from cloud_coordinator.rollout.service import Job, Policies
from cloud_coordinator.rollout.settings import PolicySettings
from cloud_coordinator.rollout.values import PolicyVersion, VersionState
from cloud_coordinator.rollout.vetting import ChildVetter
from policy.linear import write_linear
from skerry.blobs import BlobStore
from skerry.errors import PolicyError, StorageFailed
from skerry.identity import PrivateKey
from skerry.ids import content_hash
from skerry.policy_manifest import PolicyManifest, verify_manifest
from skerry.testing import ManualClock
from tests.rollout.fleet import Coordinator, a_comparison, a_manifest

T = TypeVar("T")
OWN, FOREIGN = PrivateKey.generate(), PrivateKey.generate()


class Fixed:
    """A vetter that says what it is told to."""

    def __init__(self, result: Vetted) -> None:
        self.result = result
        self.asked: list[str] = []

    async def vet(self, version: PolicyVersion) -> Vetted:
        self.asked.append(version.policy)
        return self.result


class Desk:
    """Policies over a rollout core in memory and a real content store."""

    def __init__(self, path: Path, *, signers: tuple[str, ...] = (), vetter: Any = None) -> None:
        self.there = Coordinator("n1")
        self.blobs = BlobStore(path / "blobs", 1 << 24, clock=ManualClock())
        self.settings = PolicySettings(signers=signers)
        self.vetter = vetter or Fixed(Vetted(checked=(a_comparison(),)))
        self.policies = self.again()

    def again(self) -> Policies:
        """Another process over the same ledger."""
        return Policies(self._ask, self.blobs, OWN, self.vetter, self.settings)

    async def _ask(self, job: Job[T]) -> T:
        there = self.there
        return job(there.rollouts, there.at, there.fleet, there.tell)

    def keep(self, file: Path) -> None:
        """Put a file into the content store."""

        with self.blobs.receive(content_hash(file.read_bytes())) as sink:
            sink.write(file.read_bytes())
            sink.commit()


def a_policy(path: Path, key: PrivateKey | None, weight: float = -1.0) -> PolicyManifest:
    return write_linear(path, {"increase": weight}, key=key)


async def vetted(policies: Policies, name: str) -> PolicyVersion:
    for _ in range(600):
        version = await policies.version(name)
        if version.state is not VersionState.VETTING:
            return version
        await asyncio.sleep(0.05)  # polling a process that evaluates
    raise AssertionError("it was not vetted in time")


def test_papers_of_a_known_signer_are_signed_anew_with_our_key(tmp_path: Path) -> None:
    desk = Desk(tmp_path, signers=(FOREIGN.public_hex,))
    manifest = a_policy(tmp_path / "p.onnx", FOREIGN)
    desk.keep(tmp_path / "p.onnx")

    version = asyncio.run(desk.policies.add(manifest, by="ann"))

    assert verify_manifest(version.manifest, (OWN.public_hex,)) == ""
    assert version.manifest.golden == manifest.golden


@pytest.mark.parametrize(
    ("key", "words"), [(None, "is not signed"), (FOREIGN, "not trusted"), (OWN, "not in the content store")]
)
def test_papers_that_do_not_count_are_refused_by_name(
    key: PrivateKey | None, words: str, tmp_path: Path
) -> None:
    desk = Desk(tmp_path)
    manifest = a_policy(tmp_path / "p.onnx", key)

    with pytest.raises(PolicyError, match=words):
        asyncio.run(desk.policies.add(manifest, by="ann"))
    assert desk.there.rollouts.book.versions == {}


def test_what_waits_for_vetting_is_vetted_by_the_next_process(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    manifest = a_policy(tmp_path / "p.onnx", OWN)
    desk.keep(tmp_path / "p.onnx")

    async def story() -> PolicyVersion:
        await desk.policies.add(manifest, by="ann")  # and the process ends before it was vetted
        desk.there.rollouts = Rollouts(desk.there.ledger)
        next_one = desk.again()
        next_one.start()
        version = await vetted(next_one, manifest.file_hash)
        await next_one.stop()
        return version

    assert asyncio.run(story()).state is VersionState.UNPROVEN  # its manifest claims nothing
    assert desk.vetter.asked == [manifest.file_hash]


class Failing(Fixed):
    """A vetter that cannot work the first time."""

    async def vet(self, version: PolicyVersion) -> Vetted:
        found = await super().vet(version)
        if len(self.asked) == 1:
            raise StorageFailed("no space left on device")
        return found


@pytest.mark.parametrize("what", ["time", "another version"])
def test_a_vetting_that_failed_is_tried_again(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud_coordinator.rollout.service._VET_AGAIN_S", 0.05 if what == "time" else 3600.0)
    desk = Desk(tmp_path, vetter=Failing(Vetted(checked=(a_comparison(),))))
    first, second = (a_policy(tmp_path / f"{weight}.onnx", OWN, weight) for weight in (-1.0, -2.0))
    desk.keep(tmp_path / "-1.0.onnx")
    desk.keep(tmp_path / "-2.0.onnx")

    async def story() -> None:
        desk.policies.start()
        await desk.policies.add(first, by="ann")
        while not desk.vetter.asked:  # noqa: ASYNC110  # the vetter only notes that it was asked
            await asyncio.sleep(0.01)
        if what == "another version":
            await desk.policies.add(second, by="ann")
        await vetted(desk.policies, first.file_hash)
        await desk.policies.stop()

    asyncio.run(story())
    assert desk.vetter.asked.count(first.file_hash) == 2


def test_a_version_is_ready_only_if_every_comparison_beats_the_fallback() -> None:
    manifest = a_manifest("a")
    better, worse = a_comparison(0.9), a_comparison(1.01)

    assert verdict_on(manifest, Vetted(checked=(better,)), 1.0)[0] is VersionState.READY
    assert verdict_on(manifest, Vetted(checked=(better, worse)), 1.0)[0] is VersionState.UNPROVEN
    assert verdict_on(manifest, Vetted(), 1.0)[0] is VersionState.UNPROVEN
    assert verdict_on(manifest, Vetted(refused="broken"), 1.0) == (VersionState.REFUSED, "broken")


def a_child(desk: Desk, path: Path, **fields: Any) -> ChildVetter:
    settings = PolicySettings(**{"against": "full-cost", "devices": "2", "scenarios": 2, **fields})
    return ChildVetter(desk.blobs, settings, path / "vetting")


def test_the_child_evaluates_a_sound_policy_and_refuses_a_broken_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    results = []
    for name, weight in (("good", -1.0), ("broken", float("nan"))):
        manifest = a_policy(tmp_path / f"{name}.onnx", OWN, weight)
        desk.keep(tmp_path / f"{name}.onnx")
        results.append(asyncio.run(a_child(desk, tmp_path).vet(PolicyVersion(manifest=manifest))))

    good, broken = results
    assert (good.refused, [one.against for one in good.checked]) == ("", ["full-cost"])
    assert "not all numbers" in broken.refused
    assert list((tmp_path / "vetting").iterdir()) == []


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    manifest = a_policy(tmp_path / "p.onnx", OWN)
    desk.keep(tmp_path / "p.onnx")

    result = asyncio.run(a_child(desk, tmp_path, evaluation_s=0.05).vet(PolicyVersion(manifest=manifest)))

    assert result.refused == "its evaluation did not end within 0.05 s"


def test_a_file_that_is_gone_is_no_crash(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    manifest = msgspec.structs.replace(a_manifest("a"), file_bytes=1)

    result = asyncio.run(a_child(desk, tmp_path).vet(PolicyVersion(manifest=manifest)))

    assert "its file cannot be read" in result.refused


def test_the_coordinators_process_loads_no_policy_itself() -> None:
    import subprocess

    code = (
        "import sys, cloud_coordinator.service\n"
        "print([m for m in ('onnxruntime', 'torch', 'flwr') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
