"""What the round demo shows: the run or the rollout at work under the fleet, and the tables at the end."""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from skerry.policy_documents import RolloutView
from skerry.round_documents import RoundView


def picture_of(view: RoundView | RolloutView) -> RenderableType:
    """Return what is watched at the moment as a table."""
    if isinstance(view, RoundView):
        from skerry.cli.round import picture

        return picture(view)
    table = _table(f"rollout of {view.version}: {view.state}", "node", "progress", "gate", "why")
    for one in view.nodes:
        _row(table, one.node, one.progress, one.state, one.reason)
    return table


def print_loop(stream: TextIO, document: dict[str, Any]) -> None:
    """Print the tables that the round demo adds to the reckoning.  document: as report_of made it."""
    console = Console(file=stream)
    for table in (_rounds(document), _rollout(document), _bad(document)):
        console.print(table)
    run, policy = document["run"], document["policy"]
    lines = (
        f"run {run['name']} began with {run['begun_with']}; killed at version {run['killed_at_version']}, "
        f"resumed at version {run['resumed_at_version']}",
        f"policy {policy['policy'][7:19]} is {policy['state']}: {policy['reason']}",
        "this demo's gates are short: they show the way, and find what is clearly worse, no fine difference",
    )
    spared = [one for one in document["bad_policies"] if one["switched_off"]]
    notes = (
        f"of the {one['policy']} policy the gate did not ask {one['switched_off']}, to let its tasks speak; "
        "a usual gate mostly ends it before it decides anything"
        for one in spared
    )
    for line in (*lines, *notes):
        console.print(Text(line))


def _rounds(document: dict[str, Any]) -> Table:
    table = _table("the rounds", "version", "node", "trained from", "reply", "examples", "weight", "why not")
    for made in document["rounds"]:
        version = str(made["version"])
        for one in made["participants"]:
            state = f"{one['state']}, late by {one['staleness']}" if one["is_late"] else one["state"]
            figures = (one["examples"] or "", f"{one['weight']:.4g}" if one["weight"] else "")
            _row(table, version, one["node"], one["trained_from"], state, *figures, one["reason"])
            version = ""
        for node in made["came_too_late"]:
            _row(table, version, node, made["version"] - 1, "not in time", "", "", "used later, see below")
    return table


def _rollout(document: dict[str, Any]) -> Table:
    rollout = document["rollout"]
    title = f"the rollout: {rollout['state']} after {rollout['took_s']:.0f} s"
    table = _table(title, "node", "progress", "gate then", "gate now", "decided by the policy since", "why")
    for one in rollout["nodes"]:
        now = rollout["at_the_end"].get(one["node"], {})
        decided = now.get("decisions", {}).get("candidate", 0)
        _row(table, one["node"], one["progress"], one["gate"], now.get("gate", ""), decided, one["reason"])
    return table


def _bad(document: dict[str, Any]) -> Table:
    table = _table("the bad policies", "policy", "outcome", "what stopped it")
    for one in document["bad_policies"]:
        name = f"{one['policy']} (a check is off, see below)" if one["switched_off"] else one["policy"]
        _row(table, name, one["outcome"], one["reason"])
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _row(table: Table, *cells: object) -> None:
    table.add_row(*(Text(str(cell)) for cell in cells))
