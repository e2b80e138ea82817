"""`skerry dead`: tasks that failed for good: list, show, replay."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import replace as with_values

from skerry.cli.connect import JsonOption, with_agent
from skerry.cli.exits import Exit
from skerry.cli.output import print_json, wall
from skerry.cli.root import Group
from skerry.cli.tasks import (
    BeforeOption,
    KindOption,
    LimitOption,
    PriorityOption,
    SinceOption,
    TaskIdArgument,
    UntilOption,
    print_page,
    print_task,
)
from skerry.cli.times import moment
from skerry.client import Client
from skerry.documents import TaskView
from skerry.errors import SettingsError
from skerry.queue_documents import BATCH_LIMIT, ReplayAnswer, ReplayRequest

app = typer.Typer(
    cls=Group, help="Dead letters: tasks that failed for good, with their reasons.", no_args_is_help=True
)


@app.command("list")
@with_agent
def list_dead(
    client: Client,
    *,
    kind: KindOption = None,
    priority: PriorityOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, newest first, with the error of the last try.

    Example: skerry dead list --kind report --since 24h
    """
    page = client.dead_letters(
        kind=kind,
        priority=priority,
        since_s=moment(since, option="--since"),
        until_s=moment(until, option="--until"),
        limit=limit,
        before=before,
    )
    columns = ("id", "kind", "tries", "accepted", "ended", "error")
    print_page(page, columns, _row, empty="no dead letters", as_json=as_json)


def _row(task: TaskView) -> tuple[object, ...]:
    error = task.outcome.error if task.outcome else ""
    accepted, ended = wall(task.accepted_wall_s), wall(task.ended_wall_s)
    return (task.task_id, task.kind, task.attempt, accepted, ended, error[:100])


@app.command()
@with_agent
def show(client: Client, task_id: TaskIdArgument, *, as_json: JsonOption = False) -> None:
    """Show one dead letter with all its tries.

    Example: skerry dead show 019b77a0c1e84f1d2a3b4c5d6e7f8091
    """
    view = client.get(task_id)
    if as_json:
        print_json(view)
        return
    if view.state != "dead":
        typer.echo(f"this task is not dead: it is {view.state}", err=True)
    print_task(view)


@app.command()
@with_agent
def replay(
    client: Client,
    task_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Only these.")] = None,
    *,
    kind: KindOption = None,
    priority: PriorityOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make dead letters ready again, with fresh tries: those named, those that a filter fits, or all.

    Exits with 5 when one of them was refused.

    Example: skerry dead replay --kind report --since 24h --dry-run
    """
    asked = ReplayRequest(
        ids=tuple(task_ids or ()),
        kind=kind,
        priority=priority,
        since_s=moment(since, option="--since"),
        until_s=moment(until, option="--until"),
        all=everything,
        dry_run=dry_run,
    )
    if sum((bool(asked.ids), asked.has_filter, asked.all)) != 1:
        raise SettingsError("say which: ids, a filter (--kind, --priority, --since, --until), or --all")
    answer = _replayed(client, asked)
    _print(answer, as_json=as_json)
    if answer.refused:
        raise typer.Exit(Exit.REFUSED)


def _replayed(client: Client, asked: ReplayRequest) -> ReplayAnswer:
    """Ask until no more are left, and sum the answers. A round without success ends it."""
    first, rest = asked.ids[:BATCH_LIMIT], asked.ids[BATCH_LIMIT:]
    total = last = client.replay_dead(with_values(asked, ids=first))
    if rest:
        return _summed(total, _replayed(client, with_values(asked, ids=rest)))
    while last.is_more and last.replayed and not asked.dry_run:
        last = client.replay_dead(asked)
        total = _summed(total, last)
    return total


def _summed(total: ReplayAnswer, last: ReplayAnswer) -> ReplayAnswer:
    return ReplayAnswer(
        matched=total.matched + last.matched,
        replayed=total.replayed + last.replayed,
        dry_run=last.dry_run,
        is_more=last.is_more,
        task_ids=(*total.task_ids, *last.task_ids),
        refused=(*total.refused, *last.refused),
    )


def _print(answer: ReplayAnswer, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    more = " or more" if answer.is_more else ""
    if answer.dry_run:
        typer.echo(f"{answer.matched}{more} would be replayed")
        return
    typer.echo(f"{answer.replayed} of {answer.matched}{more} are ready again")
    for refused in answer.refused:
        typer.echo(f"{refused.task_id}: {refused.reason}", err=True)
