"""The knobs of placement, as they stand under `[placement]` in the coordinator's settings."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Weight = Annotated[float, Meta(ge=0, le=1000)]


class PlacementSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much may wait on a node, what a good place is, and how large one batch may be."""

    #: Tasks that may be placed on a device at once, for each of its slots: one runs, the others wait there.
    queue_depth: Annotated[int, Meta(ge=1, le=10_000)] = 16
    #: Memory that may be promised on a node, as a multiple of what it has; a waiting task takes none.
    memory_overcommit: Annotated[float, Meta(ge=1, le=1000)] = 4.0
    weight_completion: Weight = 3.0  #: finishing early
    weight_locality: Weight = 2.0  #: staying near the data, the more the larger they are
    weight_spread: Weight = 1.0  #: leaving room on every node
    kept_candidates: Annotated[int, Meta(ge=1, le=10_000)] = (
        16  #: in the record of a placement that succeeded
    )
    batch_limit: Annotated[int, Meta(ge=1)] = 500  #: tasks in one plan; the others wait for the next one
    evaluation_limit: Annotated[int, Meta(ge=1)] = 200_000  #: (task, node) pairs in one plan
