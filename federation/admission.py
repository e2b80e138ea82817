"""Which replies may take part in a version. Owns every check on an update; knows no Flower and no ledger.

A reply from a node is untrusted. Nothing here raises because of what a reply holds: it ends as a verdict with
a reason. The limit that depends on the fleet (the norm of an update) comes from what was accepted before and
from the replies judged together, by their median, which a minority cannot move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec
import numpy as np
from numpy.typing import NDArray

from federation.values import Accepted, Refused, Verdict
from federation.wire import Arrays

#: What a reply may report; everything else is refused, for one unknown name ends Flower's own aggregation.
METRICS = frozenset(
    {
        "loss",
        "loss_before",
        "reward",
        "reward_before",
        "episodes",
        "steps",
        "runtime_s",
        "kl",
        "clip_fraction",
        "entropy",
        "explained_variance",
        "policy_loss",
        "value_loss",
        "arrivals",
    }
)


class AdmissionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits. Norms are Euclidean, over all parameters together."""

    max_bytes: int = 64 * 1024 * 1024
    max_examples: int = 1_000_000
    max_staleness: int = 3
    clip_at: float = 3.0  #: times the median norm: a longer update is shortened to this
    refuse_at: float = 10.0  #: times the median norm: a longer update is refused
    norms_kept: int = 64
    metrics: frozenset[str] = METRICS


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One reply, decoded as far as it could be. refused: what was found before admission saw it."""

    instruction_id: str
    node: str
    base_version: int
    num_examples: object = 0
    arrays: Arrays = {}
    metrics: Mapping[str, object] = {}
    refused: Refused | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction that has no verdict yet."""

    node: str
    version: int


def judge_all(
    offers: Sequence[Offer],
    *,
    asked: Mapping[str, Asked],
    bases: Mapping[int, Arrays],
    version: int,
    norms: Sequence[float],
    policy: AdmissionPolicy,
) -> list[Verdict]:
    """Return one verdict an offer, in their order.

    asked: instruction id → what was asked.  bases: the versions kept, by number.  version: the newest of
    them, from which staleness counts.  norms: of updates accepted before.
    """
    seen: set[str] = set()
    first = [_judge_form(offer, asked, bases, version, policy, seen) for offer in offers]
    fresh = [verdict.norm for verdict in first if isinstance(verdict, Accepted)]
    usual = usual_norm([*norms, *fresh], bases.get(version, {}))
    judged = [_judge_norm(verdict, usual, policy) for verdict in first]
    return _one_share_each(offers, judged)


def _one_share_each(offers: Sequence[Offer], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Keep a node with several replies (late ones and a fresh one) at the weight of its heaviest."""
    weights: dict[str, list[float]] = {}
    for offer, verdict in zip(offers, verdicts, strict=True):
        if isinstance(verdict, Accepted):
            weights.setdefault(offer.node, []).append(verdict.weight)
    share = {node: max(own) / math.fsum(own) for node, own in weights.items()}
    return [
        msgspec.structs.replace(verdict, weight=verdict.weight * share[offer.node])
        if isinstance(verdict, Accepted)
        else verdict
        for offer, verdict in zip(offers, verdicts, strict=True)
    ]


def usual_norm(norms: Sequence[float], base: Arrays) -> float:
    """Return the norm that updates are held against: the median, at least a thousandth of the model's.

    The floor keeps fleets whose updates are next to nothing from refusing the first node that learns.
    """
    floor = 1e-3 * norm_of(base)
    return max(median(norms), floor) if norms else floor


def norm_of(arrays: Mapping[str, NDArray[np.generic]]) -> float:
    """Return the Euclidean norm over all arrays; infinite or not a number when an element is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(sum(float(np.sum(np.square(a.astype(np.float64)))) for a in arrays.values()))


def difference(arrays: Arrays, base: Arrays) -> dict[str, NDArray[np.float64]]:
    """Return the update in double precision: what came minus what it began from."""
    with np.errstate(over="ignore", invalid="ignore"):
        return {key: arrays[key].astype(np.float64) - base[key].astype(np.float64) for key in base}


def stale_weight(examples: int, staleness: int) -> float:
    """Return n · (1 + staleness)^-0.5.  Source: Xie et al. 2019 (arXiv 1903.03934), polynomial rule."""
    return examples / math.sqrt(1.0 + staleness)


def _judge_form(
    offer: Offer,
    asked: Mapping[str, Asked],
    bases: Mapping[int, Arrays],
    version: int,
    policy: AdmissionPolicy,
    seen: set[str],
) -> Verdict:
    """Check everything but the norm, cheapest first; an accepted verdict carries the norm."""
    refused = (
        _wrong_source(offer, asked, seen)
        or _wrong_base(offer, bases, version, policy)
        or _wrong_count(offer.num_examples, policy)
        or _wrong_metrics(offer.metrics, policy)
        or _wrong_arrays(offer.arrays, bases[offer.base_version], policy)
    )
    if refused is not None:
        return refused
    norm = norm_of(difference(offer.arrays, bases[offer.base_version]))
    if not math.isfinite(norm):
        return Refused(code="not_finite", reason="the update is too large to be measured")
    staleness = version - offer.base_version
    assert isinstance(offer.num_examples, int)  # _wrong_count saw to it
    weight = stale_weight(offer.num_examples, staleness)
    return Accepted(weight=weight, staleness=staleness, norm=norm)


def _judge_norm(verdict: Verdict, usual: float, policy: AdmissionPolicy) -> Verdict:
    if isinstance(verdict, Refused) or verdict.norm == 0.0 or usual == 0.0:
        return verdict
    ratio = verdict.norm / usual
    if ratio >= policy.refuse_at:
        return Refused(
            code="norm",
            reason=f"the update is {ratio:.1f} times as long as usual, {policy.refuse_at:g} is refused",
        )
    if ratio > policy.clip_at:
        return msgspec.structs.replace(verdict, scale=policy.clip_at / ratio)
    return verdict


def _wrong_source(offer: Offer, asked: Mapping[str, Asked], seen: set[str]) -> Refused | None:
    known = asked.get(offer.instruction_id)
    if known is None:
        return Refused(code="unknown_instruction", reason="no such instruction is open")
    if known.node != offer.node:
        return Refused(code="foreign_node", reason=f"{known.node} was asked, {offer.node} answered")
    if offer.instruction_id in seen:
        return Refused(code="duplicate", reason="this instruction has its reply already")
    seen.add(offer.instruction_id)
    if offer.refused is not None:
        return offer.refused
    if known.version != offer.base_version:
        reason = f"version {known.version} was asked, the reply is about {offer.base_version}"
        return Refused(code="base_version", reason=reason)
    return None


def _wrong_base(
    offer: Offer, bases: Mapping[int, Arrays], version: int, policy: AdmissionPolicy
) -> Refused | None:
    staleness = version - offer.base_version
    if staleness > policy.max_staleness:
        reason = f"the update is {staleness} versions behind, {policy.max_staleness} are allowed"
        return Refused(code="stale", reason=reason)
    if offer.base_version not in bases:
        return Refused(code="base_version", reason=f"version {offer.base_version} is not kept here")
    return None


def _wrong_count(examples: object, policy: AdmissionPolicy) -> Refused | None:
    if isinstance(examples, bool) or not isinstance(examples, int):
        return Refused(code="num_examples", reason="the number of examples is not a whole number")
    if not 1 <= examples <= policy.max_examples:
        reason = f"{examples} examples: 1 to {policy.max_examples} are believed"
        return Refused(code="num_examples", reason=reason)
    return None


def _wrong_metrics(metrics: Mapping[str, object], policy: AdmissionPolicy) -> Refused | None:
    for name, value in metrics.items():
        if name not in policy.metrics:
            return Refused(code="metrics", reason=f"the metric {str(name)[:40]!r} is not known")
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            return Refused(code="metrics", reason=f"the metric {name} is not a finite number")
    return None


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a double holds
        return False


def _wrong_arrays(arrays: Arrays, base: Arrays, policy: AdmissionPolicy) -> Refused | None:
    if arrays.keys() != base.keys():
        return Refused(
            code="keys", reason=f"the update does not hold {len(base)} arrays named as in the model"
        )
    if sum(array.nbytes for array in arrays.values()) > policy.max_bytes:
        return Refused(code="oversized", reason=f"the update has more than {policy.max_bytes} bytes")
    for key, expected in base.items():
        got = arrays[key]
        if got.shape != expected.shape or got.dtype != expected.dtype:
            want = f"{expected.dtype}{list(expected.shape)}"
            reason = f"array {key} is {got.dtype}{list(got.shape)}, the model's {want}"
            return Refused(code="shape", reason=reason)
        if got.dtype.kind == "f" and not np.isfinite(got).all():
            return Refused(code="not_finite", reason=f"array {key} holds a value that is no finite number")
    return None
