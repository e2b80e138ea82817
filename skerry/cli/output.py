"""What commands print: JSON for programs, a table on a terminal, tab-separated lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import typer


def print_json(value: Any) -> None:
    """Print any document as indented JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_line_json(value: Any) -> None:
    """Print any document as one line of JSON, at once."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print rows under columns: a table on a terminal, else lines with tabs. empty: for no rows."""
    if not rows:
        typer.echo(empty, err=not sys.stdout.isatty())
        return
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, texts)
        return
    for line in (columns, *texts):
        typer.echo("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in line))


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one a line; what is empty is left out."""
    shown = {name: value for name, value in fields.items() if value not in (None, "", ())}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        typer.echo(f"{name:<{width}}  {value}")


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: a task's own words are never read as markup
    Console().print(table)


def size(count: int) -> str:
    """Return bytes for people: `512 B`, `1.5 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a duration for people: `0.52 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    for unit, length, smaller, part in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
        if seconds < length * (60 if unit == "min" else 24) or unit == "d":
            whole, rest = divmod(int(seconds), length)
            return f"{whole} {unit} {rest // part} {smaller}" if rest // part else f"{whole} {unit}"
    raise AssertionError("days take every duration")


def wall(seconds: float | None) -> str:
    """Return a wall clock's reading in local time; empty for none."""
    return "" if not seconds else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
