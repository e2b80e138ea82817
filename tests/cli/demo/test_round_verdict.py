"""The round demo's verdict finds each thing that must not be, and nothing where all is well."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from policy.features import SCHEMA_HASH
from skerry.cli.demo.round_report import report_of
from skerry.cli.demo.round_verdict import Attempt, Record, find, problems_of, stale_weight
from skerry.cli.demo.round_view import print_loop
from skerry.documents import PolicyStatus
from skerry.policy_documents import NodeProgress, PolicyVersionView, RolloutView
from skerry.policy_manifest import Comparison, EvaluationSummary, Lineage, PolicyManifest
from skerry.round_documents import Participant, RoundPolicy, RoundVersion, RoundView

NODES = ("quay-1", "quay-2", "reef-2")
POLICY = "sha256:" + "a" * 64
CHECKED = Comparison(
    devices=8, scenarios=64, against="min-increase", cost=0.1, other_cost=0.12, ratio=0.85, low=0.8,
    high=0.9, wins=0.7,
)  # fmt: skip


def a_reply(node: str, version: int, **fields: object) -> Participant:
    values = {
        "state": "accepted", "counted_in": version + 1, "examples": 100, "weight": 100.0, "metrics": {},
    }  # fmt: skip
    return Participant(node=node, version=version, **{**values, **fields})  # type: ignore[arg-type]


LATE = a_reply("reef-2", 1, is_late=True, counted_in=3, staleness=1, weight=stale_weight(100, 1), reason="")


def a_run(version: int, *participants: Participant, state: str = "running") -> RoundView:
    merged = [one.counted_in for one in participants if one.state == "accepted"]
    return RoundView(
        name="round-1", state=state, reason="", trainer="ppo", strategy="synchronous", rounds=3,
        version=version, quorum=2, deadline_s=60.0, patience_left_s=1.0, base_policy="",
        created_wall_s=1.0, ended_wall_s=0.0, participants=participants,
        versions=tuple(
            RoundVersion(
                version=n, model=f"m{n}", accepted=merged.count(n), refused=0, metrics={"reward": 1.0},
                wall_s=1.0,
            )
            for n in range(version + 1)
        ),
        policy=RoundPolicy(state="offered", policy=POLICY),
    )  # fmt: skip


def a_rollout(state: str, *nodes: NodeProgress) -> RolloutView:
    return RolloutView(
        rollout_id="r-1", policy=POLICY, version="a" * 12, previous="", state=state, reason="because",
        canaries=("quay-2",), started_by="operator", started_wall_s=10.0, ended_wall_s=30.0, nodes=nodes,
    )  # fmt: skip


FIRST = tuple(a_reply(node, 0) for node in NODES)
SECOND = tuple(a_reply(node, 1) for node in NODES[:2])
OPEN = {"counted_in": None, "weight": 0.0}
BEFORE = a_run(
    2, *FIRST, *SECOND, replace(LATE, state="late", **OPEN),
    *(a_reply(node, 2, state="open", **OPEN) for node in NODES),
)  # fmt: skip
END = a_run(3, *FIRST, *SECOND, LATE, *(a_reply(node, 2) for node in NODES), state="done")
VERSION = PolicyVersionView(
    policy=POLICY, version="a" * 12, state="ready", reason="", added_by="run round-1", added_wall_s=1.0,
    is_current=True, checked=(CHECKED,),
    manifest=PolicyManifest(
        file_hash=POLICY, file_bytes=1, schema_hash=SCHEMA_HASH, lineage=Lineage(run_id="round-1"),
        evaluation=EvaluationSummary(), golden=(),
    ),
)  # fmt: skip
FAILED = NodeProgress(
    node="quay-2", progress="failed", state="rolled_back", reason="worse",
    evidence={"candidate_decisions": 9.0, "candidate_cost": 0.2, "fallback_cost": 0.1},
)  # fmt: skip
WORSE = Attempt(
    name="worse", is_refused=False, reason="worse", judged=VERSION,
    rollout=a_rollout("rolled_back", FAILED), switched_off="whether choices are plausible",
)  # fmt: skip
NAN = Attempt(name="not a number", is_refused=True, reason="weights w are not all numbers")
UNSIGNED = Attempt(name="unsigned", is_refused=True, reason="the manifest is not signed")
STATUS = PolicyStatus(
    policy=POLICY, version="a" * 12, state="full", fallback="min-increase", is_loaded=True,
    decisions={"candidate": 5, "fallback": 3},
)  # fmt: skip
GOOD = Record(
    base=None, run=END, before_kill=BEFORE, after_kill=BEFORE, version=VERSION,
    rollout=a_rollout("done", NodeProgress(node="quay-2", progress="passed", state="full", evidence={})),
    attempts=(NAN, UNSIGNED, WORSE), nodes=dict.fromkeys(NODES, STATUS),
)  # fmt: skip


def problems(record: Record) -> str:
    return "\n".join(problems_of(record, cut_off="reef-2", canary="quay-2"))


def without(run: RoundView, node: str, version: int) -> RoundView:
    kept = tuple(p for p in run.participants if (p.node, p.version) != (node, version))
    return replace(run, participants=kept)


def with_late(**fields: object) -> RoundView:
    late = replace(LATE, **fields)
    return replace(END, participants=(*without(END, "reef-2", 1).participants, late))


def test_a_record_of_a_good_run_has_no_problem() -> None:
    assert problems(GOOD) == ""


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda r: replace(r, run=replace(END, state="failed")), "the run is failed at version 3 of 3"),
        (lambda r: replace(r, run=replace(END, participants=(*END.participants, FIRST[0]))), "asked 2 times"),
        (lambda r: replace(r, run=without(END, "quay-1", 0)), "says that 3 replies were merged, 2 are"),
        (lambda r: replace(r, run=without(END, "reef-2", 1)), "was not taken late: never asked"),
        (lambda r: replace(r, run=with_late(state="refused")), "was not taken late: refused"),
        (lambda r: replace(r, run=with_late(weight=100.0)), "has the weight 100"),
        (lambda r: replace(r, run=with_late(counted_in=2)), "is in version 2 with staleness 1"),
        (lambda r: replace(r, after_kill=replace(BEFORE, version=1)), "resumed with version 1, it had 2"),
        (lambda r: replace(r, before_kill=replace(BEFORE, state="done")), "after the run had ended"),
        (lambda r: replace(r, run=without(END, "quay-2", 1)), "was kept before the kill, and is gone"),
        (lambda r: replace(r, version=replace(VERSION, state="refused")), "the run's policy was refused"),
        (lambda r: replace(r, version=replace(VERSION, checked=())), "evaluated the run's policy on nothing"),
        (lambda r: replace(r, rollout=replace(r.rollout, state="rolled_back")), "the rollout is rolled_back"),
        (lambda r: replace(r, nodes={"quay-1": replace(STATUS, policy="")}), "quay-1 does not run"),
        (lambda r: replace(r, attempts=(replace(NAN, is_refused=False),)), "not a number was taken"),
        (
            lambda r: replace(r, attempts=(replace(WORSE, rollout=a_rollout("done")),)),
            "not rolled back by a gate",
        ),
        (
            lambda r: replace(r, attempts=(replace(WORSE, rollout=a_rollout("rolled_back")),)),
            "without evidence",
        ),
    ],
)
def test_each_thing_that_must_not_be_is_said(spoil: Callable[[Record], Record], words: str) -> None:
    assert words in problems(spoil(GOOD))


def test_a_version_that_changed_over_the_kill_is_said() -> None:
    other = tuple(replace(v, model="other") if v.version == 2 else v for v in END.versions)

    assert "version 2 is another one than before the kill" in problems(
        replace(GOOD, run=replace(END, versions=other))
    )


def test_a_late_reply_stands_under_the_version_that_took_it() -> None:
    rounds = report_of(GOOD)["rounds"]

    assert [one["version"] for one in rounds] == [1, 2, 3]
    assert rounds[1]["came_too_late"] == ["reef-2"]
    late = [p for p in rounds[2]["participants"] if p["is_late"]]
    assert [(p["node"], p["trained_from"], p["staleness"]) for p in late] == [("reef-2", 1, 1)]
    assert late[0]["weight"] == pytest.approx(70.711)


def test_the_tables_name_every_policy_and_what_stopped_it() -> None:
    stream = io.StringIO()
    print_loop(stream, report_of(GOOD))
    printed = " ".join(stream.getvalue().split())

    for words in ("late by 1", "not a number", "not signed", "rolled_back", "resumed at version 2", "short"):
        assert words in printed


def test_a_check_that_was_switched_off_is_said_in_the_document_and_in_the_table() -> None:
    stream = io.StringIO()
    document = report_of(GOOD)
    print_loop(stream, document)
    printed = " ".join(stream.getvalue().replace("│", " ").split())

    assert [one["switched_off"] for one in document["bad_policies"]] == ["", "", WORSE.switched_off]
    assert printed.count("a check is off") == 1
    assert "of the worse policy the gate did not ask whether choices are plausible" in printed


def test_a_reply_is_found_by_node_and_version() -> None:
    assert find(END, "reef-2", version=1) == LATE
    assert find(END, "nobody", version=1) is None
