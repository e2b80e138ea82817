"""What a device did lately, as the learned policy sees it: the same figures in the agent and in the engine.

Owns how fast they are forgotten and from what they begin. Must not know who counts: an engine keeps arrays of
these figures, an agent one History a device.
"""

from __future__ import annotations

import msgspec

#: How fast it is forgotten where tasks went and whether they were in time: twenty tasks or so decide.
RECENT = 0.05
#: The same for measured against expected run times: five runs or so.
LEARN = 0.2


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One device's history. Begins as an episode of the engine does: expectations hold, none missed."""

    prediction: float = 1.0  #: recent measured / expected run time, without what loading a model took
    share: float = 0.0  #: share of the node's recent tasks that came here
    misses: float = 0.0  #: share of recent runs here that ended after their task's deadline


#: Of a device of which nothing is known yet.
UNKNOWN = History()


def after_choice(history: History, *, is_chosen: bool) -> History:
    """Return a device's history after the node has given a task to one of its devices."""
    return msgspec.structs.replace(history, share=history.share * (1.0 - RECENT) + RECENT * is_chosen)


def after_run(history: History, *, ratio: float | None, has_missed: bool) -> History:
    """Return a device's history after a run on it.

    ratio: measured / expected run time; None: it says nothing of how good expectations are.
    """
    learned = 0.0 if ratio is None else LEARN * (ratio - history.prediction)
    return msgspec.structs.replace(
        history,
        prediction=history.prediction + learned,
        misses=history.misses + RECENT * (has_missed - history.misses),
    )
