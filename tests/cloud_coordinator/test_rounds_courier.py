"""Instructions and answers between the round ledger and model nodes, with outages and crashes, in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cloud_coordinator import rounds_inbox
from cloud_coordinator.core.actions import RepliesKept
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.core.events import CommandsGiven, NodeRevoked
from cloud_coordinator.rounds_courier import Commands, LogCourier, RegisterRoster
from cloud_coordinator.testing import ModelFleet, ModelNode
from federation.rounds.ledger import RoundLedger, Version
from federation.rounds.memory import memory_ledger
from federation.values import CohortRule, Instruction, ReplyState, RunSpec, instruction_id
from skerry.errors import StorageFailed
from skerry.messages import (
    FederationOver,
    FederationReply,
    FederationRequest,
    Lane,
)

replace = msgspec.structs.replace


class Story:
    """A coordinator with its round ledger; nodes answer when they are told to."""

    def __init__(self) -> None:
        self.fleet = ModelFleet()
        self.rounds: RoundLedger = memory_ledger()
        self.courier = LogCourier(self.tell)
        spec = RunSpec(run_id="r1", trainer="null")
        self.rounds.create(spec, Version(run_id="r1", version=0, model=""), 0.0)

    def tell(self, commands: Commands) -> None:
        """Commit commands on the core, as the service's wiring does."""
        self.fleet.give(CommandsGiven(commands=tuple(commands), lane=Lane.BACKLOG))
        self.fleet.settle()

    def ask(self, *nodes: str, version: int = 0) -> list[Instruction]:
        """Push instructions: ledger first, then the courier."""
        asked = [
            Instruction(id=instruction_id("r1", version, node), run_id="r1", version=version, node=node,
                        model="", trainer="null", config={}, ttl_s=1000.0)
            for node in nodes
        ]  # fmt: skip
        self.rounds.push(asked, self.fleet.clock.now())
        self.courier.send(asked)
        return asked

    def answer(self, node: ModelNode, request: FederationRequest, **fields: Any) -> None:
        """Have a node answer."""
        said = FederationReply(
            instruction_id=request.instruction_id,
            run_id=request.run_id,
            version=request.version,
            **{"num_examples": 3, "inline": b"packet", "metrics": {"loss": 0.5}, **fields},
        )
        node.say(said, Lane.BACKLOG)

    def take(self, *, crash_between: bool = False) -> list[Any]:
        """Take the letters into the round ledger; a crash leaves them where they are."""
        letters = rounds_inbox.waiting(self.fleet.ledger)
        outcomes = self.rounds.receive(list(letters.values()), 1.0)
        if not crash_between:
            rounds_inbox.forget(self.fleet.core, letters)
        return outcomes

    def states(self) -> list[tuple[str, ReplyState]]:
        """Who was asked, and what became of it."""
        return [(entry.instruction.node, entry.state) for entry in self.rounds.entries("r1")]


def requests(node: ModelNode) -> list[FederationRequest]:
    return [row for row in node.heard if isinstance(row, FederationRequest)]


@pytest.fixture
def story() -> Story:
    made = Story()
    for name in ("n1", "n2"):
        made.fleet.add(name)
    return made


def test_an_instruction_reaches_its_node_and_the_answer_the_round_ledger(story: Story) -> None:
    story.ask("n1", "n2")
    for node in story.fleet.nodes.values():
        story.answer(node, requests(node)[0])
    story.fleet.settle()

    assert story.take() == [None, None]
    assert story.states() == [("n1", ReplyState.RECEIVED), ("n2", ReplyState.RECEIVED)]
    assert story.rounds.payload(instruction_id("r1", 0, "n1")) == b"packet"
    assert rounds_inbox.waiting(story.fleet.ledger) == {}


def test_an_instruction_waits_for_a_node_that_is_away(story: Story) -> None:
    story.fleet.cut("n2")
    story.ask("n1", "n2")
    assert requests(story.fleet.nodes["n2"]) == []

    story.fleet.clock.advance(72 * 3600.0)
    story.fleet.restart()
    for name in ("n1", "n2"):
        story.fleet.connect(name)

    assert [request.version for request in requests(story.fleet.nodes["n2"])] == [0]


def test_an_answer_waits_for_the_link(story: Story) -> None:
    story.ask("n1")
    node = story.fleet.nodes["n1"]
    story.fleet.cut("n1")
    story.answer(node, requests(node)[0])
    story.fleet.settle()
    assert story.take() == []

    story.fleet.connect("n1")

    assert story.take() == [None]


def test_an_instruction_sent_twice_is_one(story: Story) -> None:
    asked = story.ask("n1")
    story.courier.send(asked)

    assert len({request.instruction_id for request in requests(story.fleet.nodes["n1"])}) == 1


def test_a_crash_before_the_letter_is_taken_loses_nothing(story: Story) -> None:
    story.ask("n1")
    node = story.fleet.nodes["n1"]
    story.answer(node, requests(node)[0])
    story.fleet.settle()

    story.fleet.restart()

    assert story.take() == [None]
    assert node.outbox[Lane.BACKLOG] == []


def test_a_crash_after_the_round_ledgers_commit_counts_the_answer_once(story: Story) -> None:
    story.ask("n1")
    node = story.fleet.nodes["n1"]
    story.answer(node, requests(node)[0])
    story.fleet.settle()
    assert story.take(crash_between=True) == [None]

    story.fleet.restart()

    assert [refused.code for refused in story.take()] == ["duplicate"]
    assert story.states() == [("n1", ReplyState.RECEIVED)]
    assert story.take() == []


def test_a_crash_before_the_acknowledgement_brings_the_row_again_and_keeps_one_letter(story: Story) -> None:
    story.ask("n1")
    node = story.fleet.nodes["n1"]
    story.answer(node, requests(node)[0])
    rows = tuple(node.outbox[Lane.BACKLOG])
    story.fleet.settle()
    node.outbox[Lane.BACKLOG] = list(rows)  # the acknowledgement was lost with the process

    story.fleet.restart()
    story.fleet.connect("n1")

    assert len(rounds_inbox.waiting(story.fleet.ledger)) == 1


def test_a_second_answer_to_one_instruction_does_not_replace_the_first(story: Story) -> None:
    story.ask("n1")
    node = story.fleet.nodes["n1"]
    story.answer(node, requests(node)[0])
    story.answer(node, requests(node)[0], inline=b"another")
    story.fleet.settle()

    assert story.take() == [None]
    assert story.rounds.payload(instruction_id("r1", 0, "n1")) == b"packet"
    assert story.fleet.counted("duplicates", "federation.reply") == 1


def test_a_node_cannot_answer_for_another(story: Story) -> None:
    story.ask("n1")
    foreign = story.fleet.nodes["n2"]
    story.answer(foreign, requests(story.fleet.nodes["n1"])[0])
    story.fleet.settle()

    assert [refused.code for refused in story.take()] == ["foreign_node"]
    assert story.states() == [("n1", ReplyState.OPEN)]


def test_an_answer_to_nothing_is_set_aside(story: Story) -> None:
    request = FederationRequest(instruction_id="../etc", run_id="r1", version=0, model="", trainer="null")
    story.answer(story.fleet.nodes["n1"], request)
    story.fleet.settle()

    assert story.take() == []
    assert [letter.kind for letter in story.fleet.ledger.dead_letters()] == ["federation.reply"]


def test_letters_that_nobody_takes_are_bounded(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_inbox, "LIMIT", 3)
    node = story.fleet.nodes["n1"]
    for n in range(5):
        request = FederationRequest(
            instruction_id=f"{n:032x}", run_id="r1", version=0, model="", trainer="null"
        )
        story.answer(node, request)
    story.fleet.settle()

    assert len(rounds_inbox.waiting(story.fleet.ledger)) == 3
    assert len(story.fleet.ledger.dead_letters()) == 2
    story.take()
    story.answer(node, request)
    story.fleet.settle()
    assert len(rounds_inbox.waiting(story.fleet.ledger)) == 1


def test_a_superseded_instruction_is_closed_by_its_answer(story: Story) -> None:
    story.ask("n1")
    first = requests(story.fleet.nodes["n1"])[0]
    story.rounds.commit(Version(run_id="r1", version=1, model="m"), {})
    story.ask("n1", version=1)
    story.answer(story.fleet.nodes["n1"], first, inline=b"", num_examples=0, error="superseded")
    story.fleet.settle()

    assert story.take() == [None]
    entry = story.rounds.entries("r1")[0]
    assert (entry.state, entry.code) == (ReplyState.REFUSED, "superseded")


def test_the_end_of_a_run_is_told_to_those_who_were_asked(story: Story) -> None:
    story.ask("n1")

    story.courier.withdraw("r1", "cancelled")

    heard = [row for row in story.fleet.nodes["n1"].heard if isinstance(row, FederationOver)]
    assert [(row.run_id, row.reason) for row in heard] == [("r1", "cancelled")]
    assert story.fleet.nodes["n2"].heard == []


def test_a_courier_whose_core_refuses_says_so_and_a_withdrawal_does_not_mind() -> None:
    def refuse(commands: Commands) -> None:
        raise StorageFailed("the disk is full")

    courier = LogCourier(refuse)
    instruction = Instruction(
        id="i", run_id="r1", version=0, node="n1", model="", trainer="null", config={}, ttl_s=1.0
    )

    with pytest.raises(StorageFailed):
        courier.send([instruction])
    courier.withdraw("r1", "over")


def test_the_roster_knows_who_opted_in_who_is_trusted_and_when_it_was_heard(story: Story) -> None:
    node = story.fleet.nodes["n1"]
    node.inventory = replace(node.inventory, can_train=True)
    story.fleet.connect("n1")
    story.fleet.cut("n1")
    story.fleet.pass_time(50.0)
    story.fleet.give(NodeRevoked("n2"))
    ask: Callable[[Callable[[CoordinatorCore], Any]], Any] = lambda job: job(story.fleet.core)  # noqa: E731

    found = {one.name: one for one in RegisterRoster(ask, story.fleet.clock).candidates()}

    assert (found["n1"].has_opted_in, found["n1"].is_trusted) == (True, True)
    assert found["n1"].seen_ago_s == pytest.approx(50.0, abs=1.0)
    assert (found["n2"].has_opted_in, found["n2"].is_trusted) == (False, False)
    assert CohortRule().seen_within_s > 72 * 3600


def test_keeping_a_letter_wakes_the_rounds(story: Story) -> None:
    woken: list[RepliesKept] = []
    perform = story.fleet._perform
    story.fleet._perform = lambda action: (  # type: ignore[method-assign]
        woken.append(action) if isinstance(action, RepliesKept) else perform(action)
    )
    story.ask("n1")
    story.answer(story.fleet.nodes["n1"], requests(story.fleet.nodes["n1"])[0])
    story.fleet.settle()

    assert len(woken) == 1
