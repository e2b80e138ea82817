"""The queue's benchmark, our own system only: real processes, the shim counts and slows, goals are judged."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.harness import Baseline, BenchmarkError, Run
from benchmarks.queue import agent_path, chart, plan
from benchmarks.queue.backlog import copied, filled, size_bytes
from benchmarks.queue.judged import results
from benchmarks.queue.plan import Measured, Plan
from benchmarks.queue.port import SYSTEMS, bodies, opener
from benchmarks.queue.preload import PAD_US, Disk, environment, shim
from benchmarks.queue.runs import Runs
from benchmarks.queue.session import Lap, Session, Spec

ROOT = Path(__file__).resolve().parents[2]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the shim, and is not here")

_WRITE_AND_SYNC = """
import os, sys
from benchmarks.queue.preload import counts
log, other = (os.open(sys.argv[1] + end, os.O_CREAT | os.O_WRONLY) for end in ("-wal", ""))
for _ in range(3):
    os.write(log, b"x" * 100)
    os.fdatasync(log)
os.pwrite(other, b"y" * 7, 0)
os.close(log)
again = os.open(sys.argv[1] + ".txt", os.O_CREAT | os.O_WRONLY)
os.write(again, b"z" * 5)
os.fsync(again)
print(counts())
"""


def a_lap(work: str, *, units: int = 100, wall_s: float = 1.0, cpu_s: float = 0.01) -> Lap:
    """A lap as a session reports it."""
    return Lap(
        work=work, units=units, wall_s=wall_s, cpu_s=cpu_s, syncs=units, log_bytes=units * 4096, other_bytes=0
    )


def a_session(*laps: Lap, reopen_s: float = 0.05) -> Session:
    """What one process measured."""
    return Session(reopen_s=reopen_s, peak_bytes=50_000_000, laps=laps)


@needs_gcc
def test_the_shim_counts_syncs_and_bytes_by_kind_of_file_and_slows_every_sync(tmp_path: Path) -> None:
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", _WRITE_AND_SYNC, str(tmp_path / "queue.db")],
        cwd=ROOT,
        env=environment(Disk.SLOW, tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "Counts(syncs=4, log_bytes=300, other_bytes=12)"
    assert time.monotonic() - began >= 4 * PAD_US / 1e6


@needs_gcc
def test_the_shim_is_compiled_once(tmp_path: Path) -> None:
    first = shim(tmp_path)
    made = first.stat().st_mtime_ns

    assert shim(tmp_path) == first
    assert first.stat().st_mtime_ns == made


def test_a_machine_without_gcc_is_told_what_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BenchmarkError, match="gcc is not installed"):
        shim(tmp_path)


@pytest.mark.parametrize("name", ["skerry", "raw_sqlite"])
def test_our_systems_put_claim_acknowledge_and_forget_what_was_put(tmp_path: Path, name: str) -> None:
    queue = opener(name)(tmp_path, True)
    queue.put(bodies(120))
    queue.put(bodies(1))

    one, many = queue.cycle(1), [queue.cycle(50) for _ in range(2)]
    queue.forget()
    queue.close()

    assert one == 1
    assert many == [50, 50]


@needs_gcc
def test_a_session_measures_each_kind_of_work_in_a_process_of_its_own(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    spec = Spec(
        system="skerry",
        directory=str(copied("skerry", 500, tmp_path)),
        work=("put", "put_batch", "cycle", "cycle_batch", "mixed", "life_50", "life_200"),
        lap_s=0.05,
        limit=100,
    )

    session = runs.session("session", spec, Disk.SLOW, system="skerry", label=(0,))
    again = runs.session("session", spec, Disk.SLOW, system="skerry", label=(0,))

    laps = {lap.work: lap for lap in session.laps}
    assert set(laps) == set(spec.work)
    assert all(lap.units and lap.cpu_s > 0 and lap.syncs and lap.log_bytes for lap in laps.values())
    assert laps["put"].syncs >= laps["put"].units  # each put alone is a synced commit
    assert laps["put_batch"].syncs < laps["put_batch"].units / 10
    assert again == session  # an interrupted run goes on from what it has measured


@needs_gcc
def test_the_agents_own_path_shares_syncs_among_its_waiters(tmp_path: Path) -> None:
    place = tmp_path / "way"
    place.mkdir()
    spec = agent_path.Spec(way="agent", directory=str(place), waiters=(16,), batchers=(8,), lap_s=0.2)

    session = Runs(tmp_path / "cache").session("agent_path", spec, Disk.SLOW, system="skerry", label=(0,))

    alone, batched = session.laps
    assert alone.units >= 16
    assert alone.syncs * 4 < alone.units
    assert batched.work == "producers_8x100"
    assert batched.units % 100 == 0
    assert batched.syncs * 100 < batched.units  # batches that wait share a commit as well


def test_a_filled_queue_is_kept_and_copied(tmp_path: Path) -> None:
    pytest.importorskip("apsw")
    place = tmp_path / "backlogs"

    try:
        first = filled("skerry", 50, tmp_path)
    except BenchmarkError as error:
        pytest.skip(str(error))  # libeatmydata is not installed

    assert filled("skerry", 50, tmp_path) == first
    assert [path.name for path in place.iterdir()] == [first.name]
    assert size_bytes(copied("skerry", 50, tmp_path)) == size_bytes(first)


def test_a_system_that_cannot_be_measured_is_named_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Stubborn(Runs):
        """Refuses one system, and measures nothing."""

        def session(
            self, module: str, spec: object, disk: Disk, *, system: str, label: Sequence[object]
        ) -> Session:
            """See Runs."""
            asked.append(system)
            if system == "huey":
                raise BenchmarkError("huey is not installed")
            return a_session(a_lap("cycle"))

        def floor(self, directory: Path, disk: Disk, duration_s: float, *, label: Sequence[object]) -> float:
            """See Runs."""
            return 250.0

    monkeypatch.setattr(plan, "copied", lambda system, rows, cache: tmp_path)
    making = Plan(Run(quick=True, progress=io.StringIO()), Stubborn(tmp_path))

    measured = making.perform()

    assert measured.absent == {"huey": "huey is not installed"}
    assert asked.count("huey") == 1
    assert set(asked) == set(SYSTEMS)


def test_goals_are_judged_against_what_the_same_run_measured() -> None:
    measured = Measured()
    measured.floors[Disk.SLOW].extend([249.0, 250.0, 251.0])
    measured.floors[Disk.RAW].append(1000.0)
    measured.ways["agent", Disk.SLOW].add(a_session(a_lap("producers_64", units=10_000)))
    measured.ways["agent", Disk.RAW].add(a_session(a_lap("producers_64", cpu_s=0.007)))
    measured.ways["agent", Disk.SLOW].add(a_session(a_lap("producers_64x100", units=24_000)))
    measured.producers["localqueue", Disk.SLOW].add(a_session(a_lap("producers_64x100", units=23_000)))
    measured.of["localqueue", 1_000, Disk.SLOW].add(a_session(a_lap("put_batch", units=21_000)))
    for size, cpu_s in ((1_000, 0.01), (2_600_000, 0.02)):
        measured.of["skerry", size, Disk.NONE].add(a_session(a_lap("cycle", cpu_s=cpu_s), reopen_s=0.3))
    measured.of["skerry", 2_600_000, Disk.SLOW].add(a_session(a_lap("cycle_batch", units=5_000)))
    measured.of["huey", 2_600_000, Disk.SLOW].add(a_session(a_lap("cycle", units=240)))
    measured.of["litequeue", 2_600_000, Disk.SLOW].add(a_session(a_lap("cycle", units=2)))

    found = {one.id: one for one in results(measured, (1_000, 2_600_000))}

    judged = {one.id: one.ok for one in found.values() if one.goal}
    assert judged == {
        "queue.agent.waiters_64.slow_per_s": True,  # 40 times 250
        "queue.agent.waiters_64.raw_cpu_us": False,  # 70
        "queue.agent.batches_64.slow_per_s": True,
        "queue.cycle.cpu_us": False,  # twice that at 1,000 rows
        "queue.cycle_batch.alone_per_s": True,  # 20.8 times huey, which has no batch
        "queue.cycle_batch.best_batch_per_s": True,
        "queue.reopen_s": False,
    }
    assert found["queue.agent.batches_64.slow_per_s"].baseline == Baseline(
        what="localqueue's put_many, 64 threads, its better way", value=23_000.0
    )
    best = found["queue.cycle_batch.alone_per_s"].baseline
    assert best is not None
    assert best.what.endswith("huey")


def test_tables_and_picture_show_the_documents_figures() -> None:
    found = {
        "queue.fd.slow_per_s": 250.0,
        "queue.1000.skerry.cycle.cpu_us": 111.0,
        "queue.2600000.skerry.cycle.cpu_us": 222.0,
        "queue.1000.huey.put.slow_per_s": 125.0,
    }

    lines = list(chart.tables(found))
    picture = chart.picture(found)

    assert "| skerry | – | – | 111 / – / 222 | – |" in lines
    assert "| huey | 0.5000 / – / – | – | – | – |" in lines
    assert picture.count(">111<") == picture.count(">222<") == 1
    assert "huey" not in picture  # nothing of it belongs there


def test_a_measuring_process_loads_no_more_than_it_measures() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, benchmarks.queue.session; print('\\n'.join(sys.modules))"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = set(done.stdout.split())
    assert not {name for name in loaded if name.split(".")[0] in ("edge_agent", "task_queue", "apsw")}
