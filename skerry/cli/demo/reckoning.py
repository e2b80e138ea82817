"""Gathers what each side wrote down: answers over HTTP, then the files once all have stopped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.ledger.values import TaskFilter as LedgerFilter
from skerry.cli.demo.fleet import Fleet
from skerry.cli.demo.verdict import Effect, LedgerEntry, NodeEntry, Submission, Verdict, judge
from skerry.cli.demo.workload import Kind
from skerry.client import Client
from skerry.clock import SystemClock
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter

_PAGE = 500


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the agents answered. where: kind → place → how many.  explained: one decision in words."""

    wrong: tuple[str, ...]
    where: dict[str, dict[str, int]]
    placed_across: int
    placement_ms: tuple[float, ...]
    explained: str


def ask_agents(fleet: Fleet, submissions: Sequence[Submission], kinds: dict[str, Kind]) -> Answers:
    """Fetch every outcome from its home and compare it with the answer known beforehand."""
    clients = {name: Client(socket=agent.socket_path) for name, agent in fleet.agents.items()}
    where: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    across: list[Submission] = []
    local: list[Submission] = []
    for entry in submissions:
        view = clients[entry.node].get(entry.task_id)
        outcome = view.outcome
        if view.state != "done" or outcome is None or not kinds[entry.kind].is_right(entry.number, outcome):
            wrong.append(f"{entry.task_id} ({entry.kind}) ended {view.state} without the known answer")
            continue
        where[entry.kind][f"{_label(outcome.device_class)} on {outcome.node}"] += 1
        if view.placed_on:
            across.append(entry)
        elif outcome.device_class != "cpu":
            local.append(entry)  # this node had a choice: its processor could have run it too
    explained = "\n\n".join(clients[e.node].explain(e.task_id).text for e in (*across[:1], *local[-1:]))
    trips = sorted(ms for client in clients.values() for ms in client.node().placement_ms)
    for client in clients.values():
        client.close()
    return Answers(
        wrong=tuple(wrong),
        where={kind: dict(counts) for kind, counts in sorted(where.items())},
        placed_across=len(across),
        placement_ms=tuple(trips),
        explained=explained,
    )


def _label(device_class: str) -> str:
    """Name a device class for people: every board of this fleet but the processor is emulated."""
    return device_class if device_class == "cpu" else f"{device_class} (emulated)"


def read_files(fleet: Fleet, submissions: Sequence[Submission], witness: Path) -> Verdict:
    """Compare submission log, witness file, ledger and every agent's database. All have stopped."""
    entries: dict[str, list[NodeEntry]] = defaultdict(list)
    for name in fleet.plans:
        for task_id, entry in _read_agent(fleet.data_dir(name), name):
            entries[task_id].append(entry)
    return judge(submissions, read_witness(witness), entries, _read_ledger(fleet.data_dir("coordinator")))


def read_witness(path: Path) -> list[Effect]:
    """Return the lines `<task id> <fence> …` of a witness file."""
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return [Effect(task_id=line.split()[0], fence=line.split()[1]) for line in lines]


def _read_agent(home: Path, name: str) -> list[tuple[str, NodeEntry]]:
    clock = SystemClock()
    store = SqliteStore.open(home / "queue.db", now=clock.now(), wall_s=clock.wall_s)
    found: list[tuple[str, NodeEntry]] = []
    before = None
    while page := store.find(TaskFilter(limit=_PAGE, before=before)):
        before = page[-1].task_id
        for known in page:
            record = store.get(known.task_id)
            assert record is not None  # nothing else writes here any more
            attempts = {str(attempt.fence): attempt.ended for attempt in record.attempts}
            entry = NodeEntry(
                node=name,
                state=record.state,
                fence=str(record.fence),
                is_home=record.placement is None,
                attempts=attempts,
            )
            found.append((record.task_id, entry))
    store.close()
    return found


def _read_ledger(home: Path) -> dict[str, LedgerEntry]:
    ledger = SqliteLedger(home / "ledger.db")
    found: dict[str, LedgerEntry] = {}
    before = ""
    while page := ledger.find(LedgerFilter(limit=_PAGE, before=before)):
        before = page[-1].task_id
        for task in page:
            outcome = task.outcome
            found[task.task_id] = LedgerEntry(
                status=outcome.status if outcome else task.state,
                fence=str(task.fence),
                node=outcome.node if outcome else "",
            )
    ledger.close()
    return found
