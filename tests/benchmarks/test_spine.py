"""The spine's benchmark on a real fleet, with the fewest samples there can be: every figure comes."""

from __future__ import annotations

import io

import pytest

from benchmarks.harness import Result, Run
from benchmarks.spine import measure

#: Figures of which every one must come: a benchmark that silently lost one would still look well.
EXPECTED = {
    "spine.memory.agent_mb",
    "spine.memory.agent_anonymous_mb",
    "spine.memory.child_mb",
    "spine.memory.policy_idle_mb",
    "spine.memory.policy_busy_mb",
    "spine.memory.policy_peak_mb",
    "spine.command.p50_ms",
    "spine.onnx.p50_ms",
    "spine.placement.p50_ms",
    "spine.start.ready_s",
    "spine.submits.waiters_1_per_s",
    "spine.submits.waiters_64_per_s",
}
#: Parts and maxima of what stands beside a peer.
WITHOUT_PEER = {
    "spine.memory.agent_anonymous_mb",
    "spine.memory.child_mb",
    "spine.memory.policy_busy_mb",
    "spine.memory.policy_peak_mb",
}


class TinyRun(Run):
    """Takes two samples of everything."""

    def size(self, full: int, quick: int) -> int:
        """Two."""
        return 2

    def duration_s(self, full: float, quick: float) -> float:
        """A tenth of a second."""
        return 0.1


@pytest.mark.chaos
def test_the_spine_yields_every_figure_with_its_baseline() -> None:
    results: list[Result] = list(measure(TinyRun(progress=io.StringIO())))

    found = {one.id: one for one in results}
    assert len(found) == len(results)
    assert found.keys() >= EXPECTED
    assert all(one.value > 0 for one in results if one.id != "spine.submits.overhead_ms")
    assert all(found[name].baseline for name in EXPECTED - WITHOUT_PEER)
    assert found["spine.memory.policy_idle_mb"].value < found["spine.memory.policy_peak_mb"].value
