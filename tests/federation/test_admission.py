"""Admission: one bad reply is refused by name, whatever it holds, and moves nothing for the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federation.admission import AdmissionPolicy, Asked, Offer, judge_all, norm_of, stale_weight
from federation.values import Accepted, Refused, Verdict
from federation.wire import Arrays

SETTINGS = settings(derandomize=True, max_examples=200, deadline=None)
POLICY = AdmissionPolicy(max_examples=10_000, max_staleness=2, max_bytes=4096)
BASE: Arrays = {"w": np.ones(16, np.float32), "b": np.zeros(2, np.float32)}
BASES: dict[int, Arrays] = {3: BASE, 2: BASE, 1: BASE}


def an_offer(node: str = "n1", version: int = 3, step: float = 0.02, **fields: Any) -> Offer:
    """An honest reply: every parameter moved by `step`."""
    known = Offer(
        instruction_id=f"{node}-{version}",
        node=node,
        base_version=version,
        num_examples=100,
        arrays={key: array + np.float32(step) for key, array in BASE.items()},
        metrics={"loss": 0.5},
    )
    return replace(known, **fields)


def judged(offers: list[Offer], *, norms: tuple[float, ...] = ()) -> list[Verdict]:
    """The verdicts when each offer's own instruction was given to n1, n2, …"""
    asked = {f"n{n}-{v}": Asked(node=f"n{n}", version=v) for n in range(1, 9) for v in (0, 1, 2, 3)}
    return judge_all(offers, asked=asked, bases=BASES, version=3, norms=norms, policy=POLICY)


def code_of(verdict: Verdict) -> str:
    """The code of a refusal."""
    assert isinstance(verdict, Refused), verdict
    assert verdict.reason
    return verdict.code


def test_honest_replies_are_accepted_with_their_examples_as_weight() -> None:
    verdicts = judged([an_offer("n1"), an_offer("n2", num_examples=7)])

    assert [v.weight for v in verdicts if isinstance(v, Accepted)] == [100.0, 7.0]
    assert all(isinstance(v, Accepted) and v.scale == 1.0 and v.staleness == 0 for v in verdicts)


HUGE = {"w": np.full(16, 3e38, np.float32), "b": BASE["b"]}
POISON: dict[str, tuple[dict[str, Any], str]] = {
    "not a number": ({"arrays": {**BASE, "w": np.full(16, np.nan, np.float32)}}, "not_finite"),
    "one infinite element": ({"arrays": {**BASE, "b": np.array([0, np.inf], np.float32)}}, "not_finite"),
    "minus fifty": ({"arrays": {key: array - np.float32(50) for key, array in BASE.items()}}, "norm"),
    "as large as a float goes": ({"arrays": HUGE}, "norm"),
    "a thousand million examples": ({"num_examples": 10**9}, "num_examples"),
    "no example": ({"num_examples": 0}, "num_examples"),
    "less than none": ({"num_examples": -600}, "num_examples"),
    "examples as text": ({"num_examples": "many"}, "num_examples"),
    "examples as truth": ({"num_examples": True}, "num_examples"),
    "examples as a fraction": ({"num_examples": math.nan}, "num_examples"),
    "another shape": ({"arrays": {**BASE, "w": np.ones((4, 4), np.float32)}}, "shape"),
    "another type": ({"arrays": {**BASE, "w": np.ones(16, np.float64)}}, "shape"),
    "one array more": ({"arrays": {**BASE, "x": np.ones(1, np.float32)}}, "keys"),
    "one array less": ({"arrays": {"w": BASE["w"]}}, "keys"),
    "nothing": ({"arrays": {}}, "keys"),
    "oversized": ({"arrays": {"w": np.ones(5000, np.float32), "b": BASE["b"]}}, "oversized"),
    "an unknown metric": ({"metrics": {"loss": 1.0, "password": 1.0}}, "metrics"),
    "a metric that is none": ({"metrics": {"loss": math.inf}}, "metrics"),
    "a metric beyond a double": ({"metrics": {"loss": 10**400}}, "metrics"),
    "a metric as a list": ({"metrics": {"loss": [1.0]}}, "metrics"),
    "an unknown instruction": ({"instruction_id": "never"}, "unknown_instruction"),
    "another node's instruction": ({"instruction_id": "n8-3"}, "foreign_node"),
    "another version than asked": ({"base_version": 2}, "base_version"),
    "undecodable": ({"refused": Refused(code="malformed", reason="not a packet")}, "malformed"),
    "no reply at all": ({"refused": Refused(code="node_error", reason="out of memory")}, "node_error"),
}


@pytest.mark.parametrize("poison", POISON)
def test_one_bad_of_seven_is_refused_by_name_and_moves_nothing(poison: str) -> None:
    fields, code = POISON[poison]
    honest = [an_offer(f"n{n}", step=0.02 + 0.001 * n) for n in range(1, 7)]
    bad = replace(an_offer("n7"), **fields)

    alone = judged(honest)
    *others, verdict = judged([*honest, bad])

    assert code_of(verdict) == code
    assert others == alone


def test_a_replay_is_refused_and_the_first_reply_stands() -> None:
    first, second = judged([an_offer("n1"), an_offer("n1")])

    assert isinstance(first, Accepted)
    assert code_of(second) == "duplicate"


def test_a_stranger_who_is_first_does_not_use_up_the_instruction() -> None:
    stranger, own = judged([an_offer("n2", instruction_id="n1-3"), an_offer("n1")])

    assert code_of(stranger) == "foreign_node"
    assert isinstance(own, Accepted)


def test_late_replies_weigh_less_and_too_late_ones_nothing() -> None:
    fresh, late, later, too_late = judged([an_offer(f"n{n}", 4 - n) for n in (1, 2, 3, 4)])

    assert isinstance(fresh, Accepted)
    assert isinstance(late, Accepted)
    assert isinstance(later, Accepted)
    assert (fresh.staleness, late.staleness, later.staleness) == (0, 1, 2)
    assert late.weight == 100 / math.sqrt(2)
    assert later.weight == 100 / math.sqrt(3)
    assert code_of(too_late) == "stale"


def test_a_node_with_a_late_and_a_fresh_reply_has_one_nodes_weight() -> None:
    verdicts = judged([an_offer("n1", 3), an_offer("n1", 2), an_offer("n2", 3)])

    weights = [v.weight for v in verdicts if isinstance(v, Accepted)]
    assert weights[0] + weights[1] == pytest.approx(weights[2])


def test_a_long_update_is_shortened_and_a_very_long_one_refused() -> None:
    usual = [an_offer(f"n{n}", step=0.02) for n in range(1, 6)]

    *_, long, far = judged([*usual, an_offer("n6", step=0.1), an_offer("n7", step=0.25)])

    assert isinstance(long, Accepted)
    assert long.scale * long.norm == pytest.approx(3.0 * norm_of({k: a * 0 + 0.02 for k, a in BASE.items()}))
    assert code_of(far) == "norm"


def test_what_was_accepted_before_outweighs_a_hostile_crowd() -> None:
    crowd = [an_offer(f"n{n}", step=1.0) for n in range(1, 4)]

    verdicts = judged(crowd, norms=(0.08,) * 16)

    assert {code_of(v) for v in verdicts} == {"norm"}


def test_the_first_node_that_learns_is_not_refused_for_it() -> None:
    idle = [an_offer(f"n{n}", step=0.0) for n in range(1, 6)]

    verdict = judged([*idle, an_offer("n6", step=0.001)])[-1]

    assert isinstance(verdict, Accepted)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
any_array = st.builds(
    lambda shape, dtype, value: np.full(shape, value).astype(dtype),
    st.sampled_from([(16,), (2,), (4, 4), (0,), ()]),
    st.sampled_from(["f4", "f8", "f2", "i4", "u1", "?"]),
    st.sampled_from([0.0, 1.0, 1.5, 40.0]),
)


@given(
    st.lists(
        st.builds(
            Offer,
            instruction_id=st.sampled_from(["n1-3", "n2-3", "n3-0", "n4-2", "never"]),
            node=st.sampled_from(["n1", "n2", "n3", "n4"]),
            base_version=st.integers(-5, 9),
            num_examples=anything,
            arrays=st.dictionaries(st.sampled_from(["w", "b", "x"]), any_array, max_size=3),
            metrics=st.dictionaries(st.sampled_from(["loss", "kl", "other"]), anything, max_size=2),
        ),
        max_size=6,
    )
)
@SETTINGS
def test_whatever_comes_every_offer_gets_a_verdict_that_keeps_the_limits(offers: list[Offer]) -> None:
    verdicts = judged(offers)

    assert len(verdicts) == len(offers)
    for offer, verdict in zip(offers, verdicts, strict=True):
        if isinstance(verdict, Accepted):
            assert 0 < verdict.weight <= stale_weight(POLICY.max_examples, verdict.staleness)
            assert 0 < verdict.scale <= 1
            assert math.isfinite(verdict.norm)
            assert offer.arrays.keys() == BASE.keys()
        else:
            assert verdict.code
            assert verdict.reason


@given(st.permutations(range(7)))
@SETTINGS
def test_verdicts_do_not_depend_on_the_order_of_arrival(order: list[int]) -> None:
    offers = [an_offer(f"n{n}", step=0.01 * n * n) for n in range(1, 8)]

    there = dict(zip((o.node for o in offers), judged(offers), strict=True))
    shuffled = [offers[i] for i in order]
    here = dict(zip((o.node for o in shuffled), judged(shuffled), strict=True))

    assert here == there
