"""Running a scenario: from its words to a report, with the laws checked on the way. One seed, one run."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from skerry.errors import StoreDamaged
from skerry.ids import TaskId
from twin.faithful.agent import Node
from twin.faithful.chance import seeded_secrets
from twin.faithful.measures import RolloutFigures
from twin.faithful.mishaps import plan_mishaps
from twin.faithful.staging import LOAD_BEGINS_S, RoundFigures, Stage
from twin.faithful.witness import Violation
from twin.scenario.language import Scenario

#: Told of the world's seconds, of the last one, and of the tasks that were submitted so far.
Progress = Callable[[float, float, int], None]
#: How often the laws that need a look are looked at, seconds of the world.
LOOK_EVERY_S = 30.0


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A violation, for people."""

    law: int
    at_s: float
    node: str
    what: str
    task_id: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run. log_hash: of the event log, byte for byte."""

    scenario: str
    seed: int
    agents: int
    submitted: int
    done: int
    ended: dict[str, int]
    lost: int
    done_twice: int
    violations: int
    broken: tuple[Broken, ...]
    refusals: int
    figures: dict[str, float]
    rounds: tuple[RoundFigures, ...]
    rollouts: tuple[RolloutFigures, ...]
    virtual_s: float
    wall_s: float
    log_hash: str


def run_scenario(
    scenario: Scenario,
    seed: int,
    *,
    log: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    home: Path | None = None,
    inspect: Callable[[Stage], None] = lambda stage: None,
    until_quiet: bool = False,
) -> Report:
    """Run a scenario to its end.

    log: takes each line of the event log.
    home: where the disks are kept, which stays; a temporary directory otherwise.
    inspect: shown the stage at its end.  until_quiet: end as soon as nothing is to come any more.
    """
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="skerry-twin-", dir=home) as folder:
        stage = Stage(scenario, seed, Path(folder))
        digest = hashlib.sha256()

        def write(line: str) -> None:
            digest.update(line.encode() + b"\n")
            if log is not None:
                log(line)

        stage.log = write
        with seeded_secrets(stage.world.rng("secrets")), stage.disks():
            try:
                lost = _play(stage, progress, until_quiet=until_quiet)
                stage.judge()
                inspect(stage)
                report = report_of(stage, lost, digest.hexdigest(), time.perf_counter() - begun)
            finally:
                stage.close()
    return report


def _play(stage: Stage, progress: Progress | None, *, until_quiet: bool = False) -> int:
    stage.open()
    plan_mishaps(stage)
    end_s = LOAD_BEGINS_S + stage.scenario.load_s + stage.scenario.settle_s
    while stage.world.now_s() < end_s:
        stage.world.run(min(end_s, stage.world.now_s() + LOOK_EVERY_S))
        for node in stage.nodes.values():
            with suppress(StoreDamaged):  # the look met it; the store gives the file up with its next commit
                stage.witness.look_at_bounds(node)
                stage.witness.look_at_running(node)
        if progress is not None:
            progress(stage.world.now_s(), end_s, stage.witness.submitted)
        if until_quiet and stage.is_quiet():
            break
    nodes = tuple(stage.nodes.values())
    if stage.cloud.runtime is not None:
        stage.witness.told(nodes, stage.cloud.knows_end)
    return stage.witness.at_the_end(nodes, whereabouts)


def whereabouts(node: Node, task_id: TaskId) -> str:
    """Return where an unended task is, empty when its home does not know it."""
    if node.agent is None:
        return "its home does not run"
    record = node.agent.parts.store.get(task_id)
    return "" if record is None else f"{record.state}, {record.waiting_for}".strip(", ")


def report_of(stage: Stage, lost: int, log_hash: str, wall_s: float) -> Report:
    """Return what a run came to.  lost: tasks that were accepted and are nowhere; wall_s: its real time."""
    witness = stage.witness
    return Report(
        scenario=stage.scenario.name,
        seed=stage.seed,
        agents=len(stage.nodes),
        submitted=witness.submitted,
        done=witness.ended["done"],  # type: ignore[index] # a State is its word
        ended={state.value: count for state, count in sorted(witness.ended.items())},
        lost=lost,
        done_twice=witness.done_twice,
        violations=witness.count,
        broken=broken_of(witness.violations),
        refusals=stage.refusals,
        figures=stage.measures.figures(),
        rounds=stage.rounds(),
        rollouts=stage.rollouts(),
        virtual_s=round(stage.world.now_s(), 3),
        wall_s=round(wall_s, 3),
        log_hash=log_hash,
    )


def broken_of(violations: Sequence[Violation]) -> tuple[Broken, ...]:
    """Return violations for people."""
    return tuple(
        Broken(law=v.law, at_s=round(v.at_s, 3), node=v.node, what=v.what, task_id=v.task_id)
        for v in violations
    )
