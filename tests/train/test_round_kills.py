"""Coordinator and agents are killed at random moments of a run: it ends, replies count once, none is lost."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.train.fleet import Rounds, plan, running

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

#: Of the coordinator, and as many of agents; SKERRY_KILLS sets another number.
KILLS = int(os.environ.get("SKERRY_KILLS", "4"))
#: A round over two nodes takes one to three seconds: a kill lands in each part of one.
LONGEST_PAUSE_S = 2.5


def test_a_run_through_kills_at_random_moments_counts_each_reply_once(tmp_path: Path) -> None:
    rng = random.Random(20)
    rounds_to_make = 2 * KILLS
    with running(tmp_path, plan("a"), plan("b")) as fleet:
        rounds = Rounds(fleet)
        words = ("--trainer", "null", "--rounds", str(rounds_to_make), "--quorum", "1", "--deadline", "10")
        rounds("start", "--name", "r1", "--set", "size=2000", *words)
        victims = [fleet.coordinator] * KILLS + [fleet.agents[rng.choice("ab")] for _ in range(KILLS)]
        rng.shuffle(victims)
        for victim in victims:
            time.sleep(rng.uniform(0.1, LONGEST_PAUSE_S))  # a random moment is what is tested
            victim.kill()
            victim.start()
        view = rounds.until("r1", lambda view: view.has_ended)

    assert view.state == "done", view.reason
    assert view.version == rounds_to_make
    counted = Counter(one.counted_in for one in view.participants if one.state == "accepted")
    assert {one.version: one.accepted for one in view.versions if one.version} == counted
    asked = [(one.node, one.version) for one in view.participants]
    assert len(asked) == len(set(asked))
    lost = [one for one in view.participants if one.state in ("received", "late")]
    assert lost == [], "a reply that was kept is neither merged nor refused"
    allowed = {"", "superseded", "run_over", "duplicate"}
    assert {one.code for one in view.participants} | {one.code for one in view.refused} <= allowed
