"""Attempts from their durable start to the commit of their end: what runs, is stopped, is reported."""

from __future__ import annotations

from devices.port import Report
from edge_agent.core.actions import RaiseAlarm, RecordRuntime, RunAttempt, StopAttempt
from edge_agent.core.entry import Entry, Phase
from edge_agent.core.events import AttemptEnded
from edge_agent.core.lately import has_run
from edge_agent.core.starting import let_content_go
from edge_agent.core.state import Turn
from edge_agent.core.storage import commit
from skerry.fence import Fence
from skerry.messages import Outcome
from task_queue.operations import Fail, Finish

#: How many tasks' device faults are remembered; the oldest are forgotten first.
FAULTS_REMEMBERED = 1024


def run(turn: Turn, entry: Entry, fence: Fence) -> None:
    """Run an attempt whose start is on disk; when the agent is stopping, give it back instead, untouched."""
    entry.fence, entry.attempt = fence, fence.attempt
    if turn.state.is_stopping:
        turn.state.move(entry, Phase.ENDING)
        outcome = _outcome(turn, entry, "failed", error="the agent stopped before it began")
        commit(turn, Fail(task_id=entry.task_id, fence=fence, outcome=outcome, counts=False))
        return
    assert entry.device_id is not None
    until = turn.uptime_s + entry.task.max_runtime_s + turn.state.limits.overtime_s
    turn.state.move(entry, Phase.RUNNING, until=until)
    turn.act(RunAttempt(task_id=entry.task_id, fence=fence, task=entry.task, device_id=entry.device_id))


def stop(turn: Turn, entry: Entry, reason: str) -> None:
    """Ask a running attempt to end; nothing happens when it was asked already."""
    if entry.phase is not Phase.RUNNING or entry.device_id is None:
        return
    entry.stop_reason = reason
    turn.state.move(entry, Phase.STOPPING, until=turn.uptime_s + turn.state.limits.stop_s)
    turn.act(StopAttempt(task_id=entry.task_id, device_id=entry.device_id))


def overdue(turn: Turn, entry: Entry) -> None:
    """Take the way out of a phase that has a process: ask it to stop, by force, then report it as lost."""
    state = turn.state
    assert entry.device_id is not None
    if entry.phase is Phase.RUNNING:
        stop(turn, entry, "overtime")
        return
    turn.act(StopAttempt(task_id=entry.task_id, device_id=entry.device_id, by_force=True))
    if entry.phase is Phase.STOPPING and not entry.stop_reason.startswith("force:"):
        entry.stop_reason = f"force:{entry.stop_reason}"
        state.move(entry, Phase.STOPPING, until=turn.uptime_s + state.limits.stop_s)
        return
    if entry.phase is Phase.STOPPING:
        _report_lost(turn, entry)
    state.move(entry, Phase.LOST, until=turn.uptime_s + state.limits.stop_s * 3)


def _report_lost(turn: Turn, entry: Entry) -> None:
    turn.state.count("attempts_lost")
    message = f"the process of task {entry.task_id} on {entry.device_id} does not end"
    turn.act(RaiseAlarm(name=f"lost:{entry.device_id}", message=message))
    if not entry.is_gone:
        report = Report(status="device_fault", error=f"{entry.device_id} does not answer, not even to force")
        commit(turn, _end(turn, entry, report, ()))
        entry.is_gone = True


def ended(turn: Turn, entry: Entry, event: AttemptEnded) -> None:
    """Free what an attempt held, and commit its end under its fence, unless the store has one already."""
    let_content_go(turn, entry)
    has_run(turn, entry, event.report)
    if entry.is_gone or _is_interrupted_for_good(turn, entry, event.report):
        turn.state.remove(entry)
        return
    turn.state.move(entry, Phase.ENDING)
    if event.report.status == "succeeded" and entry.device_id is not None:
        turn.act(_measured(entry, entry.device_id, event.report))
    commit(turn, _end(turn, entry, event.report, event.blobs))


def _measured(entry: Entry, device_id: str, report: Report) -> RecordRuntime:
    return RecordRuntime(
        kind=entry.task.kind,
        device_id=device_id,
        runtime_s=report.runtime_s - report.load_s,
        model=entry.model,
        load_s=report.load_s,
    )


def _is_interrupted_for_good(turn: Turn, entry: Entry, report: Report) -> bool:
    """An at-most-once task that the agent's stop cut short stays `running`: the next start resolves it."""
    is_shutdown = entry.stop_reason.removeprefix("force:") == "shutdown"
    return is_shutdown and report.status == "cancelled" and entry.task.effect == "at_most_once"


def _end(turn: Turn, entry: Entry, report: Report, blobs: tuple[str, ...]) -> Finish | Fail:
    assert entry.fence is not None
    if report.status == "succeeded":
        turn.state.device_faults.pop(entry.task_id, None)
        outcome = _outcome(turn, entry, "succeeded", report=report, blobs=blobs)
        return Finish(task_id=entry.task_id, fence=entry.fence, outcome=outcome)
    return _failure(turn, entry, report)


def _failure(turn: Turn, entry: Entry, report: Report) -> Fail:
    assert entry.fence is not None
    is_once = entry.task.effect == "at_most_once"
    counts = _counts(turn, entry, report)
    was_cut_short = report.status in ("device_fault", "timed_out", "cancelled")
    status = "unknown" if is_once and was_cut_short else "failed"
    return Fail(
        task_id=entry.task_id,
        fence=entry.fence,
        outcome=_outcome(turn, entry, status, report=report, error=_error(entry, report)),
        retry_after_s=0.0 if report.status == "cancelled" else _back_off(turn, entry),
        may_retry=report.status != "invalid" and not is_once,
        counts=counts,
    )


def _counts(turn: Turn, entry: Entry, report: Report) -> bool:
    """Whether an end uses up a try: not when the agent stopped it, and not the first time its device died."""
    if report.status == "cancelled":
        return entry.stop_reason.removeprefix("force:") != "shutdown"
    if report.status != "device_fault":
        return True
    faults = turn.state.device_faults
    seen = faults.pop(entry.task_id, 0) + 1
    faults[entry.task_id] = seen
    while len(faults) > FAULTS_REMEMBERED:
        del faults[next(iter(faults))]
    turn.state.count("device_faults")
    return seen > 1


def _back_off(turn: Turn, entry: Entry) -> float:
    limits = turn.state.limits
    return turn.state.jitter(min(limits.retry_base_s * 2 ** min(entry.attempt, 20), limits.retry_most_s))


def _error(entry: Entry, report: Report) -> str:
    reason = entry.stop_reason.removeprefix("force:")
    if report.status == "cancelled" and reason == "overtime":
        return f"it ran longer than max_runtime_s = {entry.task.max_runtime_s:g}"
    if report.status == "cancelled" and reason == "shutdown":
        return "the agent was stopped while it ran"
    return report.error or report.status


def _outcome(
    turn: Turn,
    entry: Entry,
    status: str,
    *,
    report: Report | None = None,
    error: str = "",
    blobs: tuple[str, ...] = (),
) -> Outcome:
    lane = turn.state.lanes.get(entry.device_id or "")
    return Outcome(
        status=status,
        result=report.result if report is not None else None,
        error=error[:4096],
        blobs=blobs,
        node=turn.state.facts.node,
        device=entry.device_id or "",
        device_class=lane.device.device_class if lane is not None else "",
        decided_by=entry.decision.decided_by if entry.decision is not None else "",
        runtime_s=report.runtime_s if report is not None else 0.0,
    )
