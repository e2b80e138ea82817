"""What each answer of the store means for the window. The same for commits of the core and of others."""

from __future__ import annotations

from edge_agent.core.actions import Notify
from edge_agent.core.attempts import run, stop
from edge_agent.core.deciding import admit
from edge_agent.core.entry import ALIVE, Entry, Phase
from edge_agent.core.ruling import Decider
from edge_agent.core.starting import let_content_go
from edge_agent.core.state import Turn
from edge_agent.core.storage import commit
from skerry.ids import TaskId
from task_queue.operations import (
    Advance,
    Advanced,
    Answer,
    Cancel,
    Changed,
    Claim,
    Claimed,
    Drop,
    Enqueue,
    Enqueued,
    Fail,
    Finish,
    HandOver,
    Ok,
    Operation,
    Park,
    PutRecurring,
    Refused,
    RefusePlacement,
    Release,
    Replay,
    Return,
    Start,
    Started,
)
from task_queue.task import FINAL
from task_queue.task import State as TaskState

#: Reports about a task on its way out of the window.
_LEAVING = (Finish, Fail, Park, HandOver, RefusePlacement, Release)


def take_answer(turn: Turn, operation: Operation, answer: Answer, decide: Decider) -> None:
    """Bring the window in line with what the store did (or refused to do)."""
    match operation, answer:
        case Enqueue(), Enqueued():  # the most frequent one by far
            _enqueued(turn, operation)
        case Claim(), Claimed():
            _claimed(turn, answer, decide, limit=operation.limit)
        case Advance(), Advanced():
            _advanced(turn, answer)
        case Start(), Started():
            _started(turn, answer)
        case Start(), _:
            _not_started(turn, operation.task_id, answer)
        case ((Finish() | Fail() | Park() | HandOver() | RefusePlacement() | Release()), _):
            _left(turn, operation, answer)
        case ((Cancel() | Drop()), Changed()):
            _notify(turn, answer)
            end_here(turn, answer.task_id)
        case Enqueue(), Refused(reason="full"):
            # Ended tasks are only forgotten when time is looked at: who was refused may soon find room.
            look_again_by(turn, turn.state.limits.full_retry_s)
        case PutRecurring(), Ok():
            look_again_by(turn, 0.0)
        case Replay(), Changed():
            turn.state.want_claim = True
            _notify(turn, answer)
        case _, Changed() as changed:
            _notify(turn, changed)
        case Return(), Refused(reason=reason):
            turn.state.count(f"returns_{reason}")
        case _:
            pass


def _notify(turn: Turn, answer: Changed, *, may_unblock: bool = True) -> None:
    if may_unblock and answer.state in FINAL:
        turn.state.want_claim = True  # the next task with its ordering key may be ready now
    turn.act(Notify(task_id=answer.task_id, state=answer.state))


def _claimed(turn: Turn, answer: Claimed, decide: Decider, *, limit: int) -> None:
    state = turn.state
    state.claim_in_flight = False
    state.want_claim = state.want_claim or len(answer.tasks) >= limit
    if state.is_stopping:
        return  # the lease lives in memory only: it ends with this process
    for claimed in answer.tasks:
        present = state.entries.get(claimed.task_id)
        if present is None:
            admit(turn, claimed, decide)
        else:
            present.successor = claimed  # the old attempt's process must be seen to end first


def _advanced(turn: Turn, answer: Advanced) -> None:
    state = turn.state
    state.advance_in_flight = False
    due = state.limits.advance_every_s if answer.next_due_in_s is None else answer.next_due_in_s
    state.advance_at = turn.uptime_s + min(max(due, 0.01), state.limits.advance_every_s)
    # Whatever ended may have unblocked another task; and a wake-up that was missed is made up for here.
    state.want_claim = True
    for task_id in answer.fired:
        turn.act(Notify(task_id=task_id, state=TaskState.READY))
    for task_id, _was in answer.expired:
        turn.act(Notify(task_id=task_id, state=TaskState.EXPIRED))
        end_here(turn, task_id)
    for task_id, _was in answer.given_up:
        turn.act(Notify(task_id=task_id, state=TaskState.UNKNOWN))
    for task_id, _was in answer.dropped:
        turn.act(Notify(task_id=task_id, state=TaskState.CANCELLED))
        end_here(turn, task_id)


def _started(turn: Turn, answer: Started) -> None:
    entry = turn.state.entries.get(answer.task_id)
    if entry is None or entry.phase is not Phase.STARTING:
        return
    if entry.is_gone:
        _release(turn, entry)
        return
    turn.act(Notify(task_id=answer.task_id, state=TaskState.RUNNING))
    run(turn, entry, answer.fence)


def _left(turn: Turn, operation: Operation, answer: Answer) -> None:
    state = turn.state
    assert isinstance(operation, _LEAVING)
    entry = state.entries.get(operation.task_id)
    # An end makes nothing ready unless others wait for its key: a claim would find what the last one left.
    is_alone = entry is not None and entry.task.ordering_key is None
    may_unblock = not (is_alone and isinstance(answer, Changed) and answer.state in FINAL)
    match answer:
        case Changed():
            _notify(turn, answer, may_unblock=may_unblock)
            if answer.state is TaskState.DELAYED and isinstance(operation, Fail):
                look_again_by(turn, operation.retry_after_s)
        case Refused(reason="too_large") if isinstance(operation, Finish) and entry is not None:
            _fail_too_large(turn, operation, answer)
            return
        case Refused(reason="full"):
            _keep_for_later(turn, operation)
            return
        case Refused():
            state.count(f"refused_{answer.reason}")
        case _:
            pass
    wants_claim = state.want_claim or may_unblock
    if entry is not None and entry.phase not in ALIVE:
        _release(turn, entry)
    state.want_claim = wants_claim


def _fail_too_large(turn: Turn, operation: Finish, answer: Refused) -> None:
    outcome = operation.outcome
    fields = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
    failed = type(outcome)(**{**fields, "status": "failed", "result": None, "error": answer.message})
    commit(turn, Fail(task_id=operation.task_id, fence=operation.fence, outcome=failed, may_retry=False))


def _keep_for_later(turn: Turn, operation: Operation) -> None:
    """The queue's cap leaves no room for a report: treat it as a disk that refuses, until there is room."""
    turn.state.count("refused_full")
    turn.state.storage.deferred.append(operation)
    turn.state.storage.deferred_until = turn.uptime_s + turn.state.limits.full_retry_s


def _enqueued(turn: Turn, operation: Enqueue) -> None:
    turn.state.want_claim = True
    task = operation.task
    for due in (task.delay_s, task.expires_after_s, operation.lease_s):
        if due is not None:
            look_again_by(turn, due)


def look_again_by(turn: Turn, in_s: float) -> None:
    """Have the store look at the time no later than in `in_s` seconds."""
    turn.state.advance_at = min(turn.state.advance_at, turn.uptime_s + in_s)


def end_here(turn: Turn, task_id: TaskId) -> None:
    """The store has ended or dropped a task: stop its process, or take it out of the window."""
    entry = turn.state.entries.get(task_id)
    if entry is None:
        return
    if entry.phase in ALIVE:
        entry.is_gone = True
        stop(turn, entry, "gone")
    elif entry.phase in (Phase.STARTING, Phase.ENDING, Phase.LEAVING):
        entry.is_gone = True
    else:
        _release(turn, entry)


def _not_started(turn: Turn, task_id: TaskId, answer: Answer) -> None:
    if isinstance(answer, Changed):  # its time ran out before the commit
        _notify(turn, answer)
    entry = turn.state.entries.get(task_id)
    if entry is not None and entry.phase is Phase.STARTING:
        turn.state.count("starts_refused")
        _release(turn, entry)


def _release(turn: Turn, entry: Entry) -> None:
    if entry.phase is not Phase.ENDING:  # there it was let go with its process
        let_content_go(turn, entry)
    turn.state.remove(entry)
