"""Decisions in a story: short as they are written, told as they were made, also by earlier versions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skerry.decision import Candidate, Decision
from skerry.ids import TaskId
from task_queue.decisions import kept
from task_queue.story import Detail, EventRow, events_of, packed_detail

TASK = TaskId("01a22ecfc0b851aa6b67b16215f98715")
HERE = Candidate(node="n1", device="cpu-0", device_class="cpu", score=0.5)
ELSEWHERE = Candidate(node="n2", device="npu-0", device_class="npu")


def told(detail: bytes | None) -> Decision | None:
    (event,) = events_of([EventRow(1, None, 1.0, 1.0, "started", detail)], TASK)
    return event.decision


@pytest.mark.parametrize("candidates", [(), (HERE,), (HERE, ELSEWHERE)])
@pytest.mark.parametrize("rest", [{}, {"gate_state": "shadow"}, {"gap_to_bound": 0.5}])
def test_a_decision_is_told_as_it_was_made(candidates: tuple[Candidate, ...], rest: dict[str, Any]) -> None:
    made = Decision(
        task_id=TASK, decided_by="baseline:x", node="n1", device="cpu-0", candidates=candidates, **rest
    )

    assert told(packed_detail(Detail(decision=kept(made)))) == made


def test_a_decision_with_names_as_earlier_versions_wrote_it_is_told_too() -> None:
    written = {
        "by": "rule:x",
        "node": "n1",
        "reason": "free",
        "candidates": [["cpu-0", "cpu", 0.5]],
        "gap": 1.0,
    }

    decision = told(msgspec.json.encode({"fence": "-/1", "decision": written}))

    assert decision == Decision(
        task_id=TASK, decided_by="rule:x", node="n1", reason="free", candidates=(HERE,), gap_to_bound=1.0
    )
