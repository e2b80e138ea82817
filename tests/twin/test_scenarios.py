"""Every scenario that ships keeps the laws and what it expects; the same seed is the same run, anywhere."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from skerry.errors import SpecError
from skerry.link.actions import Action
from skerry.link.backoff import Backoff
from skerry.link.edge import EdgeLink
from twin.faithful.run import run_scenario
from twin.scenario.faults import Fault
from twin.scenario.language import load_scenario, parse_scenario
from twin.scenario.library import find, names

#: Hours and days of many nodes: `skerry twin run` for them; their small forms have tests of their own.
LONG_S = 4500.0
SMALL = tuple(name for name in names() if find(name).load_s <= LONG_S)


@pytest.mark.parametrize("name", SMALL)
def test_the_laws_hold_whatever_goes_wrong(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # the product complains a lot, as it should

    report = run_scenario(find(name), seed=1)

    assert report.broken == ()
    assert (report.lost, report.done_twice) == (0, 0)
    assert report.submitted > 0
    assert report.done > 0 or set(report.ended) - {"done"}


def test_every_kind_of_fault_that_can_be_written_is_shown() -> None:
    shown = {type(fault) for name in names() for fault in find(name).fault}

    assert shown == set(Fault.__args__)


def test_every_scenario_says_what_people_met() -> None:
    for name in names():
        scenario = find(name)
        assert scenario.name == name
        assert scenario.about.endswith(".")
        assert scenario.shows


@pytest.mark.parametrize("name", ["killed-in-every-state", "once-only-under-kills", "suspended-machine"])
def test_one_seed_is_one_run_in_every_process(name: str) -> None:
    hashes = {log_hash(name, hash_seed) for hash_seed in ("1", "4242")}

    assert len(hashes) == 1


def test_another_seed_is_another_run() -> None:
    scenario = find("time-set-after-the-start")

    assert run_scenario(scenario, seed=1).log_hash != run_scenario(scenario, seed=2).log_hash


def test_an_expectation_that_is_not_kept_is_reported() -> None:
    text = """
    name = "asks-too-much"
    load_s = 10
    settle_s = 10
    [[group]]
    name = "edge"
    [[load]]
    [[fault]]
    kind = "cut"
    at_s = 2
    for_s = 4
    [expect]
    drain_begins_s = 0.001
    sheddings = 1
    online = "edge"
    quarantined = "edge"
    ended = {dead = 1}
    """

    report = run_scenario(parse_scenario(text), seed=1)

    assert {broken.law for broken in report.broken} == {0}
    assert len(report.broken) == 4


def test_a_leak_at_each_disconnect_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    leaked: list[Backoff] = []
    link_down = EdgeLink._link_down

    def leaking(self: EdgeLink) -> list[Action]:
        leaked.append(Backoff(Random()))
        return link_down(self)

    monkeypatch.setattr(EdgeLink, "_link_down", leaking)
    scenario = find("reconnects-without-end")
    (cuts,) = scenario.fault
    short = replace(scenario, load_s=60, fault=(replace(cuts, times=29),))

    report = run_scenario(short, seed=1)

    assert [broken.what.partition(" is ")[0] for broken in report.broken] == ["objects_grown"]
    assert len(leaked) == 58


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('on = "nobody"', "nobody"),
        ('on = "some:9"', "some:9"),
        ("for_s = -1", "for_s"),
        ("color = 1", "color"),
    ],
)
def test_what_is_wrong_in_a_scenario_is_named(line: str, named: str) -> None:
    lines = ['kind = "cut"', "at_s = 1"] + ([line] if "for_s" in line else ["for_s = 1", line])
    text = 'name = "x"\nload_s = 1\n[[group]]\nname = "edge"\n[[fault]]\n' + "\n".join(lines)

    with pytest.raises(SpecError, match=named):
        parse_scenario(text)


def test_a_scenario_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"missing\.toml"):
        load_scenario(tmp_path / "missing.toml")
    with pytest.raises(SpecError, match="Did you mean disk-full"):
        find("disk-ful")


def log_hash(name: str, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "skerry.cli", "twin", "run", name, "--json"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return str(json.loads(done.stdout)["log_hash"])
