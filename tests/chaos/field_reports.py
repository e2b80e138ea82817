"""Field reports of nodes in trouble, run again: every answer and every state must be the same.

`python -m tests.chaos.field_reports --reports 100` adds to docs/evidence/field-reports.json until it holds so
many, of which one in ten comes from real agent processes that were killed; the others from drawn scenarios.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from edge_agent.flight_report import About, pack_report
from skerry import __version__
from tests.chaos import torture
from tests.chaos.evidence import SERVICES, load_evidence, save_evidence
from twin.faithful.chance import seeded_secrets
from twin.faithful.fuzz_draw import draw_scenario
from twin.faithful.mishaps import plan_mishaps
from twin.faithful.replay import Replayed, replay_report
from twin.faithful.staging import LOAD_BEGINS_S, Stage
from twin.scenario.language import Scenario

#: One report in so many is of a real agent process.
REAL_ONE_IN = 10
#: Of a recorder in a scenario: small ones begin new segments in the middle of a life.
RECORDERS_BYTES = (128 * 1024, 512 * 1024, 8 << 20)
KILLS = 6


class Bout(msgspec.Struct, frozen=True, kw_only=True):
    """Reports of one fleet. problems: where one parted from its recording."""

    source: str
    seed: int
    reports: int
    segments: int
    events: int
    fingerprints: int
    wall_s: float
    problems: tuple[str, ...]


def scenario_reports(scenario: Scenario, seed: int, home: Path, *, recorder_bytes: int) -> Iterator[bytes]:
    """Play a scenario and yield the report of each node."""
    stage = Stage(scenario, seed, home, recorder_bytes=recorder_bytes)
    with seeded_secrets(stage.world.rng("secrets")), stage.disks():
        try:
            stage.open()
            plan_mishaps(stage)
            stage.world.run(LOAD_BEGINS_S + scenario.load_s + 60.0)
            for node in stage.nodes.values():
                if node.agent is not None:
                    node.agent.recorder.flush()
        finally:
            stage.close()
        for name in stage.nodes:
            yield pack_report(home / name / "flight", About(node=name, version=__version__))


def process_reports(seed: int, directory: Path) -> Iterator[bytes]:
    """Let a fleet of real processes work while its parts are killed, and yield the report of each agent."""
    torture.run_bout(directory, seed=seed, kills=KILLS, say=lambda line: print(line, file=sys.stderr))
    for plan in torture.PLANS:
        yield pack_report(directory / plan.name / "flight", About(node=plan.name, version=__version__))


def drawn_reports(seed: int, home: Path) -> Iterator[bytes]:
    """Draw a scenario and yield the reports of its nodes."""
    dice = Random(f"field reports {seed}")
    recorder_bytes = dice.choice(RECORDERS_BYTES)
    scenario = draw_scenario(dice, f"drawn-{seed}")
    return scenario_reports(scenario, seed, home, recorder_bytes=recorder_bytes)


def run_bout(source: str, seed: int) -> Bout:
    """Make the reports of one fleet and run each again."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="skerry-reports-") as folder:
        make = process_reports if source == "processes" else drawn_reports
        found = [replay_report(report) for report in make(seed, Path(folder))]
    return Bout(
        source=source,
        seed=seed,
        reports=len(found),
        segments=sum(one.segments for one in found),
        events=sum(one.events for one in found),
        fingerprints=sum(one.fingerprints for one in found),
        wall_s=round(time.monotonic() - began, 1),
        problems=tuple(filter(None, map(problem_of, found))),
    )


def problem_of(replayed: Replayed) -> str:
    """Return where a report parts from its recording; empty: nowhere."""
    if not replayed.events:
        return f"{replayed.node}: it holds no events"
    parts = replayed.divergence
    return (
        "" if parts is None else f"{replayed.node} {parts.segment} {parts.number} {parts.event}: {parts.what}"
    )


def main() -> None:
    """Make as many reports as are asked for, less those that are recorded."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--reports", type=int, default=100)
    asked = words.parse_args()
    command = f"python -m tests.chaos.field_reports --reports {asked.reports}"
    record = load_evidence("field-reports", command, (*SERVICES, "twin/faithful", "twin/scenario"))
    while record.count < asked.reports:
        real = sum(entry["reports"] for entry in record.entries if entry["source"] == "processes")
        source = "processes" if real * REAL_ONE_IN <= record.count else "scenario"
        bout = run_bout(source, len(record.entries) + 1)
        print(json.dumps(msgspec.to_builtins(bout)), flush=True)
        record = record.with_entry(bout.reports, msgspec.to_builtins(bout))
        save_evidence(record)
    if any(entry["problems"] for entry in record.entries):
        raise SystemExit("a report parts from its recording: see the record")


if __name__ == "__main__":
    main()
