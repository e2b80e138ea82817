"""Instructions to train that this node was given: what waits, what was begun, what is answered. Pure.

Owns the rules: the same instruction counts once, a newer one of its run replaces one that was not begun, time
counts while the machine is on. Must not know how training is done or where this is kept.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skerry.clock import Instant
from skerry.messages import FederationOver, FederationReply, FederationRequest

replace = msgspec.structs.replace
#: The answer to an instruction that a newer one replaced.
SUPERSEDED = "superseded"
#: Runs that may ask one node at the same time.
ASKED_LIMIT = 8
#: One instruction, as JSON.
REQUEST_LIMIT_BYTES = 2048
#: Ids of instructions that are done with, so that a repetition is known: far more than may be on their way.
KNOWN_LIMIT = 300
#: Updates kept for the uplink; more never wait, for a node that is cut off is asked nothing new.
UPDATES_KEPT = 16


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction. age_s: powered-on seconds since its receipt, as of the moment `at`."""

    request: FederationRequest
    at: Instant
    age_s: float = 0.0
    tries: int = 0  #: how often training was begun

    def age_at(self, now: Instant) -> float:
        """Return its age; what passed in an earlier boot counts as far as it was noted."""
        return self.age_s + max(0.0, now.since(self.at))


class TrainingState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that must survive: small enough for one named value of the store."""

    asked: tuple[Asked, ...] = ()  #: in the order of their coming
    known: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()  #: contents kept for the uplink, the oldest first

    def find(self, instruction_id: str) -> Asked | None:
        """Return an instruction that is not done with."""
        return next((one for one in self.asked if one.request.instruction_id == instruction_id), None)


def take(
    state: TrainingState, rows: Iterable[FederationRequest | FederationOver], now: Instant
) -> tuple[TrainingState, list[FederationReply]]:
    """Take rows in; return the state after them and what is answered at once."""
    answers: list[FederationReply] = []
    for row in rows:
        if isinstance(row, FederationOver):
            state = _over(state, row.run_id)
        else:
            state, said = _take(state, row, now)
            answers += said
    return state, answers


def _take(
    state: TrainingState, request: FederationRequest, now: Instant
) -> tuple[TrainingState, list[FederationReply]]:
    if request.instruction_id in state.known or state.find(request.instruction_id) is not None:
        return state, []
    against = _against(state, request)
    if against:
        return _done(state, request.instruction_id), [error_reply(request, against)]
    kept, replaced = _split(state, request)
    answers = [error_reply(one.request, SUPERSEDED) for one in replaced]
    for one in replaced:
        state = _done(state, one.request.instruction_id)
    return replace(state, asked=(*kept, Asked(request=request, at=now))), answers


def _against(state: TrainingState, request: FederationRequest) -> str:
    size = len(msgspec.json.encode(request))
    if size > REQUEST_LIMIT_BYTES:
        return f"the instruction has {size} bytes, {REQUEST_LIMIT_BYTES} are allowed"
    same_run = [one.request.version for one in state.asked if one.request.run_id == request.run_id]
    if any(version > request.version for version in same_run):
        return SUPERSEDED
    if not same_run and len({one.request.run_id for one in state.asked}) >= ASKED_LIMIT:
        return f"this node is asked by {ASKED_LIMIT} runs already"
    return ""


def _split(state: TrainingState, request: FederationRequest) -> tuple[list[Asked], list[Asked]]:
    """Part what stays from what the request replaces."""
    replaced = [one for one in state.asked if one.request.run_id == request.run_id and one.tries == 0]
    return [one for one in state.asked if one not in replaced], replaced


def _over(state: TrainingState, run_id: str) -> TrainingState:
    for one in state.asked:
        if one.request.run_id == run_id:
            state = _done(state, one.request.instruction_id)
    return state


def _done(state: TrainingState, instruction_id: str) -> TrainingState:
    asked = tuple(one for one in state.asked if one.request.instruction_id != instruction_id)
    return replace(state, asked=asked, known=(*state.known, instruction_id)[-KNOWN_LIMIT:])


def begun(state: TrainingState, instruction_id: str, *, by: int = 1) -> TrainingState:
    """Count a try. by: -1 takes one back that was ended in order."""
    asked = tuple(
        replace(one, tries=max(0, one.tries + by)) if one.request.instruction_id == instruction_id else one
        for one in state.asked
    )
    return replace(state, asked=asked)


def ended(state: TrainingState, instruction_id: str) -> TrainingState:
    """Be done with an instruction."""
    return _done(state, instruction_id)


def kept(state: TrainingState, update: str) -> tuple[TrainingState, tuple[str, ...]]:
    """Keep a content for the uplink; return the state and what need not be kept any longer."""
    updates = (*(name for name in state.updates if name != update), update)
    return replace(state, updates=updates[-UPDATES_KEPT:]), updates[:-UPDATES_KEPT]


def aged(state: TrainingState, now: Instant) -> TrainingState:
    """Note the ages as of now, and drop what is too old for an answer to be wanted."""
    for one in state.asked:
        if one.age_at(now) > one.request.ttl_s:
            state = _done(state, one.request.instruction_id)
    return replace(state, asked=tuple(replace(one, at=now, age_s=one.age_at(now)) for one in state.asked))


def error_reply(request: FederationRequest, error: str) -> FederationReply:
    """Return the answer to an instruction that came to nothing."""
    return FederationReply(
        instruction_id=request.instruction_id,
        run_id=request.run_id,
        version=request.version,
        error=error[:500],
    )
