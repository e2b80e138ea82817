"""What a scenario asks for beside the laws: how soon, how often, who. Plain values; absent: not looked at."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]


class Expect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario's `[expect]`: what is not kept is reported like a broken law, as law 0."""

    drain_begins_s: Seconds | None = None  #: from a link's return to the first row taken, where some wait
    drained_s: Seconds | None = None  #: from a fault's end to an empty outbox, at each node that it hit
    live_s: Seconds | None = None  #: from a link's return to the first row that came after it, whatever waits
    first_attempt_s: Seconds | None = None  #: from an agent's restart to its first attempt
    attempts: Count | None = None  #: of one task, at most
    placements: Count | None = None  #: of one task, at most
    takeovers: Count | None = None  #: of one name at the broker, at most
    returns_per_s: Count | None = None  #: nodes that came back within one second, at most
    sheddings: Count | None = None  #: how often the coordinator held its nodes back, at least
    refusals: Count | None = None  #: answers "no" to producers, at most
    gone: Count | None = None  #: tasks that went with a damaged disk, at most; without damage none may go
    salvages: Count | None = None  #: damaged queues of which the coordinator was told, exactly
    objects_grown: Count | None = None  #: objects held more at the end than after a quarter, at most
    rollouts: dict[str, str] = {}  #: version → the states its rollout went through, in order
    rollout_s: Seconds | None = None  #: until each rollout was over, at most
    online: str = ""  #: who is never called stale or lost
    quarantined: str = ""  #: who was put into quarantine, and nobody else
    ended: dict[str, Count] = {}  #: so many tasks ended so, at least
