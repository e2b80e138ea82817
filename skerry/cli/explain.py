"""`skerry explain`: why a task is where it is, in the agent's words and in its coordinator's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from skerry.cli.connect import JsonOption, with_agent
from skerry.cli.coordinator import connection
from skerry.cli.output import print_json
from skerry.cli.tasks import TaskIdArgument
from skerry.client import Client
from skerry.decision import explain as in_words
from skerry.documents import Explanation
from skerry.errors import ServiceUnreachable, TaskNotFound
from skerry.fleet_documents import LedgerTaskView, PlacementView
from skerry.ids import parse_task_id


@with_agent
def explain(
    client: Client,
    task_id: TaskIdArgument,
    *,
    coordinator: Annotated[
        str | None,
        typer.Option(metavar="URL | FILE", help="Ask it too: its address, or its settings file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say in words why a task is where it is: the agent's decisions, and the coordinator's if it placed it.

    Example: skerry explain 019b77a0c1e84f1d2a3b4c5d6e7f8091 --coordinator cloud/coordinator.toml
    """
    ledger = None if coordinator is None else _ledger_entry(coordinator, task_id)
    mine = client.explain(task_id) if coordinator is None else _if_known(client, task_id)
    if mine is None and ledger is None:
        raise TaskNotFound(f"neither this agent nor the coordinator knows task {task_id}")
    if as_json:
        shown = msgspec.to_builtins(mine) if mine else {"task_id": task_id}
        print_json({**shown, "coordinator": ledger})
        return
    parts = [mine.text if mine else "", _ledger_in_words(ledger) if ledger else ""]
    typer.echo("\n\n".join(filter(None, parts)))


def _ledger_entry(coordinator: str, task_id: str) -> LedgerTaskView | None:
    is_url = "://" in coordinator
    with connection(None if is_url else Path(coordinator), coordinator if is_url else None) as http:
        try:
            return http.json(LedgerTaskView, "GET", f"/v1/tasks/{parse_task_id(task_id)}")
        except TaskNotFound:
            return None


def _if_known(client: Client, task_id: str) -> Explanation | None:
    try:
        return client.explain(task_id)
    except (TaskNotFound, ServiceUnreachable):
        return None


def _ledger_in_words(entry: LedgerTaskView) -> str:
    waits = f": {entry.waits}" if entry.waits else ""
    lines = [f"The coordinator holds it as {entry.state}{waits}; its home is {entry.home_node}"]
    for placement in entry.placements:
        lines += ["", *_placement_in_words(placement)]
    return "\n".join(lines)


def _placement_in_words(placement: PlacementView) -> list[str]:
    ended = f"{placement.ended}{f': {placement.reason}' if placement.reason else ''}"
    head = f"Placement {placement.fence} on {placement.node}: {ended if placement.ended else 'current'}"
    return [head] if placement.decision is None else [head, in_words(placement.decision)]
