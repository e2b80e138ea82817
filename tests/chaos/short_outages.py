"""Short outages, and cuts between publish and acknowledgement: what waits then is gone within 30 seconds.

`python -m tests.chaos.short_outages` runs 180 random outages and 1,000 cuts in the twin and writes
docs/evidence/short-outages.json. Virtual seconds; effects must equal messages.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from random import Random

import msgspec

from tests.chaos.evidence import SERVICES, load_evidence, save_evidence
from twin.faithful.run import Report, run_scenario
from twin.scenario.expect import Expect
from twin.scenario.faults import Cut, Fault, Partition, Wire
from twin.scenario.language import Group, Load, Scenario

#: Between the ends of two outages, so that each is judged alone. Seconds.
GAP_S = 35.0
DRAINED_S = 30.0


def short_outages(count: int, seed: int) -> Scenario:
    """Outages of up to 20 seconds, noticed and unnoticed, one after another."""
    rng = Random(seed)
    kinds = (Cut, Partition)
    troubles = tuple(
        rng.choice(kinds)(at_s=round(n * (20.0 + GAP_S) + rng.uniform(1, 5), 3), for_s=rng.uniform(0.1, 20.0))
        for n in range(count)
    )
    return _scenario("short-outages", count * (20.0 + GAP_S), troubles)


def cuts_in_flight(count: int, seed: int) -> Scenario:
    """Cuts of a moment while every wire takes a tenth of a second and more: something is on its way."""
    wire = Wire(at_s=0.0, for_s=count * GAP_S, delay_s=(0.1, 0.3))
    cut = Cut(at_s=2.0, for_s=0.2, every_s=GAP_S, times=count, spread_s=1.5)
    return _scenario("cuts-in-flight", count * GAP_S, (wire, cut))


def _scenario(name: str, load_s: float, troubles: tuple[Fault, ...]) -> Scenario:
    return Scenario(
        name=name,
        load_s=load_s,
        settle_s=60.0,
        group=(Group(name="edge"),),
        load=(Load(rate_per_s=0.5),),
        fault=troubles,
        expect=Expect(drained_s=DRAINED_S),
    )


def is_as_it_should_be(report: Report) -> bool:
    """Nothing broken, lost or done twice, and every message had its one effect."""
    return not report.violations and not report.lost and report.done == report.submitted


def main() -> int:
    """Run both in full and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--outages", type=int, default=180)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    scenarios = (short_outages(asked.outages, asked.seed), cuts_in_flight(asked.cuts, asked.seed))
    exercises = (*SERVICES, "twin", str(Path(__file__).relative_to(Path(__file__).parents[2])))
    record = load_evidence("short-outages", "python -m tests.chaos.short_outages", exercises)
    for scenario, count in zip(scenarios, (asked.outages, asked.cuts), strict=True):
        report = run_scenario(scenario, asked.seed)
        record = record.with_entry(count, msgspec.to_builtins(report))
        print(json.dumps({"scenario": scenario.name, "faults": count, **report.figures}), flush=True)
        if not is_as_it_should_be(report):
            print(report.broken, file=sys.stderr)
            return 1
    save_evidence(record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
