"""How `skerry round` shows a run: one line, a live table, or in full. Asks nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from skerry.cli.output import duration, print_fields, print_table, wall
from skerry.round_documents import RoundView

if TYPE_CHECKING:
    from rich.console import RenderableType


def line_of(view: RoundView) -> str:
    """Return where a run stands, in one line."""
    counts: dict[str, int] = {}
    for one in view.participants:
        counts[one.state] = counts.get(one.state, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    reason = f" ({view.reason})" if view.reason else ""
    return (
        f"{view.name} {view.state}{reason}: version {view.version} of {view.rounds}; {told or 'nobody asked'}"
    )


def picture(view: RoundView) -> RenderableType:
    """Return a run as a table for a terminal: participants, their replies and verdicts."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=line_of(view), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for row in _rows(view)[-40:]:
        table.add_row(*map(Text, map(str, row)))
    return table


_COLUMNS = ("node", "from version", "reply", "merged into", "examples", "weight", "why not")


def _rows(view: RoundView) -> list[tuple[Any, ...]]:
    return [
        (
            one.node,
            one.version,
            f"{one.state}{' (late)' if one.is_late and one.state != 'late' else ''}",
            "" if one.counted_in is None else one.counted_in,
            one.examples or "",
            f"{one.weight:.4g}" if one.weight else "",
            one.reason,
        )
        for one in view.participants
    ]


def print_run(view: RoundView) -> None:
    """Print a run in full."""
    policy = view.policy
    print_fields(
        {
            "run": view.name,
            "state": f"{view.state}{f': {view.reason}' if view.reason else ''}",
            "version": f"{view.version} of {view.rounds}",
            "trainer": f"{view.trainer}, {view.strategy}",
            "quorum": view.quorum,
            "deadline": duration(view.deadline_s),
            "begun with": view.base_policy,
            "may take part": ", ".join(view.eligible),
            "started": wall(view.created_wall_s),
            "ended": wall(view.ended_wall_s),
            "policy": f"{policy.state} {policy.policy[7:19]} {policy.reason}".strip(),
        }
    )
    print_table(_COLUMNS, _rows(view), empty="nobody was asked yet")
    for one in view.versions:
        if one.version == 0:
            continue  # what the run began with: nothing was merged into it
        figures = "".join(f"; {name} {value:.4g}" for name, value in sorted(one.metrics.items()))
        typer.echo(f"version {one.version}: {one.accepted} merged, {one.refused} refused{figures}")
    for refusal in view.refused:
        typer.echo(f"refused {refusal.count} of {refusal.node}: {refusal.code}, {refusal.reason}")
