"""One suite for every round ledger: what the port promises holds in memory and in SQLite alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from federation.rounds.ledger import RoundLedger, Version
from federation.rounds.memory import MemoryTables
from federation.rounds.rules import RuledLedger
from federation.rounds.sqlite import sqlite_ledger
from federation.values import (
    FINAL_RUN_STATES,
    RUN_TRANSITIONS,
    Accepted,
    Instruction,
    Refused,
    Reply,
    ReplyState,
    RunSpec,
    RunState,
    instruction_id,
)
from skerry.clock import Instant
from skerry.errors import FederationError, InvalidTransition

NOW = Instant("boot-1", 100.0)
SPEC = RunSpec(run_id="r1", trainer="toy", patience_s=60.0)
BASE = Version(run_id="r1", version=0, model="")


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], RoundLedger]]:
    """A way to open the same ledger again, as a restart does."""
    tables = MemoryTables()
    opened: list[RoundLedger] = []

    def again() -> RoundLedger:
        if opened:
            opened[-1].close()
        memory = request.param == "memory"
        opened.append(RuledLedger(tables) if memory else sqlite_ledger(tmp_path / "rounds.db"))
        return opened[-1]

    yield again
    if opened:
        opened[-1].close()


@pytest.fixture
def ledger(reopen: Callable[[], RoundLedger]) -> RoundLedger:
    """A ledger with one run."""
    ledger = reopen()
    ledger.create(SPEC, BASE, wall_s=1e9)
    return ledger


def asked(node: str = "n1", version: int = 0, run_id: str = "r1") -> Instruction:
    """An instruction of the run."""
    return Instruction(
        id=instruction_id(run_id, version, node),
        run_id=run_id,
        version=version,
        node=node,
        model="sha256:" + "0" * 64,
        trainer="toy",
        config={"rate": 0.5},
        ttl_s=60.0,
    )


def reply_to(instruction: Instruction, **fields: object) -> Reply:
    """A reply to it."""
    known = Reply(
        instruction_id=instruction.id,
        run_id=instruction.run_id,
        node=instruction.node,
        base_version=instruction.version,
        num_examples=5,
        inline=b"packet",
        metrics={"loss": 0.5},
    )
    return replace(known, **fields)


def version(number: int, **fields: object) -> Version:
    """A version of the run."""
    known = Version(run_id="r1", version=number, model=f"sha256:{number:064x}", state=b"s", wall_s=2e9)
    return replace(known, **fields)


def states(ledger: RoundLedger) -> dict[tuple[str, int], ReplyState]:
    """The state of every entry, by node and version."""
    return {(e.instruction.node, e.instruction.version): e.state for e in ledger.entries("r1")}


def move_through(ledger: RoundLedger, *path: RunState) -> None:
    """Move the run along."""
    for state in path:
        ledger.move("r1", state, now=NOW)


def test_a_run_is_there_after_a_restart(ledger: RoundLedger, reopen: Callable[[], RoundLedger]) -> None:
    ledger.move("r1", RunState.WAITING, now=NOW, reason="1 node is eligible, 2 are needed")

    again = reopen()

    run = again.run("r1")
    assert run is not None
    assert (run.spec, run.state, run.reason) == (SPEC, RunState.WAITING, "1 node is eligible, 2 are needed")
    assert [v.version for v in again.versions("r1")] == [0]


def test_a_name_is_taken_once(ledger: RoundLedger) -> None:
    with pytest.raises(FederationError, match="r1 already"):
        ledger.create(SPEC, BASE, wall_s=1e9)


def test_runs_are_listed_newest_first(ledger: RoundLedger) -> None:
    ledger.create(replace(SPEC, run_id="a2"), BASE, wall_s=1e9)

    assert [run.spec.run_id for run in ledger.runs()] == ["a2", "r1"]


@pytest.mark.parametrize("last", sorted(FINAL_RUN_STATES))
@pytest.mark.parametrize("after", list(RunState))
def test_a_final_run_stays_as_it_is(ledger: RoundLedger, last: RunState, after: RunState) -> None:
    move_through(ledger, RunState.RUNNING, last)

    with pytest.raises(InvalidTransition):
        ledger.move("r1", after, now=NOW)


def test_every_state_has_a_way_out_or_is_final() -> None:
    assert {state for state in RunState if not RUN_TRANSITIONS[state]} == FINAL_RUN_STATES
    assert all(RunState.CANCELLED in RUN_TRANSITIONS[s] for s in RunState if s not in FINAL_RUN_STATES)


def test_patience_runs_while_the_run_waits_and_only_then(ledger: RoundLedger) -> None:
    ledger.move("r1", RunState.WAITING, now=NOW)
    ledger.move("r1", RunState.RUNNING, now=NOW.plus(20.0))
    ledger.move("r1", RunState.WAITING, now=NOW.plus(500.0))

    run = ledger.move("r1", RunState.WAITING, now=NOW.plus(510.0), reason="still")

    assert run.patience_left_s == 30.0


def test_patience_is_not_used_up_by_time_without_power(ledger: RoundLedger) -> None:
    ledger.move("r1", RunState.WAITING, now=NOW)

    run = ledger.move("r1", RunState.WAITING, now=Instant("boot-2", 5.0))

    assert run.patience_left_s == 60.0


def test_pushing_twice_asks_once(ledger: RoundLedger) -> None:
    first = ledger.push([asked()], NOW)

    second = ledger.push([asked()], NOW.plus(9.0))

    assert first == second
    assert len(ledger.entries("r1")) == 1


def test_a_newer_instruction_supersedes_the_nodes_older_open_one(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)
    ledger.receive([reply_to(asked("n2"))], 2e9)
    ledger.commit(version(1), {asked("n2").id: Accepted(weight=5.0)})

    ledger.push([asked("n1", 1), asked("n2", 1)], NOW)

    assert states(ledger) == {
        ("n1", 0): ReplyState.SUPERSEDED,
        ("n2", 0): ReplyState.ACCEPTED,
        ("n1", 1): ReplyState.OPEN,
        ("n2", 1): ReplyState.OPEN,
    }


def test_a_reply_is_stored_once(ledger: RoundLedger, reopen: Callable[[], RoundLedger]) -> None:
    ledger.push([asked()], NOW)

    outcomes = ledger.receive([reply_to(asked()), reply_to(asked(), inline=b"other")], 2e9)

    assert outcomes[0] is None
    assert isinstance(outcomes[1], Refused)
    assert outcomes[1].code == "duplicate"
    again = reopen()
    assert again.payload(asked().id) == b"packet"
    assert [(r.node, r.code, r.count) for r in again.refusals("r1")] == [("n1", "duplicate", 1)]


def test_each_reply_is_stored_with_its_own_packet(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)

    ledger.receive([reply_to(asked("n1"), inline=b"one"), reply_to(asked("n2"), inline=b"two")], 2e9)

    assert [ledger.payload(asked(node).id) for node in ("n1", "n2")] == [b"one", b"two"]


def test_a_foreign_node_answers_nothing(ledger: RoundLedger) -> None:
    ledger.push([asked("n1")], NOW)

    [outcome] = ledger.receive([reply_to(asked("n1"), node="n2")], 2e9)

    assert isinstance(outcome, Refused)
    assert outcome.code == "foreign_node"
    assert states(ledger) == {("n1", 0): ReplyState.OPEN}
    assert [(r.node, r.code) for r in ledger.refusals("r1")] == [("n2", "foreign_node")]


def test_invented_ids_are_counted_by_node_and_take_no_room(ledger: RoundLedger) -> None:
    invented = [reply_to(asked(), instruction_id=f"{n:032x}") for n in range(50)]

    outcomes = ledger.receive(invented, 2e9)

    assert {o.code for o in outcomes if o} == {"unknown_instruction"}
    assert [(r.node, r.count) for r in ledger.refusals("r1")] == [("n1", 50)]


def test_a_reply_to_an_unknown_run_is_counted_without_one(ledger: RoundLedger) -> None:
    ledger.receive([reply_to(asked(), run_id="other")], 2e9)

    assert ledger.refusals("other") == []
    assert [r.code for r in ledger.refusals("")] == ["unknown_instruction"]


def test_a_version_and_its_verdicts_are_one_commit(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)
    ledger.receive([reply_to(asked("n1")), reply_to(asked("n2"))], 2e9)

    verdicts = {asked("n1").id: Accepted(weight=5.0), asked("n2").id: Refused(code="norm", reason="far")}
    assert ledger.commit(version(1), verdicts)

    one, two = ledger.entries("r1")
    assert (one.state, one.counted_in, one.weight) == (ReplyState.ACCEPTED, 1, 5.0)
    assert (two.state, two.code, two.reason) == (ReplyState.REFUSED, "norm", "far")
    assert ledger.payload(asked("n1").id) == b""
    made = ledger.versions("r1")[-1]
    assert (made.version, made.accepted, made.refused, made.state) == (1, 1, 1, b"s")
    assert [(r.node, r.code) for r in ledger.refusals("r1")] == [("n2", "norm")]


def test_the_same_version_again_changes_nothing(ledger: RoundLedger) -> None:
    ledger.push([asked()], NOW)
    ledger.receive([reply_to(asked())], 2e9)
    ledger.commit(version(1), {asked().id: Accepted(weight=5.0)})

    assert not ledger.commit(version(1), {asked().id: Accepted(weight=9.0)})
    assert ledger.entries("r1")[0].weight == 5.0


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_version_must_follow_the_newest_one(ledger: RoundLedger, number: int) -> None:
    with pytest.raises(FederationError, match="does not follow"):
        ledger.commit(version(number), {})


def test_a_reply_cannot_count_in_two_versions(ledger: RoundLedger) -> None:
    ledger.push([asked()], NOW)
    ledger.receive([reply_to(asked())], 2e9)
    ledger.commit(version(1), {asked().id: Accepted(weight=5.0)})

    with pytest.raises(FederationError, match="its verdict already"):
        ledger.commit(version(2), {asked().id: Accepted(weight=5.0)})

    run = ledger.run("r1")
    assert run is not None
    assert run.version == 1
    assert ledger.entries("r1")[0].counted_in == 1


def test_a_verdict_without_a_reply_undoes_the_whole_commit(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)
    ledger.receive([reply_to(asked("n1"))], 2e9)

    with pytest.raises(FederationError, match="no reply"):
        ledger.commit(version(1), {a.id: Accepted(weight=1.0) for a in (asked("n1"), asked("n2"))})

    assert states(ledger)["n1", 0] is ReplyState.RECEIVED
    assert len(ledger.versions("r1")) == 1


def test_a_reply_after_its_version_closed_is_late_and_can_still_count(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)
    ledger.receive([reply_to(asked("n1"))], 2e9)
    ledger.commit(version(1), {asked("n1").id: Accepted(weight=5.0)})

    ledger.receive([reply_to(asked("n2"))], 2e9)

    late = ledger.entries("r1", ids=[asked("n2").id])[0]
    assert (late.state, late.is_late) == (ReplyState.LATE, True)
    ledger.commit(version(2), {asked("n2").id: Accepted(weight=3.5, staleness=1)})
    counted = ledger.entries("r1", ids=[asked("n2").id])[0]
    assert (counted.counted_in, counted.staleness, counted.is_late) == (2, 1, True)


def test_a_stored_reply_that_a_version_left_out_becomes_late(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)
    ledger.receive([reply_to(asked("n1")), reply_to(asked("n2"))], 2e9)

    ledger.commit(version(1), {asked("n1").id: Accepted(weight=5.0)})

    assert states(ledger)["n2", 0] is ReplyState.LATE


def test_a_superseded_instruction_may_still_be_answered(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)
    ledger.receive([reply_to(asked("n2"))], 2e9)
    ledger.commit(version(1), {asked("n2").id: Accepted(weight=5.0)})
    ledger.push([asked("n1", 1)], NOW)

    assert ledger.receive([reply_to(asked("n1", 0))], 2e9) == [None]

    assert states(ledger)["n1", 0] is ReplyState.LATE


@pytest.mark.parametrize(("error", "code"), [("superseded", "superseded"), ("out of memory", "node_error")])
def test_a_nodes_failure_is_stored_as_its_refusal(ledger: RoundLedger, error: str, code: str) -> None:
    ledger.push([asked()], NOW)

    assert ledger.receive([reply_to(asked(), error=error, inline=b"")], 2e9) == [None]

    [entry] = ledger.entries("r1")
    assert (entry.state, entry.code) == (ReplyState.REFUSED, code)
    assert [(r.node, r.code) for r in ledger.refusals("r1")] == [("n1", code)]


def test_the_end_of_a_run_closes_what_is_open_and_refuses_what_comes(ledger: RoundLedger) -> None:
    ledger.push([asked("n1"), asked("n2")], NOW)
    ledger.receive([reply_to(asked("n2"))], 2e9)
    move_through(ledger, RunState.RUNNING, RunState.CANCELLED)

    [outcome] = ledger.receive([reply_to(asked("n1"))], 2e9)

    assert isinstance(outcome, Refused)
    assert outcome.code == "run_over"
    assert {e.code for e in ledger.entries("r1")} == {"run_over"}
    assert ledger.payload(asked("n2").id) == b""
    with pytest.raises(FederationError, match="cancelled"):
        ledger.push([asked("n3")], NOW)
    with pytest.raises(FederationError, match="does not follow"):
        ledger.commit(version(1), {})


def test_refusals_outside_a_version_are_kept(ledger: RoundLedger) -> None:
    ledger.push([asked()], NOW)
    ledger.receive([reply_to(asked())], 2e9)

    ledger.judge("r1", {asked().id: Refused(code="not_finite", reason="NaN")})

    assert ledger.entries("r1")[0].code == "not_finite"


def test_entries_are_found_by_state_and_id(ledger: RoundLedger) -> None:
    ledger.push([asked("n2"), asked("n1")], NOW)
    ledger.receive([reply_to(asked("n2"))], 2e9)

    assert [e.instruction.node for e in ledger.entries("r1")] == ["n1", "n2"]
    assert [e.instruction.node for e in ledger.entries("r1", states=[ReplyState.OPEN])] == ["n1"]
    assert [e.instruction.node for e in ledger.entries("r1", ids=[asked("n2").id, "f" * 32])] == ["n2"]
    assert ledger.entries("r1", ids=[asked("n2").id], states=[ReplyState.OPEN]) == []


def test_what_is_not_there_is_said_to_be_unknown(ledger: RoundLedger) -> None:
    assert ledger.run("other") is None
    with pytest.raises(FederationError, match="no run other"):
        ledger.move("other", RunState.RUNNING, now=NOW)
    with pytest.raises(FederationError, match="no run other"):
        ledger.push([asked(run_id="other")], NOW)


def test_the_database_itself_keeps_a_verdict(tmp_path: Path) -> None:
    import apsw

    ledger = sqlite_ledger(tmp_path / "rounds.db")
    ledger.create(SPEC, BASE, wall_s=1e9)
    ledger.push([asked()], NOW)
    ledger.receive([reply_to(asked())], 2e9)
    ledger.commit(version(1), {asked().id: Accepted(weight=1.0)})

    with pytest.raises(apsw.ConstraintError, match="does not change"):
        apsw.Connection(str(tmp_path / "rounds.db")).execute("UPDATE entries SET state = 'open'")
    ledger.close()
