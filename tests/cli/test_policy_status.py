"""`skerry policy status` in words and for programs."""

from __future__ import annotations

import json
from typing import Any

from skerry.documents import PolicyStatus

ON_TRIAL = PolicyStatus(
    policy="sha256:" + "a" * 64,
    version="a" * 12,
    state="canary",
    fallback="min-increase",
    rollout="r-1",
    reason="20 decisions beside the fallback without a failure",
    is_loaded=True,
    decisions={"fallback": 90, "candidate": 30},
    failures={"slow": 1},
    evidence={"candidate_tasks": 20.0, "candidate_cost": 0.11, "fallback_cost": 0.1},
)


def test_without_a_policy_it_says_so(agent: Any, skerry: Any) -> None:
    said = skerry("policy", "status")

    assert said.exit_code == 0
    assert "policy    none" in said.stdout


def test_a_policy_on_trial_shows_both_arms(agent: Any, skerry: Any) -> None:
    agent.facade.policy = ON_TRIAL
    words = skerry("policy", "status").stdout

    assert "decisions  fallback 90, candidate 30" in words
    assert "not taken  slow 1" in words
    assert "cost a task\t0.11\t0.1" in words


def test_programs_get_everything(agent: Any, skerry: Any) -> None:
    agent.facade.policy = ON_TRIAL

    assert json.loads(skerry("policy", "status", "--json").stdout)["evidence"]["candidate_cost"] == 0.11
