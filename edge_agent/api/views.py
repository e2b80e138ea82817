"""From the queue's records to the documents of the API. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from policy.filters import in_units
from skerry.decision import Decision, explain
from skerry.documents import AttemptView, Explanation, TaskPage, TaskView
from skerry.queue_documents import RecurringView
from skerry.task import Accelerator, TaskSpec
from task_queue.recurring_row import RecurringRecord
from task_queue.store import Attempt, TaskRecord
from task_queue.task import FINAL, State

_STATE_IN_WORDS = {
    State.DELAYED: "waits until it is due",
    State.BLOCKED: "waits for an older task with its ordering key",
    State.READY: "is ready and waits for its turn",
    State.LEASED: "is in the scheduling window",
    State.RUNNING: "runs",
    State.HANDED_OVER: "was handed over to the coordinator",
    State.DONE: "has succeeded",
    State.DEAD: "has failed for good; `skerry tasks replay` makes it ready again",
    State.EXPIRED: "ran out of time",
    State.CANCELLED: "was cancelled",
    State.UNKNOWN: "was interrupted; it may or may not have taken effect, and is not run again",
}

_DEVICES_IN_WORDS: dict[Accelerator, str] = {
    "any": "whichever device is best",
    "none": "the CPU",
    "gpu": "a GPU",
    "npu": "an NPU",
    "tpu": "a TPU",
}


def task_view(record: TaskRecord, *, is_whole: bool = True) -> TaskView:
    """Return the document of one task; is_whole: with the task as submitted and its attempts."""
    return TaskView(
        task_id=record.task_id,
        state=record.state.value,
        kind=record.task.kind,
        tenant=record.task.tenant,
        attempt=record.attempt,
        accepted_wall_s=record.accepted_wall_s,
        ended_wall_s=record.ended_wall_s,
        fence=None if record.fence is None else str(record.fence),
        home_node=record.home_node,
        placed_on=record.placed_on,
        waiting_for=record.waiting_for,
        outcome=record.outcome,
        decision=record.decision if is_whole else None,
        attempts=tuple(map(_attempt_view, record.attempts)) if is_whole else (),
        task=record.task if is_whole else None,
    )


def task_page(records: Sequence[TaskRecord], limit: int) -> TaskPage:
    """Return the document of one page of a list; a full page may have a next one, below its last task."""
    last = records[-1].task_id if len(records) == limit else None
    return TaskPage(tasks=tuple(task_view(record, is_whole=False) for record in records), before=last)


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        fence=str(attempt.fence),
        device=attempt.device,
        started_wall_s=attempt.started_wall_s,
        ended=attempt.ended,
        error=attempt.error,
        runtime_s=attempt.runtime_s,
        decision=attempt.decision,
    )


def recurring_view(record: RecurringRecord) -> RecurringView:
    """Return the document of one recurring task."""
    return RecurringView(
        name=record.spec.name,
        schedule=record.spec.schedule,
        spec=record.spec,
        runs=record.runs,
        missed=record.missed,
        owed=record.owed,
        last_task=record.last_task,
        last_wall_s=record.last_wall_s,
        next_in_s=record.next_in_s,
        next_wall_s=record.next_wall_s,
        note=record.note,
    )


def explanation(record: TaskRecord) -> Explanation:
    """Say in words where the task is, who decided each step and why."""
    lines = [f"task {record.task_id} ({record.task.kind}) {_STATE_IN_WORDS[record.state]}{_where(record)}"]
    for attempt in record.attempts:
        lines += ["", *_attempt_in_words(attempt)]
    if record.decision is not None:
        title = "Before an attempt here:" if record.attempts else "Instead of an attempt here:"
        lines += ["", title, explain(record.decision)]
    if record.outcome is not None:
        lines += ["", _outcome_in_words(record)]
    if not record.attempts and record.decision is None:
        lines += ["", f"No attempt was made yet. {_wishes(record.task)}"]
    return Explanation(
        task_id=record.task_id,
        state=record.state.value,
        text="\n".join(lines),
        decisions=_decisions(record),
    )


def _decisions(record: TaskRecord) -> tuple[Decision, ...]:
    made = [attempt.decision for attempt in record.attempts if attempt.decision is not None]
    latest = record.decision
    return tuple(made if latest is None or latest in made else [*made, latest])


def _where(record: TaskRecord) -> str:
    if record.placed_on:
        is_away = record.state is State.HANDED_OVER
        return f", which placed it on {record.placed_on}" if is_away else f" on {record.placed_on}"
    if record.state is State.BLOCKED:
        return f", {record.task.ordering_key!r}"
    if record.waiting_for and record.state not in FINAL:
        return f": {record.waiting_for}"
    return f"; it was placed here by the coordinator for {record.home_node}" if record.home_node else ""


def _attempt_in_words(attempt: Attempt) -> list[str]:
    how = attempt.ended or "running"
    took = f" after {attempt.runtime_s:.3f} s" if attempt.runtime_s else ""
    why = f": {attempt.error}" if attempt.error else ""
    head = f"Attempt {attempt.fence} on {attempt.device}: {how}{took}{why}"
    return [head] if attempt.decision is None else [head, explain(attempt.decision)]


def _outcome_in_words(record: TaskRecord) -> str:
    outcome = record.outcome
    assert outcome is not None  # the caller has looked
    where = f" on {outcome.device} of {outcome.node}" if outcome.device else ""
    return f"It ended {outcome.status}{where}{f': {outcome.error}' if outcome.error else ''}"


def _wishes(task: TaskSpec) -> str:
    wish = task.resources
    return (
        f"It asks for {wish.cpu_millicores} CPU millicores, {in_units(wish.memory_bytes)} of memory "
        f"and {_DEVICES_IN_WORDS[wish.accelerator]}."
    )
