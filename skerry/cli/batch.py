"""`skerry submit --batch`: many tasks, JSON one a line, as they come: a file or standard input."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import typer

from skerry.cli.exits import Exit
from skerry.cli.output import print_line_json
from skerry.client import Client
from skerry.errors import SettingsError, SpecError
from skerry.problem import Problem
from skerry.queue_documents import TaskAnswer
from skerry.task import TaskSpec, parse_task

#: Lines sent as one commit: enough that its sync costs little, few enough that answers come soon.
LINES_A_BATCH = 500


class _LineAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one line, as --json prints it."""

    line: int
    status: int
    task_id: str | None = None
    is_new: bool = False
    problem: Problem | None = None


def submit_batch(
    client: Client, name: str, *, kind: str | None, room_timeout_s: float, as_json: bool
) -> None:
    """Submit each line's task and print one answer a line, in order; a line that is refused ends nothing.

    Exits with 2 when a line is no valid task, else with 5 when one was refused.
    """
    accepted = known = 0
    refused: list[int] = []
    with _opened(name) as lines:
        for answer in _answers(client, _tasks(lines, kind), room_timeout_s):
            accepted, known = accepted + (answer.status == 201), known + (answer.status == 200)
            refused += [answer.status] if answer.problem is not None else []
            _print(answer, as_json=as_json)
    if not as_json:
        typer.echo(f"{accepted} accepted, {known} known before, {len(refused)} refused", err=True)
    if refused:
        raise typer.Exit(Exit.USAGE if 422 in refused else Exit.REFUSED)


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise SettingsError(f"{name} cannot be read: {error.strerror}") from error


def _tasks(lines: BinaryIO, kind: str | None) -> Iterator[tuple[int, TaskSpec | SpecError]]:
    """Yield each line's number with its task, which has a key to be repeatable, or with what is wrong."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = parse_task(line)
        except SpecError as error:
            yield number, error
            continue
        key = task.idempotency_key or secrets.token_hex(16)
        yield number, msgspec.structs.replace(task, idempotency_key=key, kind=kind or task.kind)


def _answers(
    client: Client, tasks: Iterator[tuple[int, TaskSpec | SpecError]], room_timeout_s: float
) -> Iterator[_LineAnswer]:
    batch: list[tuple[int, TaskSpec | SpecError]] = []
    for each in tasks:
        batch.append(each)
        if len(batch) == LINES_A_BATCH:
            yield from _sent(client, batch, room_timeout_s)
            batch = []
    yield from _sent(client, batch, room_timeout_s)


def _sent(
    client: Client, batch: list[tuple[int, TaskSpec | SpecError]], room_timeout_s: float
) -> Iterator[_LineAnswer]:
    tasks = [task for _, task in batch if isinstance(task, TaskSpec)]
    given = client.submit_many(tasks, room_timeout_s=room_timeout_s)
    for number, task in batch:
        if isinstance(task, SpecError):
            wrong = Problem(status=422, title="The document is not valid", detail=str(task), field=task.field)
            yield _LineAnswer(line=number, status=422, problem=wrong)
        else:
            yield _of(number, next(given))


def _of(number: int, answer: TaskAnswer) -> _LineAnswer:
    return _LineAnswer(
        line=number,
        status=answer.status,
        task_id=answer.task_id,
        is_new=answer.is_new,
        problem=answer.problem,
    )


def _print(answer: _LineAnswer, *, as_json: bool) -> None:
    if as_json:
        print_line_json(answer)
    elif answer.problem is None:
        typer.echo(answer.task_id)
    else:
        typer.echo(f"line {answer.line}: {answer.problem.detail or answer.problem.title}", err=True)
