"""What the coordinator's HTTP API says of federated rounds: documents for the service and its clients.

Pure values. States are text here, so that an older client can read a newer service's.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skerry.documents import Document

Seconds = Annotated[float, Meta(gt=0, le=366 * 86400)]


class RoundAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run to start. What is left out is drawn, or the default."""

    name: str = ""  #: a-z, 0-9 and inner hyphens; empty: drawn
    trainer: Literal["ppo", "toy", "null"] = "ppo"
    strategy: Literal["synchronous", "buffered"] = "synchronous"
    rounds: Annotated[int, Meta(ge=1, le=100_000)] = 3  #: versions to make
    quorum: Annotated[int, Meta(ge=1, le=100_000)] = 2  #: accepted replies without which no version is made
    deadline_s: Seconds = 600.0  #: from a version's first instruction until it closes
    patience_s: Seconds = 24 * 3600.0  #: how long it waits for `quorum` nodes that may take part
    seed: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    nodes: tuple[str, ...] = ()  #: empty: every node that takes part in training
    regions: tuple[str, ...] = ()
    #: A policy of the registry to begin with: its hash or first digits; empty: the trainer's own beginning.
    base: str = ""
    max_staleness: Annotated[int, Meta(ge=0, le=1000)] = 3  #: versions a reply may be behind
    config: dict[str, bool | int | float | str] = {}  #: for the trainer


class Participant(Document, frozen=True, kw_only=True):
    """One instruction and its reply. state: open, superseded, received, late, accepted or refused."""

    node: str
    version: int  #: the version it was asked to train from
    state: str
    counted_in: int | None = None  #: the version its reply was merged into
    is_late: bool = False
    examples: int = 0
    weight: float = 0.0
    staleness: int = 0
    code: str = ""  #: of a refusal
    reason: str = ""
    metrics: dict[str, float]


class RoundVersion(Document, frozen=True, kw_only=True):
    """A version that was made. model: content hash of its packet of parameters."""

    version: int
    model: str
    accepted: int
    refused: int
    metrics: dict[str, float]
    wall_s: float


class Refused(Document, frozen=True, kw_only=True):
    """Replies that were refused, counted."""

    node: str
    code: str
    reason: str
    count: int


class RoundPolicy(Document, frozen=True, kw_only=True):
    """What became of the last version as a policy. state: exporting, offered, failed; empty: nothing yet."""

    state: str = ""
    policy: str = ""  #: file hash
    reason: str = ""


class RoundView(Document, frozen=True, kw_only=True):
    """One run. Participants, versions and refusals are left out of lists."""

    name: str
    state: str
    reason: str  #: why it waits, or how it ended
    trainer: str
    strategy: str
    rounds: int
    version: int  #: the newest one made; 0 is the beginning
    quorum: int
    deadline_s: float
    patience_left_s: float
    base_policy: str
    created_wall_s: float
    ended_wall_s: float
    is_worked_on: bool = False  #: its worker runs
    eligible: tuple[str, ...] = ()  #: nodes that would be asked now
    participants: tuple[Participant, ...] = ()
    versions: tuple[RoundVersion, ...] = ()
    refused: tuple[Refused, ...] = ()
    policy: RoundPolicy = RoundPolicy()

    @property
    def has_ended(self) -> bool:
        """It is done, failed or cancelled."""
        return self.state in ENDED


#: States that nothing follows.
ENDED = ("done", "failed", "cancelled")


class RoundList(Document, frozen=True, kw_only=True):
    """Every run, newest first. off: why no run can be started here; empty: one can."""

    rounds: tuple[RoundView, ...]
    off: str = ""
