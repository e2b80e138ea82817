"""One bad node of seven, over the whole way: the run ends in order, the offender is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from federation.rounds.service import RunReport
from federation.values import INLINE_LIMIT_BYTES, Instruction, Reply, RunSpec, RunState
from federation.wire import PACKET_LIMIT_BYTES, pack, unpack

SPEC = RunSpec(run_id="r1", trainer="toy", rounds=6, quorum=4, max_examples=1000)


def with_arrays(change: Callable[[str, np.ndarray], np.ndarray]) -> Callable[[Reply], Reply]:
    """A reply whose arrays are changed one by one."""
    return lambda reply: replace(
        reply, inline=pack({key: change(key, array) for key, array in unpack(reply.inline).items()})
    )


#: name → (what the bad node makes of its honest reply, the code under which it is refused)
POISON: dict[str, tuple[Callable[[Reply], Reply], str]] = {
    "not a number": (with_arrays(lambda _, a: np.full_like(a, np.nan)), "not_finite"),
    "times minus fifty": (with_arrays(lambda _, a: a * np.float32(-50) - np.float32(50)), "norm"),
    "a thousand million examples": (lambda reply: replace(reply, num_examples=10**9), "num_examples"),
    "no example": (lambda reply: replace(reply, num_examples=0), "num_examples"),
    "negative examples": (lambda reply: replace(reply, num_examples=-600), "num_examples"),
    "more examples than an integer holds": (lambda reply: replace(reply, num_examples=2**63), "num_examples"),
    "another shape": (with_arrays(lambda _, a: a.reshape(-1, 1)), "shape"),
    "an extra metric": (lambda reply: replace(reply, metrics={**reply.metrics, "x": 1.0}), "metrics"),
    "a metric that is no number": (lambda reply: replace(reply, metrics={"loss": float("nan")}), "metrics"),
    "an extra array": (
        lambda reply: replace(reply, inline=pack({**unpack(reply.inline), "x": np.ones(3, np.float32)})),
        "keys",
    ),
    "no packet": (lambda reply: replace(reply, inline=b"\x00garbage"), "malformed"),
    "nothing": (lambda reply: replace(reply, inline=b""), "malformed"),
    "content that nobody has": (
        lambda reply: replace(reply, inline=b"", update="sha256:" + "0" * 64),
        "malformed",
    ),
    "content by a name that is none": (
        lambda reply: replace(reply, inline=b"", update="../../x"),
        "malformed",
    ),
    "oversized": (lambda reply: replace(reply, inline=b"\x00" * (INLINE_LIMIT_BYTES + 1)), "malformed"),
    "about another version": (lambda reply: replace(reply, base_version=99), "base_version"),
    "another node's": (lambda reply: replace(reply, node="n5"), "foreign_node"),
    "a foreign node": (lambda reply: replace(reply, node="stranger"), "foreign_node"),
    "an invented instruction": (lambda reply: replace(reply, instruction_id="f" * 32), "unknown_instruction"),
    "an error with a long text": (lambda reply: replace(reply, error="x" * 100_000), "node_error"),
}


def outcome_of(place: Any, story: Callable[..., None], fleet: Callable[[], Any], spec: RunSpec) -> RunReport:
    """The report of one run to its end."""
    reports: list[RunReport] = []

    async def run() -> None:
        async with place.open(fleet()) as service:
            await service.start(spec)
            await service.wait(spec.run_id)
            reports.append(await service.show(spec.run_id))

    story(run())
    return reports[0]


@pytest.mark.parametrize("name", POISON)
def test_one_bad_of_seven_never_ends_a_run(
    name: str, place: Callable[[int], Any], story: Callable[..., None]
) -> None:
    here = place(7)
    change, code = POISON[name]
    spec = replace(SPEC, rounds=2, deadline_s=0.5)

    def bad(instruction: Instruction) -> Reply:
        return change(here.honest(instruction))

    report = outcome_of(here, story, lambda: here.fleet(n6=bad), spec)

    assert report.run.state is RunState.DONE
    assert [v.version for v in report.versions] == [0, 1, 2]
    assert code in {refusal.code for refusal in report.refusals}, report.refusals
    offender = {"another node's": "n5", "a foreign node": "stranger"}.get(name, "n6")
    assert {refusal.node for refusal in report.refusals} == {offender}
    merged = {entry.instruction.node for entry in report.entries if entry.counted_in}
    assert merged == {f"n{n}" for n in range(6)}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"error": "out of memory"}, "node_error"),
        ({"error": "superseded"}, "superseded"),
        ({"inline": b"\x00garbage"}, "malformed"),
        ({"inline": b"x", "base_version": 7}, "base_version"),
    ],
)
def test_a_run_whose_nodes_all_fail_says_what_its_rows_say(
    fields: dict[str, Any], code: str, place: Callable[[int], Any], story: Callable[..., None]
) -> None:
    here = place(2)

    def fails(instruction: Instruction) -> Reply:
        return replace(here.honest(instruction), **{"inline": b"", **fields})

    report = outcome_of(here, story, lambda: here.fleet(n0=fails, n1=fails), replace(SPEC, quorum=2))

    assert report.run.state is RunState.FAILED
    assert report.run.reason == f"version 1 has 0 usable replies, 2 are needed, 2 refused ({code})"
    assert {entry.code for entry in report.entries} == {code}


def test_a_replay_of_an_old_reply_is_refused(place: Callable[[int], Any], story: Callable[..., None]) -> None:
    here = place(7)
    first: list[Reply] = []

    def replays(instruction: Instruction) -> Reply:
        if not first:
            first.append(here.honest(instruction))
        return first[0]

    report = outcome_of(here, story, lambda: here.fleet(n6=replays), replace(SPEC, rounds=3, deadline_s=0.5))

    assert report.run.state is RunState.DONE
    assert {(r.node, r.code) for r in report.refusals} == {("n6", "duplicate")}
    assert sum(e.counted_in is not None for e in report.entries if e.instruction.node == "n6") == 1


def test_the_result_with_a_bad_node_is_near_that_without_it(
    place: Callable[[int], Any], story: Callable[..., None]
) -> None:
    here = place(7)
    change, _ = POISON["times minus fifty"]

    def silent(instruction: Instruction) -> Reply:
        return replace(here.honest(instruction), inline=b"", error="out of order")

    clean = outcome_of(here, story, lambda: here.fleet(n6=silent), replace(SPEC, run_id="clean"))
    poisoned = outcome_of(
        here, story, lambda: here.fleet(n6=lambda i: change(here.honest(i))), replace(SPEC, run_id="bad")
    )

    assert poisoned.versions[-1].model == clean.versions[-1].model


def test_an_update_over_the_limit_is_refused_before_it_is_read(
    place: Callable[[int], Any], story: Callable[..., None]
) -> None:
    here = place(3)
    large = here.blobs.put_bytes(bytes(PACKET_LIMIT_BYTES + 1))

    def oversized(instruction: Instruction) -> Reply:
        return replace(here.honest(instruction), inline=b"", update=large)

    report = outcome_of(here, story, lambda: here.fleet(n2=oversized), replace(SPEC, rounds=1, quorum=2))

    assert report.run.state is RunState.DONE
    [refusal] = report.refusals
    assert (refusal.node, refusal.code) == ("n2", "malformed")
    assert f"{PACKET_LIMIT_BYTES + 1} bytes" in refusal.reason


def test_the_limits_of_a_reply_hold_on_its_way_too() -> None:
    encoded = msgspec.msgpack.encode(Reply(instruction_id="a", run_id="r", node="n", base_version=0))

    assert msgspec.msgpack.decode(encoded, type=Reply).inline == b""
