"""`skerry submit`: a task from a file, from standard input, or a command given in words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from skerry.cli.connect import JsonOption, with_agent
from skerry.cli.output import duration, print_json
from skerry.client import Client, outcome_of
from skerry.decoding import parse_toml
from skerry.documents import TaskView
from skerry.errors import SettingsError, SpecError
from skerry.task import CommandSpec, TaskSpec, convert_task, parse_task


@with_agent
def submit(
    client: Client,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE | -- ARGV...]", help="A .toml or .json file, or - for standard input."),
    ] = None,
    *,
    batch: Annotated[str | None, typer.Option(metavar="FILE|-", help="Many tasks: JSON, one a line.")] = None,
    command: Annotated[bool, typer.Option("--command", help="The words are a command to run.")] = False,
    wait: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Wait for its end.")] = None,
    kind: Annotated[str | None, typer.Option(help="Profile key, for example detect/yolo-n.")] = None,
    room_timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait when the queue is full.")
    ] = 0.0,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same twice is one task.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Hand a task to the agent on this machine. It is on disk when this returns.

    Examples:

      skerry submit task.toml --wait 30

      skerry submit --command --wait 10 -- echo hello

      skerry submit --batch tasks.jsonl --json
    """
    if batch is not None:
        if words or command or wait is not None or key is not None:
            raise SettingsError("--batch stands alone: each line is a whole task with its own key")
        from skerry.cli.batch import submit_batch

        submit_batch(client, batch, kind=kind, room_timeout_s=room_timeout, as_json=as_json)
        return
    task = read_task(words or [], is_command=command, kind=kind)
    handle = client.submit(task, idempotency_key=key, room_timeout_s=room_timeout)
    if wait is None:
        if as_json:
            print_json({"task_id": handle.task_id, "is_new": handle.is_new})
        else:
            typer.echo(handle.task_id)
        return
    show_end(handle.wait(wait), as_json=as_json)


def show_end(view: TaskView, *, as_json: bool) -> None:
    """Print how a task ended.  Raises TaskFailed unless it succeeded."""
    if as_json:
        print_json(view)
    elif view.state == "done" and view.outcome is not None:
        out = view.outcome
        where = f" on {out.device} of {out.node}" if out.device else ""
        typer.echo(f"{view.task_id} done in {duration(out.runtime_s)}{where}", err=True)
        _print_result(out.result)
    outcome_of(view)


def _print_result(result: Any) -> None:
    """A command's output as it was written; any other result as JSON."""
    if isinstance(result, dict) and isinstance(result.get("stdout"), str):
        typer.echo(result["stdout"], nl=not result["stdout"].endswith("\n"))
    elif result is not None:
        print_json(result)


def read_task(words: list[str], *, is_command: bool, kind: str | None = None) -> TaskSpec:
    """Return the task that a command's words name or are.  Raises SettingsError, SpecError."""
    return _with(_command(words, kind) if is_command else _read(words), kind)


def _command(words: list[str], kind: str | None) -> TaskSpec:
    return TaskSpec(spec=CommandSpec(argv=tuple(words)), kind=kind or "command")


def _with(task: TaskSpec, kind: str | None) -> TaskSpec:
    from msgspec.structs import replace

    return task if kind is None else replace(task, kind=kind)


def _read(words: list[str]) -> TaskSpec:
    if len(words) != 1:
        raise SettingsError("give one file, or --command and the words of the command after --")
    name = words[0]
    content = sys.stdin.buffer.read() if name == "-" else _content(Path(name))
    if name.endswith(".toml") or (name == "-" and not content.lstrip().startswith(b"{")):
        return _from_toml(content, name)
    return parse_task(content)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror} (to run a command: skerry submit --command -- {path} …)"
        ) from error


def _from_toml(content: bytes, name: str) -> TaskSpec:
    try:
        values = parse_toml(content, name)
    except ValueError as error:
        raise SpecError(str(error)) from error
    return convert_task(values)
