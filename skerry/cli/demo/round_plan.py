"""The fleet of the round demo, its run and its gates: numbers only, chosen so that it ends within minutes.

A gate this short sees a few dozen decisions where the default one sees a thousand: it shows the way a policy
takes, and finds what is clearly worse; it proves no fine difference. docs/explanation/learning-loop.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from skerry.cli.demo.fleet import NodePlan

_TRAINING: dict[str, object] = {"training.enabled": True, "training.patience_s": 2.0}
PLANS = (
    NodePlan(name="quay-1", region="north", boards=("hailo-8l",), settings=_TRAINING),
    NodePlan(name="quay-2", region="north", boards=("hailo-8l", "micro-npu"), settings=_TRAINING),
    NodePlan(name="reef-1", region="south", boards=("coral-usb",), settings=_TRAINING),
    NodePlan(
        name="reef-2",
        region="south",
        boards=("coral-usb", "micro-npu"),
        is_cuttable=True,
        settings=_TRAINING,
    ),
)
CUT_OFF = "reef-2"
CANARY = "quay-2"
#: Seconds between two tasks; the canary's node gets more of them, since its gate learns from decisions.
PAUSE_S = dict.fromkeys((plan.name for plan in PLANS), 0.6) | {CANARY: 0.25}
#: Every task's: what completion times are measured in, by the schedulers and the gates.
TASK_DEADLINE_S = 0.5
#: What the canary's node begins with.
WARM_UP = ("file-type-on-npu", "pitch-on-npu") * 4
#: Finished tasks that every node has before the first round: what it trains on is its own.
ARRIVALS = 40

ROUNDS = 3
DEADLINE_S = 60.0
SEED = 7
RUN_OPTIONS = (
    *("--trainer", "ppo", "--rounds", str(ROUNDS), "--quorum", "2", "--deadline", f"{DEADLINE_S:g}"),
    *("--seed", str(SEED), "--set", "ppo.tasks=24", "--set", "ppo.updates=3", "--set", "ppo.streams=2"),
    *("--set", "ppo.copies=8", "--set", "ppo.epochs=2", "--set", "ppo.minibatch=192"),
    *("--set", "ppo.rate=0.0001"),
)

#: Held-out scenarios on which the registry judges a version; the default is 200 on each of two sizes.
DEVICES, SCENARIOS = "8", 64

#: What both gates share. indifference: a fiftieth of a deadline, 10 ms, counts as equal where several nodes
#: share one machine.  slow_ms: for the same reason.
_SHORT = {
    "shadow_decisions": 10,
    "block_decisions": 2,
    "burn_in_decisions": 1,
    "burn_in_s": 1.0,
    "canary_blocks": 2,
    "indifference": 0.02,
    "slow_ms": 2000,
}
#: Of the run's version: stages end after eight comparisons, on unless the figures clearly say harm. The
#: thresholds are higher than usual: by chance alone, one demo in a hundred would be rolled back at most.
GATE = {**_SHORT, "least_cells": 4, "stage_cells": 8, "harm_alpha": 0.005, "lean_evidence": 100}
#: Of the version that is worse: long enough to find it, with a threshold that a few dozen tasks can reach.
#: What is expected of its choices is not held against it: it would often end before it has decided anything.
WATCHFUL_GATE = {
    **_SHORT,
    "least_cells": 30,
    "stage_cells": 60,
    "harm_alpha": 0.1,
    "implausible_cost": 1000,
}
#: What that means, for those who read the demo's figures.
SWITCHED_OFF = "whether its choices are plausible"


def coordinator_settings(signer: str) -> dict[str, object]:
    """Return the coordinator's settings.  signer: public key of the operator, whose policies it takes."""
    return {
        "policies.signers": [signer],
        "policies.devices": DEVICES,
        "policies.scenarios": SCENARIOS,
        "federation.devices": DEVICES,
        "federation.scenarios": SCENARIOS,
    }


def gate_options(gate: Mapping[str, float]) -> tuple[str, ...]:
    """Return a gate as options of `skerry rollout start`."""
    return tuple(word for name, value in gate.items() for word in ("--gate", f"{name}={value:g}"))
