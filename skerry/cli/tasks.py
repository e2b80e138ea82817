"""`skerry tasks`: list, show, watch, cancel, replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from skerry.cli.connect import JsonOption, with_agent
from skerry.cli.output import duration, print_fields, print_json, print_line_json, print_table, wall
from skerry.cli.root import Group
from skerry.cli.submit import show_end
from skerry.cli.times import moment, utc
from skerry.client import Client
from skerry.documents import TaskPage, TaskView
from skerry.queue_documents import StoryEvent

app = typer.Typer(
    cls=Group, help="Look at the tasks of this machine's agent, cancel or replay them.", no_args_is_help=True
)

TaskIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The task's id: 32 hex digits.")]
KindOption = Annotated[str | None, typer.Option(help="Only this kind.")]
PriorityOption = Annotated[int | None, typer.Option(min=0, max=9, help="Only this priority.")]
SinceOption = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Accepted since: 2h (ago), or 2026-11-30T14:00.")
]
UntilOption = Annotated[str | None, typer.Option(metavar="WHEN", help="Accepted before.")]
LimitOption = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]
BeforeOption = Annotated[str | None, typer.Option(metavar="ID", help="Only tasks older than this one.")]


@app.command("list")
@with_agent
def list_tasks(
    client: Client,
    *,
    state: Annotated[list[str] | None, typer.Option(help="Only this state; may be given again.")] = None,
    kind: KindOption = None,
    priority: PriorityOption = None,
    key: Annotated[str | None, typer.Option(help="Only the one with this idempotency key.")] = None,
    ordering_key: Annotated[str | None, typer.Option(help="Only those with this ordering key.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose keys are meant; default: default.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks, newest first.

    Example: skerry tasks list --state dead --limit 10
    """
    page = client.list(
        states=tuple(state or ()),
        kind=kind,
        priority=priority,
        tenant=tenant,
        idempotency_key=key,
        ordering_key=ordering_key,
        since_s=moment(since, option="--since"),
        until_s=moment(until, option="--until"),
        limit=limit,
        before=before,
    )
    columns = ("id", "kind", "state", "tries", "accepted", "where", "note")
    print_page(page, columns, _row, empty="no tasks", as_json=as_json)


def print_page(
    page: TaskPage,
    columns: tuple[str, ...],
    row: Callable[[TaskView], tuple[object, ...]],
    *,
    empty: str,
    as_json: bool,
) -> None:
    """Print one page of a list of tasks, and on standard error how to get the next."""
    if as_json:
        print_json(page)
        return
    print_table(columns, [row(task) for task in page.tasks], empty=empty)
    if page.before:
        typer.echo(f"there may be more: --before {page.before}", err=True)


def _row(task: TaskView) -> tuple[object, ...]:
    outcome = task.outcome
    where = outcome.device if outcome and outcome.device else task.placed_on
    note = (outcome.error if outcome else "") or task.waiting_for
    return (task.task_id, task.kind, task.state, task.attempt, wall(task.accepted_wall_s), where, note[:100])


@app.command()
@with_agent
def show(
    client: Client,
    task_id: TaskIdArgument,
    *,
    wait: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Wait for its end.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show one task with its tries; with --wait, its result.

    Example: skerry tasks show 019b77a0c1e84f1d2a3b4c5d6e7f8091 --wait 30
    """
    if wait is not None:
        show_end(client.wait(task_id, wait), as_json=as_json)
        return
    view = client.get(task_id)
    if as_json:
        print_json(view)
    else:
        print_task(view)


def print_task(view: TaskView) -> None:
    """Print a task with its tries, its error and its result."""
    outcome = view.outcome
    print_fields(
        {
            "id": view.task_id,
            "kind": view.kind,
            "tenant": view.tenant,
            "state": view.state,
            "accepted": wall(view.accepted_wall_s),
            "ended": wall(view.ended_wall_s),
            "placed here for": view.home_node,
            "placed on": view.placed_on,
            "waits for": view.waiting_for,
            "error": outcome.error if outcome else "",
            "device": f"{outcome.device} of {outcome.node}" if outcome and outcome.device else "",
            "decided by": outcome.decided_by if outcome else "",
            "run time": duration(outcome.runtime_s) if outcome and outcome.runtime_s else "",
        }
    )
    for attempt in view.attempts:
        error = f": {attempt.error}" if attempt.error else ""
        ended = attempt.ended or "running"
        typer.echo(f"try {attempt.fence}  {wall(attempt.started_wall_s)}  {attempt.device}  {ended}{error}")
    if outcome is not None and outcome.result is not None:
        typer.echo("result")
        print_json(outcome.result)


@app.command()
@with_agent
def story(client: Client, task_id: TaskIdArgument, *, as_json: JsonOption = False) -> None:
    """Tell what happened to a task, oldest first: a line each.

    Example: skerry tasks story 019b77a0c1e84f1d2a3b4c5d6e7f8091
    """
    told = client.story(task_id)
    if as_json:
        print_json(told)
        return
    typer.echo(f"{told.task_id}  {told.kind}  {told.state}")
    before: float | None = None
    for event in told.events:
        typer.echo(_event_line(event, before))
        before = event.on_s


def _event_line(event: StoryEvent, before_on_s: float | None) -> str:
    """One line; the powered-on time since the event before stands beside the moment."""
    waited = "" if event.on_s is None or before_on_s is None else f"+{duration(event.on_s - before_on_s)}"
    words = [f"{name} {_short(value)}" for name, value in event.detail.items()]
    return f"{utc(event.at_wall_s):<20}  {waited:>10}  {event.what:<12}  {', '.join(words)}".rstrip()


def _short(value: object) -> str:
    """A value in a line: a decision by its reason, anything long by its beginning."""
    if isinstance(value, dict):
        value = value.get("reason") or value.get("error") or value.get("status") or value
    text = str(value).replace("\n", " ")
    return text if len(text) <= 160 else f"{text[:157]}…"


@app.command()
@with_agent
def watch(
    client: Client,
    task_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Only these tasks.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Print each change of a task's state as it happens, until Ctrl-C.

    Example: skerry tasks watch --json
    """
    for change in client.watch(tasks=tuple(task_ids or ())):
        if as_json:
            print_line_json(change)
        else:
            typer.echo(f"{change.task_id}  {change.state}")


@app.command()
@with_agent
def cancel(
    client: Client,
    task_id: TaskIdArgument,
    *,
    reason: Annotated[str, typer.Option(help="Why: kept in the task's story.")] = "",
    as_json: JsonOption = False,
) -> None:
    """End a task in any state before its end; a running one's process is stopped.

    Example: skerry tasks cancel 019b77a0c1e84f1d2a3b4c5d6e7f8091 --reason "wrong camera"
    """
    _print_state(client.cancel(task_id, reason=reason), as_json=as_json)


@app.command()
@with_agent
def replay(client: Client, task_id: TaskIdArgument, *, as_json: JsonOption = False) -> None:
    """Make a task that failed for good ready again, with fresh tries.

    Example: skerry tasks replay 019b77a0c1e84f1d2a3b4c5d6e7f8091
    """
    _print_state(client.replay(task_id), as_json=as_json)


def _print_state(view: TaskView, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        typer.echo(f"{view.task_id}  {view.state}")
