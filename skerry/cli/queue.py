"""`skerry queue`: what the queue holds and whether it is whole, of a running agent or a stopped one."""

from __future__ import annotations

from pathlib import Path

import click
import typer

from skerry.cli.connect import JsonOption, QueuePlace, with_queue
from skerry.cli.output import duration, print_fields, print_json, size, wall
from skerry.cli.root import Group
from skerry.documents import NodeReport
from skerry.errors import BackupError, ServiceUnreachable
from skerry.queue_documents import QueueCheck, QueueDetails


class _ShowByDefault(Group):
    """`skerry queue` alone shows it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in when only its options were given."""
        is_bare = not args or (args[0].startswith("-") and args[0] != "--help")
        return super().parse_args(ctx, ["show", *args] if is_bare else args)


app = typer.Typer(
    cls=_ShowByDefault, help="What the queue holds, and whether it is whole.", no_args_is_help=False
)


@app.command()
@with_queue
def show(place: QueuePlace, *, as_json: JsonOption = False) -> None:
    """Show the queue: tasks by state and priority, oldest, unsent messages, room, losses, last check.

    A running agent is asked; without one its directory is read, and left as it is.

    Example: skerry queue show --json
    """
    report = None
    try:
        if place.client is None:
            raise ServiceUnreachable(f"{place.directory} was asked for")
        details, report = place.client.queue(), place.client.node()
    except ServiceUnreachable:
        details = _read(place.stopped_directory(), place.config)
    if as_json:
        print_json(details)
    else:
        _print(details, report)


def _read(home: Path, config: Path | None) -> QueueDetails:
    from edge_agent.backup import database_of
    from edge_agent.queue_report import queue_details
    from edge_agent.runtime_build import queue_limits
    from edge_agent.settings import AgentSettings, read_settings
    from skerry.clock import SystemClock
    from task_queue.inspection import StoppedQueue

    path, clock = database_of(home), SystemClock()
    settings = AgentSettings() if config is None else read_settings(config, {})
    typer.echo(f"no agent answers: this is read from {home}", err=True)
    queue = StoppedQueue(path)
    try:
        limits = queue_limits(settings)
        return queue_details(queue, path=path, limits=limits, now=clock.now(), wall_s=clock.wall_s())
    finally:
        queue.close()


def _print(held: QueueDetails, report: NodeReport | None) -> None:
    oldest = "" if held.oldest_age_s is None else f"{duration(held.oldest_age_s)} ({held.oldest_task})"
    limit = f" of {size(held.limit_bytes)}" if held.limit_bytes else ""
    print_fields(
        {
            **({} if report is None else _of_node(report)),
            **{f"tasks {state}": count for state, count in held.by_state.items() if count},
            **{f"ready at priority {p}": count for p, count in held.waiting_by_priority.items()},
            "oldest ready": oldest,
            "recurring": held.recurring or "",
            **{f"unsent {lane}": count for lane, count in held.outbox.items()},
            **{
                f"unsent class {name}": f"{amount['rows']} ({size(amount['bytes'])})"
                for name, amount in held.outbox_by_class.items()
                if amount["rows"]
            },
            "database": f"{size(held.used_bytes)}{limit}",
            "files": f"database {size(held.file_bytes)}, log {size(held.log_bytes)}",
            "disk free": f"{size(held.free_bytes)}, ballast {size(held.ballast_bytes)}",
            "level": f"{held.level} ({held.fullness:.1%} of the budget)",
            **{
                f"lost {loss.lost_class}, {loss.reason}": f"{loss.rows} ({size(loss.size_bytes)})"
                for loss in held.losses
            },
            "last check": "never" if held.last_check is None else _verdict(held.last_check),
            **({} if report is None else {f"alarm {name}": text for name, text in report.alarms.items()}),
        }
    )


def _of_node(report: NodeReport) -> dict[str, object]:
    link = report.link
    since = f" for {duration(round(link.for_s, 1))}" if link.for_s else ""
    return {
        "node": f"{report.node} ({report.region})",
        "link": f"{link.state}{since}{f': {link.reason}' if link.reason else ''}",
        **{f"refused {reason}": count for reason, count in report.refused.items()},
    }


def _verdict(check: QueueCheck) -> str:
    when = f"{wall(check.at_wall_s)}: " if check.at_wall_s else ""
    if check.is_whole:
        return f"{when}whole, {check.rows} tasks, in {duration(check.took_s)}"
    return f"{when}damaged: {check.findings[0]}"


@app.command()
@with_queue
def check(place: QueuePlace, *, as_json: JsonOption = False) -> None:
    """Check the queue's database from end to end; status 5 when it is damaged.

    On a running agent it is done beside the work; without one its directory is read, and left as it is.

    Example: skerry queue check
    """
    try:
        if place.client is None:
            raise ServiceUnreachable(f"{place.directory} was asked for")
        found = place.client.check_queue()
    except ServiceUnreachable:
        found = _check(place.stopped_directory())
    if as_json:
        print_json(found)
    else:
        typer.echo(_verdict(found))
    if not found.is_whole:
        for finding in found.findings:
            typer.echo(finding, err=True)
        raise BackupError(
            f"the queue's database is damaged ({len(found.findings)} findings): the agent salvages what can "
            "be read when it starts; `skerry backup restore` brings a copy back"
        )


def _check(home: Path) -> QueueCheck:
    import time

    from edge_agent.backup import database_of
    from task_queue.inspection import check_file

    began = time.monotonic()
    checked = check_file(database_of(home))
    return QueueCheck(
        is_whole=not checked.findings,
        findings=checked.findings,
        rows=checked.rows,
        took_s=round(time.monotonic() - began, 3),
        at_wall_s=time.time(),
    )
