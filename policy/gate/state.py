"""What the gate knows of one trial: plain, serialisable, changed by the core only. Survives restarts."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from policy.gate.evidence import Bets
from policy.gate.settings import GateSettings


class Stage(StrEnum):
    """How much a candidate decides."""

    OFF = "off"  #: there is none: the fallback decides everything
    SHADOW = "shadow"  #: it chooses beside the fallback, which decides everything
    CANARY = "canary"  #: it decides one block of several
    PARTIAL = "partial"  #: it decides half of the blocks
    FULL = "full"  #: it decides all blocks but a few that keep up the comparison
    ROLLED_BACK = "rolled_back"  #: it was taken away, with the reason: the fallback decides everything


#: The order in which shares grow.
NEXT = {Stage.SHADOW: Stage.CANARY, Stage.CANARY: Stage.PARTIAL, Stage.PARTIAL: Stage.FULL}
#: Stages in which the candidate decides some blocks.
LIVE = frozenset({Stage.CANARY, Stage.PARTIAL, Stage.FULL})


class Arm(StrEnum):
    """Who decides."""

    FALLBACK = "fallback"
    CANDIDATE = "candidate"


class Tally(msgspec.Struct, kw_only=True):
    """What came of one block's (or one arm's) counted decisions."""

    tasks: int = 0
    missed: int = 0
    cost: float = 0.0
    latency: float = 0.0  #: in deadlines (or nominal ones)

    def add(self, other: Tally) -> None:
        """Take another tally's figures in."""
        self.tasks += other.tasks
        self.missed += other.missed
        self.cost += other.cost
        self.latency += other.latency


class Block(msgspec.Struct, kw_only=True):
    """A stretch of decisions by one arm."""

    arm: Arm
    decided: int = 0  #: burn-in included
    counted: int = 0
    tally: Tally = msgspec.field(default_factory=Tally)


class Cell(msgspec.Struct, kw_only=True):
    """A few blocks, one of them (`odd`, drawn at random) the rarer arm's."""

    index: int
    stage: Stage
    odd: int
    running: int = 0  #: index of the running block
    blocks: list[Block]


class Weighed(msgspec.Struct, kw_only=True):
    """Choices of the candidate beside the fallback's for the same tasks; costs as the latter expects."""

    decisions: int = 0
    candidate_cost: float = 0.0
    fallback_cost: float = 0.0


class GateState(msgspec.Struct, kw_only=True):
    """Everything of one trial but the tasks that are under way."""

    policy: str = ""  #: version hash
    stage: Stage = Stage.OFF
    reason: str = ""  #: why it is in this stage
    settings: GateSettings = GateSettings()
    seed: int = 0
    cells_begun: int = 0
    stage_cells: int = 0  #: compared since the stage began
    cells: list[Cell] = msgspec.field(default_factory=list)  #: the running one last, unsettled ones before it
    weighed: Weighed = msgspec.field(default_factory=Weighed)  #: since the last look at it
    weighed_in_all: int = 0
    agreed: int = 0  #: of those, how often both chose the same
    harm: dict[str, list[Bets]] = msgspec.field(default_factory=dict)  #: by channel
    good: Bets = msgspec.field(default_factory=Bets)
    arms: dict[Arm, Tally] = msgspec.field(default_factory=lambda: {arm: Tally() for arm in Arm})
    decisions: dict[Arm, int] = msgspec.field(default_factory=lambda: dict.fromkeys(Arm, 0))
    failures: dict[str, int] = msgspec.field(default_factory=dict)  #: of the candidate, by kind
    recent_failures: int = 0  #: those that are not forgiven
    good_answers: int = 0  #: since the last failure
    starts: int = 0  #: of the agent, not followed by an orderly stop or a compared cell
