"""Writes the tables of the page about the queue's performance from the record of `make bench-queue`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "evidence" / "bench-queue.json"
PAGE = ROOT / "docs" / "explanation" / "queue-performance.md"
SIZES = (1_000, 100_000, 2_600_000)
WAITERS = (1, 64, 256)
SYSTEMS = ("skerry", "raw_sqlite", "litequeue", "localqueue", "persist_queue", "huey", "sqlitedict", "nats")
WORKS = ("put", "put_batch", "cycle", "cycle_batch")
TABLE = r"\| .*\n\|[-|]+\|\n(?:\|.*\n)+"

Results = dict[str, dict[str, Any]]
Cells = Iterable[str]


def figure(value: float | None) -> str:
    """Four digits after the point below one, fewer as it grows."""
    if value is None:
        return "–"
    if value < 1:
        return f"{value:.4f}"
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def row(cells: Cells) -> str:
    """One row of a table."""
    return f"| {' | '.join(cells)} |\n"


def table(head: Cells, rows: Iterable[Cells]) -> str:
    """A table with its head; head and rows have as many cells."""
    names = list(head)
    return row(names).replace("|  |", "| |") + "|" + "---|" * len(names) + "\n" + "".join(map(row, rows))


def ratio(result: dict[str, Any] | None) -> float | None:
    """A result as a multiple of what it is compared with."""
    return result["value"] / result["baseline"]["value"] if result and result["baseline"] else None


def value(result: dict[str, Any] | None) -> float | None:
    """A result as it is."""
    return result["value"] if result else None


def side_by_side(found: Results, names: Cells, of: Callable[[dict[str, Any] | None], float | None]) -> str:
    """Several figures in one cell."""
    figures = [figure(of(found.get(name))) for name in names]
    return "–" if set(figures) == {"–"} else " / ".join(figures)


def paths(found: Results) -> str:
    """The ways into the agent, by those that wait."""
    head = (
        "",
        "1 / 64 / 256 waiting, × fd, slow syncs",
        "processor time per put, µs",
        "raw disk, × fd",
        "µs",
    )
    columns = (("slow_per_s", ratio), ("slow_cpu_us", value), ("raw_per_s", ratio), ("raw_cpu_us", value))
    rows = (
        [
            way,
            *(
                side_by_side(found, (f"{way}.waiters_{n}.{what}" for n in WAITERS), of)
                for what, of in columns
            ),
        ]
        for way in ("agent", "writer", "door")
    )
    return table(head, rows)


def goals(found: Results) -> str:
    """Every figure that has a goal."""
    return table(("what", "measured", "goal", "met", "against"), map(goal, with_goals(found)))


def with_goals(found: Results) -> Iterator[dict[str, Any]]:
    """The results that have one, in the order of the run."""
    return (result for result in found.values() if result["goal"])


def goal(result: dict[str, Any]) -> Cells:
    """One of them, with what it is compared with."""
    against = result["baseline"]
    times = ratio(result)
    unit = result["unit"] if result["unit"] == "/s" else f" {result['unit']}"
    measured = f"{figure(result['value'])}{' ' * (unit == '/s')}{unit}" + (
        f" ({figure(times)} ×)" if against else ""
    )
    told = f"{against['what']}: {figure(against['value'])}" if against else ""
    return (result["what"], measured, result["goal"], "yes" if result["ok"] else "**no**", told)


def by_system(
    found: Results, head: Cells, kinds: Cells, of: Callable[[dict[str, Any] | None], float | None]
) -> str:
    """One row a system, one column a kind of figure, in each the three sizes of backlog."""
    known = list(kinds)
    rows = (
        [one, *(side_by_side(found, (f"{size}.{one}.{kind}" for size in SIZES), of) for kind in known)]
        for one in SYSTEMS
    )
    return table(head, (cells for cells in rows if set(cells[1:]) != {"–"}))


def page(text: str, found: Results) -> str:
    """The page with its tables as the record has them."""
    works = ("", "put", "put ×100", "claim + ack", "claim + ack ×50")
    costs = ("", "open", "files", "memory", "log")
    cost_kinds = ("reopen_s", "file_mb", "peak_mb", "put_batch.log_kib")
    fd = found["fd.slow_per_s"]["value"]
    tables = (
        ("| | 1 / 64", paths(found)),
        ("| what | measured", goals(found)),
        ("| | put", by_system(found, works, (f"{work}.cpu_us" for work in WORKS), value)),
        ("| | put", by_system(found, works, (f"{work}.slow_per_s" for work in WORKS), ratio)),
        ("| | open", by_system(found, costs, cost_kinds, value)),
    )
    ours = [old for old in re.findall(TABLE, text) if old.startswith(tuple(begin for begin, _ in tables))]
    for old, (begin, new) in zip(ours, tables, strict=True):
        assert old.startswith(begin), f"a table that begins with {begin!r} is not where it was"
        text = text.replace(old, new)
    return re.sub(r"\(fd here: [\d,]+/s\)", f"(fd here: {fd:,.0f}/s)", text)


def main() -> None:
    """Write the page's tables anew."""
    record = json.loads(RECORD.read_text())
    found = {result["id"].removeprefix("queue."): result for result in record["results"]}
    PAGE.write_text(page(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
