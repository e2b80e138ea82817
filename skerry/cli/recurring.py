"""`skerry recurring`: tasks that run again and again: add, list, show, remove."""

from __future__ import annotations

from typing import Annotated

import typer

from skerry.cli.connect import JsonOption, with_agent
from skerry.cli.output import duration, print_fields, print_json, print_table, wall
from skerry.cli.root import Group
from skerry.cli.submit import read_task
from skerry.cli.times import seconds, utc
from skerry.client import Client
from skerry.queue_documents import RecurringView

app = typer.Typer(cls=Group, help="Tasks that the agent runs again and again.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9 and inner '.', '_' and '-'.")]


@app.command()
@with_agent
def add(
    client: Client,
    name: NameArgument,
    words: Annotated[
        list[str],
        typer.Argument(metavar="FILE | -- ARGV...", help="A task file, -, or with --command a command."),
    ],
    *,
    command: Annotated[bool, typer.Option("--command", help="The words are a command to run.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Powered-on time between runs: 90s, 15m, 1h.")
    ] = None,
    cron: Annotated[str | None, typer.Option(help="Times of the wall clock, five fields.")] = None,
    timezone: Annotated[str, typer.Option(help="Time zone of --cron.")] = "UTC",
    missed: Annotated[
        str, typer.Option(help="Runs that could not begin in time: skip, once (one for all), all.")
    ] = "skip",
    missed_limit: Annotated[int, typer.Option(min=1, max=100, help="With all: at most so many.")] = 10,
    grace: Annotated[str, typer.Option(metavar="DURATION", help="So late is still in time.")] = "60s",
    overlap: Annotated[str, typer.Option(help="A run while the last one goes on: forbid, allow.")] = "forbid",
    as_json: JsonOption = False,
) -> None:
    """Have a task run again and again; the same name again changes it.

    Examples:

      skerry recurring add report --every 1h --missed once --command -- report.sh

      skerry recurring add nightly task.toml --cron "30 2 * * *" --timezone Europe/Paris
    """
    import msgspec

    from skerry.recurring import convert_recurring

    task = read_task(words, is_command=command)
    spec = convert_recurring(
        {
            "name": name,
            "task": msgspec.to_builtins(task),
            "every_s": None if every is None else seconds(every, option="--every"),
            "cron": cron,
            "timezone": timezone,
            "missed": missed,
            "missed_limit": missed_limit,
            "grace_s": seconds(grace, option="--grace"),
            "overlap": overlap,
        }
    )
    view = client.put_recurring(spec)
    if as_json:
        print_json(view)
    else:
        typer.echo(f"{view.name}: {view.schedule}, {_next(view)}")


@app.command("list")
@with_agent
def list_recurring(client: Client, *, as_json: JsonOption = False) -> None:
    """List the recurring tasks with their next run.

    Example: skerry recurring list
    """
    views = client.recurring()
    if as_json:
        print_json({"recurring": views})
        return
    columns = ("name", "schedule", "next", "runs", "missed", "owed", "last task", "note")
    print_table(columns, [_row(view) for view in views], empty="no recurring tasks")


def _row(view: RecurringView) -> tuple[object, ...]:
    counts = (view.runs, view.missed, view.owed)
    return (view.name, view.schedule, _next(view), *counts, view.last_task or "", view.note)


def _next(view: RecurringView) -> str:
    if view.next_in_s is not None:
        return f"next in {duration(view.next_in_s)}"
    if view.next_wall_s is not None:
        return f"next at {utc(view.next_wall_s)}"
    return "next once the clock is set"


@app.command()
@with_agent
def show(client: Client, name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Show one recurring task: its schedule, rules and how far it has come.

    Example: skerry recurring show report
    """
    view = client.get_recurring(name)
    if as_json:
        print_json(view)
        return
    spec = view.spec
    print_fields(
        {
            "name": view.name,
            "schedule": view.schedule,
            "next": _next(view),
            "kind": spec.task.kind,
            "missed runs": f"{spec.missed}, at most {spec.missed_limit}"
            if spec.missed == "all"
            else spec.missed,
            "grace": duration(spec.grace_s),
            "overlap": spec.overlap,
            "runs": view.runs,
            "missed": view.missed,
            "owed": view.owed,
            "last task": view.last_task,
            "last run": wall(view.last_wall_s),
            "note": view.note,
        }
    )


@app.command()
@with_agent
def remove(client: Client, name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Remove a recurring task; tasks that it became go on.

    Example: skerry recurring remove report
    """
    view = client.remove_recurring(name)
    if as_json:
        print_json(view)
    else:
        typer.echo(f"{view.name}: removed after {view.runs} runs")
