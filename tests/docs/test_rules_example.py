"""The rules that the how-to guide shows are sound, and forbid what the guide says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from policy.guard.rego import RegoGuard
from policy.guard.sources import SHIPPED, read_rules
from policy.testing import a_device, a_view
from skerry.node import Device
from skerry.task import Resources, TaskSpec
from skerry.testing import a_task

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-your-own-rules.md"
REAL, EMULATED = a_device("npu", "npu-1"), a_device("npu", "npu-2", emulated=True)


@pytest.fixture
def guard(tmp_path: Path) -> RegoGuard:
    """The guard over a copy of the shipped rules, changed as the guide says."""
    rules = tmp_path / "rules"
    shutil.copytree(SHIPPED, rules, ignore=shutil.ignore_patterns("*_test.rego"))
    examples = dict(re.findall(r"^```(json|rego)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    (rules / "data.json").write_text(examples["json"])
    (rules / "night.rego").write_text(examples["rego"])
    return RegoGuard(read_rules(rules))


def forbidden(guard: RegoGuard, task: TaskSpec, device: Device) -> set[str]:
    """The names of the rules that forbid a device."""
    [verdicts] = guard.verdicts(task, a_view(device), [device])
    return {verdict.rule for verdict in verdicts if not verdict.allowed}


def test_the_rule_of_the_guide_forbids_emulated_boards_to_paid_work(guard: RegoGuard) -> None:
    paid = a_task(sla="paid")

    assert forbidden(guard, paid, EMULATED) == {"no-emulation"}
    assert forbidden(guard, paid, REAL) == set()
    assert forbidden(guard, a_task(), EMULATED) == set()


def test_the_data_of_the_guide_cap_the_memory_of_guests(guard: RegoGuard) -> None:
    large = Resources(memory_bytes=1 << 30)

    assert forbidden(guard, a_task(tenant="guests", resources=large), REAL) == {"memory-cap"}
    assert forbidden(guard, a_task(tenant="others", resources=large), REAL) == set()
