"""What a federated round costs beyond the training: null clients, Flower's own simulation in the same run.

A real coordinator's service, a real worker and a real ledger on this disk; `CARRIERS` says what stands
between the service and the nodes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil

from benchmarks import federation_memory
from benchmarks.federation_mqtt import over_mqtt
from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from federation.flower.environment import SWITCHES
from federation.rounds.service import RoundService
from federation.rounds.sqlite import sqlite_ledger
from federation.rounds.supervisor import WorkerCommand
from federation.rounds.testing import MemoryFleet
from federation.trainer import TrainerContext
from federation.trainers.null import NullTrainer
from federation.values import INLINE_LIMIT_BYTES, Instruction, Reply, RunSpec, RunState
from federation.wire import content_hash, pack, unpack
from skerry.blobs import BlobStore

ROOT = Path(__file__).resolve().parents[1]
TRAIN = ROOT / ".venv-train" / "bin"
#: participants → seconds a round may take
GOALS = {2: 0.15, 10: 0.3, 100: 1.0}
_BLOBS_BYTES = 4 << 30
_SIMULATION_LIMIT_S = 600.0


@dataclass
class Measured:
    """One run's figures. The first round, with the worker's start, is kept apart."""

    rounds_s: list[float] = field(default_factory=list)
    start_s: float = 0.0
    worker_cpu_s: float = 0.0  #: per exchange
    own_cpu_s: float = 0.0  #: of this process, nodes included, per exchange
    worker_mb: float = 0.0


Carrier = Callable[[Path, int], AbstractAsyncContextManager[RoundService]]


@asynccontextmanager
async def in_memory(directory: Path, nodes: int) -> AsyncIterator[RoundService]:
    """Nodes in this process: what a round costs without any network."""
    blobs = BlobStore(directory / "blobs", _BLOBS_BYTES)
    trainer = NullTrainer()
    with ThreadPoolExecutor(2) as executor:
        answer = _null_client(blobs, trainer)
        fleet = MemoryFleet({f"n{n}": answer for n in range(nodes)}, executor=executor)
        service = RoundService(
            ledger=sqlite_ledger(directory / "rounds.db"),
            blobs=blobs,
            courier=fleet,
            roster=fleet,
            worker=WorkerCommand(python=TRAIN / "python", directory=ROOT),
            directory=directory,
        )
        fleet.service = service
        await service.open()
        try:
            yield service
        finally:
            await service.close()
            await fleet.settle()


#: name → what carries instructions and replies
CARRIERS: dict[str, Carrier] = {"memory": in_memory, "mqtt": over_mqtt}


def _null_client(blobs: BlobStore, trainer: NullTrainer) -> Callable[[Instruction], Reply]:
    def answer(instruction: Instruction) -> Reply:
        seed = int(instruction.id[:12], 16)
        model = unpack(blobs.path(instruction.model).read_bytes())
        context = TrainerContext(node=instruction.node, seed=seed)
        trained, examples, metrics = trainer.train(model, instruction.config, context)
        packet = pack(trained)
        is_small = len(packet) <= INLINE_LIMIT_BYTES
        if not is_small:
            blobs.put_bytes(packet)
        return Reply(
            instruction_id=instruction.id,
            run_id=instruction.run_id,
            node=instruction.node,
            base_version=instruction.version,
            num_examples=examples,
            inline=packet if is_small else b"",
            update="" if is_small else content_hash(packet),
            metrics=metrics,
        )

    return answer


def measure(run: Run) -> Iterator[Result]:
    """Measure rounds of 2, 10 and 100 over every carrier and over Flower's simulation, then memory."""
    if not (TRAIN / "python").exists():
        raise BenchmarkError("the training environment is not there: `make test-train` makes it")
    for nodes, limit_s in GOALS.items():
        peer = _simulated(run, nodes)
        for name, carrier in CARRIERS.items():
            measured = asyncio.run(_rounds(carrier, nodes, run.size(10, 5)))
            yield from _results(name, nodes, limit_s, measured, peer)
    yield from federation_memory.measure(run)


def _results(
    name: str, nodes: int, limit_s: float, measured: Measured, peer: float | None
) -> Iterator[Result]:
    id = f"federation.{name}.{nodes}"
    yield result(
        f"{id}.round_s",
        f"a round with {nodes} null clients, carried in {name}",
        statistics.median(measured.rounds_s),
        "s",
        goal=Goal("<=", limit_s),
        baseline=None if peer is None else Baseline(what="flwr run, simulation, warm", value=peer),
    )
    yield result(f"{id}.first_s", "its first round, start of the worker included", measured.start_s, "s")
    yield result(
        f"{id}.worker_cpu_ms", "worker's processor time per exchange", 1e3 * measured.worker_cpu_s, "ms"
    )
    yield result(
        f"{id}.service_cpu_ms",
        "processor time per exchange of the service and its null client together",
        1e3 * measured.own_cpu_s,
        "ms",
    )
    yield result(f"{id}.worker_mb", "resident memory of the worker", measured.worker_mb, "MB")


async def _rounds(carrier: Carrier, nodes: int, rounds: int) -> Measured:
    spec = RunSpec(run_id="bench", trainer="null", rounds=rounds, quorum=nodes)
    measured = Measured()
    with tempfile.TemporaryDirectory(prefix="skerry-bench-") as directory:
        async with carrier(Path(directory), nodes) as service:
            seen: dict[int, tuple[float, float]] = {}
            begun, own = time.perf_counter(), time.process_time()
            await service.start(spec)
            async for report in service.watch("bench"):
                version = report.run.version
                if version not in seen:
                    seen[version] = (time.perf_counter(), _worker(service, measured))
                    own = time.process_time() if version == 1 else own
            measured.own_cpu_s = (time.process_time() - own) / (nodes * (rounds - 1))
            final = (await service.show("bench")).run
            if final.state is not RunState.DONE:
                raise BenchmarkError(f"the run is {final.state}: {final.reason}")
    measured.start_s = seen[1][0] - begun
    steps = [seen[version] for version in sorted(seen) if version >= 1]
    measured.rounds_s = [after[0] - before[0] for before, after in pairwise(steps)]
    used = [cpu for _, cpu in steps if cpu]
    measured.worker_cpu_s = (used[-1] - used[0]) / (nodes * max(1, len(used) - 1))
    return measured


def _worker(service: RoundService, measured: Measured) -> float:
    """Return the worker's processor time so far, 0.0 when it is gone; note its memory."""
    pid = service.worker_pid("bench")
    if pid is None:
        return 0.0
    try:
        process = psutil.Process(pid)
        measured.worker_mb = max(measured.worker_mb, process.memory_info().rss / 1e6)
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


def _simulated(run: Run, nodes: int) -> float | None:
    """Return the median round of Flower's simulation of the same app, its first round left out."""
    if run.quick and nodes != 10:
        run.leave_out(f"Flower's simulation with {nodes} clients")
        return None
    if not (TRAIN / "flwr").exists():
        raise BenchmarkError("Flower is not in the training environment: `make test-train` makes it")
    with tempfile.TemporaryDirectory(prefix="skerry-bench-") as directory:
        took_s = _run_flower(Path(directory), nodes, run.size(10, 5))
    return statistics.median(took_s[1:])


def _run_flower(directory: Path, nodes: int, rounds: int) -> list[float]:
    home, app, outcome = directory / "home", directory / "app", directory / "result.json"
    home.mkdir()
    app.mkdir()
    shutil.copy(ROOT / "federation" / "flower" / "pyproject.toml", app)
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = ":local:"\n'
    )
    config = f'trainer="null" rounds={rounds} quorum={nodes} result="{outcome}"'
    engine = f"num-supernodes={nodes} client-resources-num-cpus=1"
    environment = {
        **os.environ,
        **SWITCHES,
        "FLWR_HOME": str(home),
        "PATH": f"{TRAIN}:{os.environ['PATH']}",
    }
    words = ["run", str(app), "here", "--stream", "--run-config", config, "--federation-config", engine]
    said = directory / "said.txt"
    with said.open("wb") as log:
        process = subprocess.Popen([TRAIN / "flwr", *words], env=environment, stdout=log, stderr=log)
    try:
        _await_outcome(process, outcome, said)
    finally:
        _end_engine(home)
        process.wait()
    took_s: list[float] = msgspec.json.decode(outcome.read_bytes())["took_s"]
    return took_s


def _await_outcome(process: subprocess.Popen[bytes], outcome: Path, said: Path) -> None:
    """Return once the app has written its figures: how its engine then winds up is of no interest here."""
    deadline, has_ended = time.monotonic() + _SIMULATION_LIMIT_S, False
    while not (outcome.exists() and outcome.stat().st_size):
        if has_ended:
            words = said.read_text(errors="replace")[-500:]
            raise BenchmarkError(f"Flower's simulation did not end: {words}")
        if time.monotonic() > deadline:
            raise BenchmarkError(f"Flower's simulation took more than {_SIMULATION_LIMIT_S:g} s")
        time.sleep(0.1)  # polling another process
        has_ended = process.poll() is not None


def _end_engine(home: Path) -> None:
    """End what `flwr run` leaves running: the processes that have this home of Flower's."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("FLWR_HOME") == str(home):
            process.kill()
