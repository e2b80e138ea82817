"""Starts an agent on a large backlog: how soon it takes tasks, and what the backlog costs in memory.

`python -m tests.chaos.backlog_start --rows 1000000` writes docs/evidence/backlog-start.json: the same agent
on an empty queue and on the backlog, in turns, from the start of the process to the answer to its first
submit, and the most memory it took in the seconds after. It works on the backlog all the while. At the end
the backlog's file is damaged: how soon is the agent in service again, and when are its rows brought over.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import apsw
import msgspec

from skerry.clock import SystemClock
from skerry.ids import TaskIdSource
from task_queue.damage.salvage import PROGRESS, STORY
from task_queue.limits import Limits
from task_queue.operations import Enqueue, Enqueued
from task_queue.sqlite_store import SqliteStore
from tests.chaos.agent_process import AgentProcess, command
from tests.chaos.evidence import load_evidence, save_evidence

EXERCISES = ("skerry", "queue/task_queue", "devices", "policy", "edge_agent")
GOAL_S, GOAL_BYTES = 2.0, 20 * 1000 * 1000
#: How soon an agent on a damaged file takes tasks again.
GOAL_DAMAGED_S = 5.0
TURNS = 5
_WATCHED_S = 4.0
_MAX_BYTES = 8 << 30
_A_COMMIT = 1000
_SALVAGE_PATIENCE_S = 1800.0
#: Nothing is measured while the backlog is made: memory saves the disk's time.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start. accepted_s: from the start of the process to the first answer; rss_bytes: the most seen.

    cpu_s: processor time of the process until that answer, which does not depend on what else runs here.
    """

    accepted_s: float
    cpu_s: float
    rss_bytes: int


def make_backlog(path: Path, rows: int) -> None:
    """Fill a queue with ready tasks."""
    clock = SystemClock()
    # Nothing is measured while it is made: no sync is waited for.
    limits = Limits(max_bytes=_MAX_BYTES, ballast_bytes=0, free_floor_bytes=0, synchronous="off")
    store = SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s, limits=limits)
    ids = TaskIdSource(clock.wall_s)
    task = command("true")
    for begin in range(0, rows, _A_COMMIT):
        ops = [Enqueue(task_id=ids.next(), task=task) for _ in range(min(_A_COMMIT, rows - begin))]
        answers = store.apply(ops, now=clock.now())
        assert all(isinstance(answer, Enqueued) for answer in answers), answers[0]
    store.close()


class Salvage(msgspec.Struct, frozen=True, kw_only=True):
    """A start on a damaged file. damaged_accepted_s: as accepted_s; salvaged_s: until its rows are over."""

    damaged_accepted_s: float
    salvaged_s: float
    rows_kept: int
    rows_lost: int


def damage(database: Path) -> None:
    """Zero the root page of the table of tasks: nothing below it is found from above."""
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    ((page_bytes,),) = db.execute("PRAGMA page_size")
    ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'task'")
    db.close()
    with database.open("r+b") as file:
        file.seek((root - 1) * page_bytes)
        file.write(bytes(page_bytes))


def start_damaged(folder: Path) -> Salvage:
    """Damage a backlog, start its agent, hand in a task, and wait until the rows are brought over."""
    damage(folder / "data" / "queue.db")
    agent = AgentProcess(folder, more=f"[queue]\nmax_bytes = {_MAX_BYTES}")
    began = time.monotonic()
    try:
        client = agent.start()
        client.submit(command("true"))
        accepted_s = time.monotonic() - began
        salvaged_s, kept, lost = _wait_for_salvage(folder / "data" / "queue.db", began)
    finally:
        agent.kill()
    return Salvage(
        damaged_accepted_s=round(accepted_s, 2),
        salvaged_s=round(salvaged_s, 1),
        rows_kept=kept,
        rows_lost=lost,
    )


def _wait_for_salvage(database: Path, began: float) -> tuple[float, int, int]:
    """Return seconds since a moment, and how many rows were kept and lost, once the salvage has ended."""
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(10_000)
    asked = "SELECT name, value FROM meta WHERE name IN (?, ?)"
    while time.monotonic() < began + _SALVAGE_PATIENCE_S:
        found = dict(db.execute(asked, (STORY, PROGRESS)).fetchall())
        if STORY in found and PROGRESS not in found:
            told = json.loads(found[STORY])
            return time.monotonic() - began, told["rows_kept"], told["rows_lost"]
        time.sleep(0.2)  # another process brings the rows over; its progress is looked at
    raise AssertionError("the salvage did not end")


def start_once(folder: Path, *, watched_s: float = _WATCHED_S) -> Start:
    """Start the agent of a folder, hand in a task, watch its memory for a while, and kill it."""
    agent = AgentProcess(folder, more=f"[queue]\nmax_bytes = {_MAX_BYTES}")
    began = time.monotonic()
    try:
        agent.start().submit(command("true"))
        accepted_s = time.monotonic() - began
        used = agent.running.cpu_times()
        most = 0
        while time.monotonic() - began < accepted_s + watched_s:
            most = max(most, agent.running.memory_info().rss)
            time.sleep(0.05)  # another process works; its memory is looked at meanwhile
        return Start(accepted_s=accepted_s, cpu_s=used.user + used.system, rss_bytes=most)
    finally:
        agent.kill()


def compare(
    folder: Path, rows: int, turns: int, watched_s: float = _WATCHED_S
) -> tuple[list[Start], list[Start]]:
    """Start on an empty queue and on the backlog, in turns."""
    for name in ("empty", "backlog"):
        (folder / name).mkdir()
    (folder / "backlog" / "data").mkdir(mode=0o700)
    make_backlog(folder / "backlog" / "data" / "queue.db", rows)
    start_once(folder / "empty", watched_s=0.0)  # whoever comes first reads the programs from the disk
    empty, full = [], []
    for _ in range(turns):
        empty.append(start_once(folder / "empty", watched_s=watched_s))
        full.append(start_once(folder / "backlog", watched_s=watched_s))
    return empty, full


def main() -> int:
    """Measure once and record it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="size of the backlog")
    asked = parser.parse_args()
    record = load_evidence(
        "backlog-start", f"python -m tests.chaos.backlog_start --rows {asked.rows}", EXERCISES
    )
    folder = Path(tempfile.mkdtemp(prefix="backlog-", dir=FAST))
    try:
        empty, full = compare(folder, asked.rows, TURNS)
        size = (folder / "backlog" / "data" / "queue.db").stat().st_size
        salvage = start_damaged(folder / "backlog")
    finally:
        shutil.rmtree(folder)
    entry = {
        "rows": asked.rows,
        "file_bytes": size,
        **figures(empty, full),
        **msgspec.structs.asdict(salvage),
    }
    save_evidence(record.with_entry(1, entry))
    print(json.dumps(entry))
    is_met = (
        entry["accepted_s"] < GOAL_S
        and entry["extra_bytes"] < GOAL_BYTES
        and salvage.damaged_accepted_s < GOAL_DAMAGED_S
        and salvage.rows_lost == 0
    )
    return 0 if is_met else 1


def figures(empty: list[Start], full: list[Start]) -> dict[str, float]:
    """Return medians: seconds to the first answer, and what the backlog costs in memory."""
    return {
        "accepted_s": round(statistics.median(each.accepted_s for each in full), 2),
        "accepted_empty_s": round(statistics.median(each.accepted_s for each in empty), 2),
        "cpu_s": round(statistics.median(each.cpu_s for each in full), 2),
        "cpu_empty_s": round(statistics.median(each.cpu_s for each in empty), 2),
        "rss_bytes": int(statistics.median(each.rss_bytes for each in full)),
        "extra_bytes": int(
            statistics.median(each.rss_bytes for each in full)
            - statistics.median(each.rss_bytes for each in empty)
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
