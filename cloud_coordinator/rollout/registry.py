"""Which policy versions there are and what each may be used for. Pure but for the book it writes to."""

from __future__ import annotations

import msgspec

from cloud_coordinator.rollout.book import Book
from cloud_coordinator.rollout.values import PolicyVersion, VersionState
from skerry.errors import PolicyError
from skerry.policy_manifest import Comparison, PolicyManifest


class Vetted(msgspec.Struct, frozen=True, kw_only=True):
    """What trying a version out in a process of its own found. refused: why it cannot be used at all."""

    refused: str = ""
    checked: tuple[Comparison, ...] = ()


def add(book: Book, manifest: PolicyManifest, *, by: str, wall_s: float) -> PolicyVersion:
    """Take a version whose signature was checked; one that is known stays as it is."""
    known = book.versions.get(manifest.file_hash)
    if known is not None and known.state is not VersionState.REFUSED:
        return known
    version = PolicyVersion(manifest=manifest, added_by=by, added_wall_s=wall_s)
    book.put_version(version)
    return version


def vetted(book: Book, policy: str, result: Vetted, *, beats_below: float = 1.0) -> PolicyVersion | None:
    """Write what vetting found; None when that version no longer waits for it."""
    known = book.versions.get(policy)
    if known is None or known.state is not VersionState.VETTING:
        return None
    state, reason = verdict_on(known.manifest, result, beats_below)
    version = msgspec.structs.replace(known, state=state, reason=reason, checked=result.checked)
    book.put_version(version)
    return version


def verdict_on(manifest: PolicyManifest, result: Vetted, beats_below: float) -> tuple[VersionState, str]:
    """Decide what a version may be used for: it must claim to beat the fallback, and do so here too.

    beats_below: what the upper 95 % bound of the ratio of their costs must stay under.
    """
    if result.refused:
        return VersionState.REFUSED, result.refused
    if not manifest.evaluation.comparisons:
        return VersionState.UNPROVEN, "its manifest carries no evaluation"
    if not result.checked:
        return VersionState.UNPROVEN, "our evaluation compared nothing"
    for one in result.checked:
        if one.high >= beats_below:
            return VersionState.UNPROVEN, f"it does not beat the fallback: {_words(one)}"
    return VersionState.READY, "; ".join(_words(one) for one in result.checked)


def usable(version: PolicyVersion, *, may_be_unproven: bool) -> PolicyVersion:
    """Return a version that a rollout may start with.  Raises PolicyError, saying what is in the way."""
    name = version.manifest.version
    if version.state is VersionState.READY:
        return version
    if version.state in (VersionState.UNPROVEN, VersionState.WITHDRAWN) and may_be_unproven:
        return version
    hint = {
        VersionState.VETTING: "wait until it was evaluated: `skerry rollout policies`",
        VersionState.REFUSED: "it cannot be used",
    }.get(version.state, "--unproven starts it all the same")
    raise PolicyError(f"policy {name} is {version.state.value} ({version.reason or 'no result yet'}): {hint}")


def _words(one: Comparison) -> str:
    return (
        f"cost {one.ratio:.3f} of {one.against}'s on {one.devices} devices "
        f"({one.low:.3f} to {one.high:.3f}, {one.scenarios} scenarios)"
    )
