"""The core's numbers, in one place. Every waiting state of a task names its way out here."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and patience of the core; all durations in powered-on seconds."""

    window: int = 256  #: ready tasks leased into memory and decided on entry
    #: Above the window, when a device idles while the window is full of work for others.
    window_stretch: int = 4
    claim_batch: int = 64  #: room that must be free before the next claim, unless a device idles
    advance_every_s: float = 30.0  #: time is looked at in the store at least this often
    redecide_first_s: float = 1.0
    redecide_most_s: float = 30.0
    #: A task that no device here takes for this long is offered to the coordinator.
    handover_after_s: float = 60.0
    content_s: float = 300.0  #: one try to get a task's content
    content_retry_first_s: float = 1.0
    content_retry_most_s: float = 60.0
    #: A task passed over for this long because it needs much goes before all others.
    starve_after_s: float = 30.0
    retry_base_s: float = 1.0  #: full jitter: 0 … base × 2^attempts
    retry_most_s: float = 300.0
    #: Beyond max_runtime_s, which the executor enforces: then the core asks it to stop.
    overtime_s: float = 5.0
    stop_s: float = 10.0  #: from asking to stop to ending by force, and from there to giving up on it
    storage_retry_first_s: float = 0.5
    storage_retry_most_s: float = 15.0
    full_retry_s: float = 2.0  #: a report that found the queue at its size cap is written again after this
    stop_grace_s: float = 20.0  #: what running attempts get when the agent stops
    story: int = 1000  #: events remembered for a report of what went wrong
