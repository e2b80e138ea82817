"""How much a candidate policy is trusted with, and what it must show. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(gt=0, lt=1)]


class GateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial's terms. The figures that follow from the defaults are in docs/explanation/gate.md."""

    #: Decisions that the candidate only makes beside the fallback before it may decide anything.
    shadow_decisions: Annotated[int, Meta(ge=0, le=10_000)] = 20
    #: A block of one arm ends after so many counted decisions ...
    block_decisions: Annotated[int, Meta(ge=1, le=1000)] = 6
    #: ... or when it is so old and has at least one.
    block_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    #: The first decisions of a block are not counted while the other arm's last is younger than burn_in_s.
    burn_in_decisions: Annotated[int, Meta(ge=0, le=1000)] = 2
    burn_in_s: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    #: Blocks in a cell; one block of each cell, drawn at random, is the rarer arm's.
    canary_blocks: Annotated[int, Meta(ge=2, le=64)] = 4  #: one is the candidate's: a share of 1/4
    partial_blocks: Annotated[int, Meta(ge=2, le=64)] = 2  #: half and half
    full_blocks: Annotated[int, Meta(ge=2, le=64)] = 10  #: one is the fallback's, to go on comparing
    #: Evidence (an e-value of its inverse) at which a candidate is rolled back during the trial.
    harm_alpha: Share = 0.02
    #: Under full: false alarms come at most once in 1/alarm_alpha cells on average.
    alarm_alpha: Share = 0.001
    #: Evidence at which a candidate is good enough for the next share at once.
    pass_alpha: Share = 0.05
    #: Counts as good enough: worse in this much of a rank (0 none, 1 always the worst block of its cell).
    pass_margin: Annotated[float, Meta(ge=0, lt=1)] = 0.2
    #: Without a verdict after so many cells a stage ends: on unless the figures lean towards harm.
    stage_cells: Annotated[int, Meta(ge=1, le=10_000)] = 40
    least_cells: Annotated[int, Meta(ge=1, le=10_000)] = 6  #: before anything but harm is said
    #: The figures lean towards harm above this e-value together with a cost above tolerance.
    lean_evidence: Annotated[float, Meta(ge=1)] = 10.0
    tolerance: Annotated[float, Meta(ge=0, le=10)] = 0.02  #: relative excess that is taken as equal
    #: So much cost (1 is a missed deadline), so many misses or deadlines of latency a task are nothing.
    indifference: Annotated[float, Meta(gt=0, le=1)] = 0.002
    #: A decision of the candidate that takes longer is not taken and counts as a failure.
    slow_ms: Annotated[float, Meta(gt=0, le=60_000)] = 50.0
    failures: Annotated[int, Meta(ge=1, le=1000)] = 3  #: failed decisions that end the trial ...
    forgiven_after: Annotated[int, Meta(ge=1)] = 1000  #: ... unless so many good ones lie between
    #: Starts of the agent without an orderly stop between two compared cells that end the trial.
    crashes: Annotated[int, Meta(ge=1, le=100)] = 3
    #: Every so many choices of the candidate are weighed as the fallback expects them to turn out: a multiple
    #: of the fallback's cost that is also this much more a task (1 is a missed deadline) is not plausible.
    plausible_decisions: Annotated[int, Meta(ge=1, le=10_000)] = 20
    implausible_ratio: Annotated[float, Meta(gt=1)] = 3.0
    implausible_cost: Annotated[float, Meta(ge=0)] = 0.05
    #: A task counts as missed when it has not ended this many deadlines after its decision.
    overdue_deadlines: Annotated[float, Meta(ge=1, le=100)] = 3.0
