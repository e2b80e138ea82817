"""What the registry asks of a version, and whose signature it takes. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Learned policies: who may bring one, and what it must show before a node tries it."""

    signers: tuple[str, ...] = ()  #: public keys (hex) whose policies are taken, besides our own
    #: The scheduler that a version must beat: the one that nodes fall back to.
    against: str = "min-increase"
    #: Upper 95 % bound of (policy's cost / the scheduler's) must be below this.
    beats_below: Annotated[float, Meta(gt=0, le=10)] = 1.0
    devices: str = "8,16"  #: sizes of site to evaluate on, with commas
    scenarios: Annotated[int, Meta(ge=2, le=100_000)] = 200  #: of each size, held out from training
    evaluation_s: Annotated[float, Meta(gt=0, le=86_400)] = 900.0  #: what evaluating one may take
