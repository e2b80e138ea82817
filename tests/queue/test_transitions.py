"""The transition table is written three times (code, SQL, documents): they must say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skerry.errors import InvalidTransition
from skerry.sql import load_schema
from task_queue.queries import PACKAGE, statements
from task_queue.rows import stored_state
from task_queue.task import FINAL, TRANSITIONS, Event, State, check_transition
from task_queue.testing import QueueDriver, memory_opener, sqlite_opener

ROOT = Path(__file__).resolve().parents[2]
IN_MEMORY = {Event.CLAIMED, Event.RELEASED}


def states_met(event: Event) -> set[State]:
    return {stored_state(state) for state, of in TRANSITIONS if of is event}


def listed(sql: str) -> set[State]:
    return {State(name) for name in re.findall(r"'(\w+)'", sql)}


@pytest.mark.parametrize("event", [event for event in Event if event not in IN_MEMORY])
def test_each_statement_meets_the_states_of_the_table(event: Event) -> None:
    statement = statements()[f"on_{event.value}"]

    met = re.search(r"WHERE seq = :seq AND state IN \(([^)]*)\)$", statement)

    assert met is not None
    assert listed(met.group(1)) == states_met(event)


def test_there_is_no_statement_for_an_event_that_the_table_does_not_hold() -> None:
    named = {name.removeprefix("on_") for name in statements() if name.startswith("on_")}

    assert named == {event.value for event in Event if event not in IN_MEMORY}


def test_the_schema_allows_the_stored_states_and_demands_an_end_for_the_final_ones() -> None:
    schema = [script for script in load_schema(PACKAGE) if "CREATE TABLE task (" in script][-1]

    allowed = re.search(r"CHECK \(\s*(state = [^)]*)\)", schema)
    ended = re.search(r"\(ended_on_s IS NOT NULL\) = \(([^)]*)\)", schema)

    assert allowed is not None
    assert ended is not None
    assert listed(allowed.group(1)) == set(State) - {State.LEASED}
    assert listed(ended.group(1)) == FINAL


def test_the_chart_in_the_documents_draws_the_table() -> None:
    page = (ROOT / "docs/reference/task-states.md").read_text(encoding="utf-8")

    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", page, re.MULTILINE)
    edges = {
        (State(start), event, State(end))
        for start, end, names in drawn
        if start != "[*]"
        for event in map(Event, names.split(", "))
    }

    assert edges == {(start, event, end) for (start, event), ends in TRANSITIONS.items() for end in ends}


def test_the_documents_explain_each_state() -> None:
    page = (ROOT / "docs/reference/task-states.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {state.value for state in State}


@pytest.mark.parametrize("state", sorted(FINAL))
def test_what_has_ended_leaves_its_state_by_an_explicit_wish_only(state: State) -> None:
    events = {event for start, event in TRANSITIONS if start is state}

    assert events <= {Event.REPLAYED, Event.PLACED}
    assert state not in (State.DONE, State.EXPIRED, State.UNKNOWN) or not events


def test_every_open_state_has_a_way_to_an_end() -> None:
    reached = set(FINAL)
    for _ in State:
        reached |= {start for (start, _), ends in TRANSITIONS.items() if ends & reached}

    assert reached == set(State)


def test_an_illegal_transition_names_state_and_event() -> None:
    with pytest.raises(InvalidTransition, match="started is not allowed in state done"):
        check_transition(State.DONE, Event.STARTED, State.RUNNING)


@pytest.mark.parametrize("event", [event for event in Event if event not in IN_MEMORY])
@pytest.mark.parametrize("adapter", ["sqlite", "memory"])
def test_the_tables_refuse_a_transition_from_another_stored_state(
    adapter: str, event: Event, tmp_path: Path
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path) if adapter == "sqlite" else memory_opener())
    task_id, fence = q.run()
    q.finish(task_id, fence)
    tables = q.store._tables  # type: ignore[attr-defined]  # below the rules, which would refuse first
    row = tables.task(task_id)

    with pytest.raises(InvalidTransition, match=f"{event} is not allowed in state done"):
        tables.move(row, event, frozenset())
    q.store.close()


def test_no_task_that_has_not_ended_is_deleted_whoever_asks(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    task_id = q.enqueue()
    tables = q.store._tables  # type: ignore[attr-defined]  # no rule asks for it

    tables.delete_task(tables.task(task_id))

    assert q.drain() == [task_id]
    q.store.close()
