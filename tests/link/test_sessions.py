"""Birth, welcome and everything that can be wrong with a session, seen from both sides."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest

from skerry.clock import Instant
from skerry.link.actions import (
    Action,
    Alarm,
    LeasesHeld,
    Quarantine,
    ReadRows,
    Refuse,
    Send,
    SessionClosed,
    SessionOpened,
    StateReported,
    Welcomed,
)
from skerry.link.edge import EdgeLink, Phase
from skerry.link.events import LinkDown, LinkUp, OutboxGrew, Received, RowsRead, StateChanged, Tick
from skerry.link.hub import HubLink
from skerry.link.wire import KINDS
from skerry.messages import Birth, Hint, Lane, Presence, Row, State, StateAck, StreamBatch, Welcome
from skerry.node import Inventory, NodeRecord
from skerry.topics import Leaf

T0 = Instant("boot-1", 1000.0)
A = TypeVar("A")


def a_birth(**fields: Any) -> Birth:
    hardware_id = fields.pop("hardware_id", "hw-1")
    inventory = Inventory(devices=(), cpu_millicores=1000, memory_bytes=1, hardware_id=hardware_id)
    known = {
        "boot_id": "boot-1",
        "session": 1,
        "region": "north",
        "store_epoch": "es",
        "inventory": inventory,
    }
    return Birth(**{**known, **fields})


def a_state(session: int = 1) -> State:
    return State(session=session, queued=0, running=0, outbox=0, free_cpu_millicores=0, free_memory_bytes=0)


def received(body: Any) -> Received:
    return Received(KINDS[type(body)], msgspec.json.encode(body))


def of(kind: type[A], actions: Sequence[Action]) -> list[A]:
    return [action for action in actions if isinstance(action, kind)]


def sent(leaf: Leaf, actions: Sequence[Action]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(a.body) for a in of(Send, actions) if a.leaf == leaf]


def an_edge(*, heads: dict[Lane, int] | None = None, rng: Random | None = None, **fields: Any) -> EdgeLink:
    return EdgeLink(a_birth(**fields), mark_of=lambda e, lane: 0, rng=rng or Random(1), heads=heads)


def a_welcome(**fields: Any) -> Received:
    return received(Welcome(**{"session": 1, "term": 1, "command_epoch": "cs", **fields}))


def a_welcomed_edge(**fields: Any) -> EdgeLink:
    edge = an_edge(**fields)
    edge.handle(LinkUp(), T0)
    edge.handle(a_welcome(), T0)
    assert edge.phase == Phase.WELCOMED
    return edge


def a_hub(record: NodeRecord | None = None, *, heads: dict[Lane, int] | None = None) -> HubLink:
    record = record or NodeRecord(name="north-1", fleet="demo", region="north")
    return HubLink(record, term=3, command_epoch="cs", mark_of=lambda e, lane: 0, heads=heads)


# --- the node's side ----------------------------------------------------------------------------------------


def test_a_birth_is_said_until_it_is_answered_and_streams_wait_for_it() -> None:
    edge = an_edge()
    first = edge.handle(LinkUp(), T0)
    later = [action for s in range(1, 200) for action in edge.handle(Tick(), T0.plus(s))]

    assert len(sent(Leaf.BIRTH, first)) == 1
    assert 3 <= len(sent(Leaf.BIRTH, later)) <= 40
    assert of(ReadRows, edge.handle(OutboxGrew(Lane.LIVE), T0)) == []
    assert of(ReadRows, edge.handle(a_welcome(), T0.plus(200)))


def test_a_welcome_of_another_session_or_an_earlier_birth_is_not_ours() -> None:
    edge = an_edge()
    edge.handle(LinkUp(), T0)

    assert of(Refuse, edge.handle(a_welcome(session=2), T0))
    assert of(Refuse, edge.handle(a_welcome(birth_number=7), T0))
    assert of(Welcomed, edge.handle(a_welcome(birth_number=1), T0))


def test_a_store_restored_from_an_older_copy_sends_nothing_and_alarms() -> None:
    edge = an_edge(heads={Lane.LIVE: 10})
    edge.handle(LinkUp(), T0)

    actions = edge.handle(a_welcome(marks={"live": 11}), T0)

    assert "older copy" in of(Alarm, actions)[0].text
    assert edge.phase == Phase.HELD
    assert of(ReadRows, edge.handle(OutboxGrew(Lane.LIVE, 11), T0)) == []
    assert edge.handle(Tick(), T0.plus(1000)) == []


def test_a_coordinator_that_forgot_rows_it_had_acknowledged_is_reported() -> None:
    edge = an_edge()
    edge.handle(LinkUp(), T0)
    edge.handle(a_welcome(marks={"live": 9}), T0)
    edge.handle(LinkDown(), T0)
    edge.handle(LinkUp(), T0)

    actions = edge.handle(a_welcome(marks={"live": 4}), T0)

    assert "up to 4 only" in of(Alarm, actions)[0].text
    assert [r.after for r in of(ReadRows, actions) if r.lane == Lane.LIVE] == [4]


def test_state_goes_at_its_interval_and_only_the_newest() -> None:
    edge = a_welcomed_edge()

    first = edge.handle(StateChanged(a_state()), T0)
    soon = edge.handle(StateChanged(msgspec.structs.replace(a_state(), queued=1)), T0.plus(1))
    edge.handle(StateChanged(msgspec.structs.replace(a_state(), queued=2)), T0.plus(2))
    due = edge.handle(Tick(), T0.plus(5))

    assert len(sent(Leaf.STATE, first)) == 1
    assert soon == []
    assert [state["queued"] for state in sent(Leaf.STATE, due)] == [2]


def test_a_coordinator_that_does_not_know_the_session_gets_its_birth_at_once() -> None:
    edge = a_welcomed_edge()

    actions = edge.handle(received(Hint(must_be_born=True)), T0.plus(10))

    assert sent(Leaf.BIRTH, actions)[0]["number"] == 2
    assert edge.phase == Phase.ANNOUNCED


def test_a_hint_to_come_later_is_kept_and_ended_by_a_new_connection() -> None:
    edge = a_welcomed_edge()
    edge.handle(received(Hint(retry_after_s=300, reason="busy")), T0)

    quiet = [action for s in range(1, 300) for action in edge.handle(Tick(), T0.plus(s))]
    assert sent(Leaf.BIRTH, quiet) == []
    assert sent(Leaf.BIRTH, edge.handle(Tick(), T0.plus(300)))
    edge.handle(received(Hint(retry_after_s=300)), T0.plus(301))
    edge.handle(LinkDown(), T0.plus(302))
    assert sent(Leaf.BIRTH, edge.handle(LinkUp(), T0.plus(303)))


def test_a_whole_fleet_that_is_asked_for_its_births_says_them_over_the_time_it_is_given() -> None:
    hint = received(Hint(must_be_born=True, spread_s=40))
    born_s = []
    for number in range(40):
        edge = a_welcomed_edge(rng=Random(number))
        assert edge.handle(hint, T0) == []
        for s in range(1, 41):
            told = edge.handle(hint, T0.plus(s)) if s % 5 == 0 else []  # asked again, it keeps its moment
            if sent(Leaf.BIRTH, [*told, *edge.handle(Tick(), T0.plus(s))]):
                born_s.append(s)
                break

    assert len(born_s) == 40
    assert max(born_s.count(s) for s in born_s) <= 5
    assert max(born_s) > 30


def test_a_welcome_ends_a_pause_so_that_the_next_birth_that_is_asked_for_is_said() -> None:
    edge = an_edge()
    edge.handle(LinkUp(), T0)
    edge.handle(received(Hint(must_be_born=True, spread_s=40)), T0.plus(1))  # it crossed with the birth
    edge.handle(a_welcome(), T0.plus(2))

    actions = edge.handle(received(Hint(must_be_born=True)), T0.plus(10))

    assert len(sent(Leaf.BIRTH, actions)) == 1


def test_a_hint_says_why_and_another_boots_is_not_ours() -> None:
    edge = a_welcomed_edge()

    assert edge.handle(received(Hint(reason="busy")), T0) == [Alarm("busy")]
    assert edge.handle(received(Hint(boot_id="boot-2", reason="busy")), T0) == []


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Received("stream.batch", b"{"), "bad_body"),
        (Received("stream.batch", b'{"epoch": 7}'), "bad_body"),
        (Received("stream.batch", b"\xff"), "bad_body"),
        (Received("stream.batch", b"[" * 100_000), "bad_body"),
        (Received("news", b"{}"), "unknown_kind"),
        (received(a_state()), "wrong_direction"),
    ],
)
def test_what_cannot_be_understood_is_counted_and_does_no_harm(event: Received, reason: str) -> None:
    edge, hub = a_welcomed_edge(), a_hub()
    hub.handle(received(a_birth()), T0)

    assert [r.reason for r in of(Refuse, edge.handle(event, T0))] == [reason]
    if reason != "wrong_direction":
        assert [r.reason for r in of(Refuse, hub.handle(event, T0))] == [reason]
    assert edge.phase == Phase.WELCOMED


def test_a_field_from_the_future_is_ignored() -> None:
    edge = an_edge()
    edge.handle(LinkUp(), T0)
    body = msgspec.json.encode({"session": 1, "term": 1, "command_epoch": "cs", "colour": "blue"})

    assert of(Welcomed, edge.handle(Received("welcome", body), T0))


# --- the coordinator's side ---------------------------------------------------------------------------------


def test_a_birth_is_welcomed_with_what_is_held_and_commands_start_where_the_node_stands() -> None:
    hub = a_hub()

    actions = hub.handle(received(a_birth(number=4, command_epoch="cs", marks={"control": 12})), T0)

    assert of(SessionOpened, actions)
    assert sent(Leaf.WELCOME, actions)[0]["birth_number"] == 4
    assert [r.after for r in of(ReadRows, actions) if r.lane == Lane.CONTROL] == [12]


def test_a_node_that_knows_another_command_log_begins_at_the_start_of_this_one() -> None:
    actions = a_hub().handle(received(a_birth(command_epoch="old", marks={"control": 12})), T0)

    assert [r.after for r in of(ReadRows, actions) if r.lane == Lane.CONTROL] == [0]


def test_a_command_log_restored_from_an_older_copy_is_held_back_and_alarms() -> None:
    hub = a_hub(heads={Lane.CONTROL: 5})

    actions = hub.handle(received(a_birth(command_epoch="cs", marks={"control": 12})), T0)

    assert of(Alarm, actions)
    assert of(ReadRows, actions) == []


def test_closing_an_old_session_does_not_touch_the_new_one() -> None:
    hub = a_hub()
    hub.handle(received(a_birth(session=1)), T0)
    hub.handle(received(a_birth(session=2)), T0)

    late = hub.handle(received(Presence(session=1, online=False)), T0)

    assert late == []
    assert hub.is_open
    assert of(StateReported, hub.handle(received(a_state(2)), T0))
    assert of(ReadRows, hub.handle(OutboxGrew(Lane.BACKLOG), T0)) == []  # its read is under way
    assert hub.handle(received(Presence(session=2, online=False)), T0) == [SessionClosed(2)]


def test_an_older_session_is_not_let_in() -> None:
    hub = a_hub()
    hub.handle(received(a_birth(session=2)), T0)

    assert [r.reason for r in of(Refuse, hub.handle(received(a_birth(session=1)), T0))] == ["old_session"]
    assert [r.reason for r in of(Refuse, hub.handle(received(a_state(1)), T0))] == ["old_session"]


@pytest.mark.parametrize(
    ("before", "clone", "says"),
    [
        ([a_birth()], a_birth(session=2, hardware_id="hw-2"), "hardware"),
        ([a_birth()], a_birth(boot_id="boot-2"), "disk was copied"),
        ([a_birth(), a_birth(session=2, boot_id="boot-2")], a_birth(session=3), "a boot came back"),
    ],
)
def test_two_machines_under_one_key_are_quarantined(before: list[Birth], clone: Birth, says: str) -> None:
    hub = a_hub()
    for birth in before:
        assert of(SessionOpened, hub.handle(received(birth), T0))

    actions = hub.handle(received(clone), T0)

    assert says in of(Quarantine, actions)[0].reason
    assert "quarantined" in sent(Leaf.HINT, actions)[0]["reason"]
    assert not hub.is_open
    assert hub.handle(received(before[0]), T0) == [Refuse("quarantined")]
    hub.release(is_moved=True)
    assert of(SessionOpened, hub.handle(received(msgspec.structs.replace(clone, session=9)), T0))


@pytest.mark.parametrize("told", ["hw-2", "network-1"])
def test_a_released_nodes_place_is_kept_for_its_own_machine(told: str) -> None:
    hub = a_hub()
    hub.handle(received(a_birth()), T0)
    another = a_birth(session=2, boot_id="boot-2", hardware_id=told)
    assert of(Quarantine, hub.handle(received(another), T0))

    hub.release()
    assert "hardware" in of(Quarantine, hub.handle(received(another), T0))[0].reason
    hub.release()
    assert of(SessionOpened, hub.handle(received(a_birth(session=2)), T0))


def test_a_quarantine_outlives_the_coordinators_restart() -> None:
    record = NodeRecord(name="north-1", fleet="demo", region="north", status="quarantined")

    actions = a_hub(record).handle(received(a_birth()), T0)

    assert [r.reason for r in of(Refuse, actions)] == ["quarantined"]
    assert "until an operator releases it" in sent(Leaf.HINT, actions)[0]["reason"]


def test_a_reboot_and_a_restart_are_no_clones() -> None:
    hub = a_hub()
    for birth in (a_birth(), a_birth(number=2), a_birth(session=2), a_birth(session=3, boot_id="boot-2")):
        assert of(SessionOpened, hub.handle(received(birth), T0))


def test_a_coordinator_that_restarted_asks_for_the_birth_and_not_too_often() -> None:
    hub = a_hub(NodeRecord(name="north-1", fleet="demo", region="north", session=1, boot_id="boot-1"))
    batch = StreamBatch(epoch="es", lane=Lane.LIVE, after=0, rows=())

    first = hub.handle(received(batch), T0)
    second = hub.handle(received(a_state()), T0.plus(1))
    third = hub.handle(received(Presence(session=1, online=True)), T0.plus(6))

    assert [hint["must_be_born"] for hint in sent(Leaf.HINT, first)] == [True]
    assert sent(Leaf.HINT, second) == []
    assert sent(Leaf.HINT, third)


def test_a_protocol_that_is_not_spoken_is_turned_away_with_the_reason() -> None:
    actions = a_hub().handle(received(a_birth(protocol=2)), T0)

    assert "protocol 2" in sent(Leaf.HINT, actions)[0]["reason"]
    assert of(SessionOpened, actions) == []


# --- leases on a quiet link ---------------------------------------------------------------------------------


def test_every_state_that_is_taken_is_acknowledged() -> None:
    hub = a_hub()
    hub.handle(received(a_birth()), T0)

    actions = hub.handle(received(msgspec.structs.replace(a_state(), number=7)), T0)

    assert of(StateReported, actions)
    assert sent(Leaf.ACK, actions) == [{"session": 1, "number": 7}]


def test_leases_count_from_when_the_state_was_said_however_late_its_answer_comes() -> None:
    edge = an_edge()
    edge.handle(LinkUp(), T0)
    edge.handle(received(Welcome(session=1, term=1, command_epoch="cs")), T0)
    said = [edge.handle(StateChanged(a_state()), T0.plus(at)) for at in (0.0, 5.0, 10.0)]
    numbers = [sent(Leaf.STATE, actions)[0]["number"] for actions in said]

    late = edge.handle(received(StateAck(session=1, number=numbers[1])), T0.plus(60.0))
    again = edge.handle(received(StateAck(session=1, number=numbers[1])), T0.plus(61.0))
    of_another = edge.handle(received(StateAck(session=9, number=numbers[2])), T0.plus(62.0))

    assert of(LeasesHeld, late) == [LeasesHeld(T0.plus(5.0))]
    assert again == []
    assert [r.reason for r in of(Refuse, of_another)] == ["old_session"]


def test_after_a_dead_time_rows_are_sent_again_with_the_first_state_that_is_acknowledged() -> None:
    edge = an_edge()
    edge.handle(LinkUp(), T0)
    edge.handle(received(Welcome(session=1, term=1, command_epoch="cs")), T0)
    row = Row(seq=1, kind="k", body=msgspec.Raw(b"{}"))
    edge.handle(RowsRead(Lane.LIVE, 0, (row,)), T0.plus(1.0))  # lost, and nobody is told
    (said,) = sent(Leaf.STATE, edge.handle(StateChanged(a_state()), T0.plus(7.0)))

    actions = edge.handle(received(StateAck(session=1, number=said["number"])), T0.plus(7.1))

    assert [read.after for read in of(ReadRows, actions) if read.lane is Lane.LIVE] == [0]
