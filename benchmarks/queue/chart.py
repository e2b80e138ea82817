"""The recorded document as tables and a picture for people.

`python -m benchmarks.queue.chart DOCUMENT SVG` writes the picture and prints the tables as Markdown. Owns no
figure: everything comes from the document.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from benchmarks.harness import Result, number
from benchmarks.queue.port import SYSTEMS

_SIZES = ("1000", "100000", "2600000")
_NAMES = {"1000": "1,000", "100000": "100,000", "2600000": "2,600,000"}
_COLOURS = ("#9ecae1", "#4292c6", "#08519c")
_LEFT, _WIDTH, _BAR, _GAP, _TOP = 130, 760, 9, 12, 62

Figures = Mapping[str, float]


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a recorded document."""

    results: tuple[Result, ...]


def figures(document: Recorded) -> Figures:
    """Return the document's figures by id."""
    return {one.id: one.value for one in document.results}


def picture(found: Figures) -> str:
    """Return bars of the processor time of claim and acknowledge, by system and backlog; logarithmic."""
    bars = [
        (system, [found.get(f"queue.{size}.{system}.cycle.cpu_us") for size in _SIZES]) for system in SYSTEMS
    ]
    bars = [(system, values) for system, values in bars if any(values)]
    most = max(value for _, values in bars for value in values if value)
    scale = (_WIDTH - _LEFT - 90) / math.log10(most / 10)
    height = _TOP + len(bars) * (3 * _BAR + _GAP) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        '<text x="8" y="18" font-size="13">Processor time of one claim with its acknowledgement, one by one '
        "(µs, logarithmic; shorter is better)</text>",
        *_legend(),
    ]
    for place, (system, values) in enumerate(bars):
        top = _TOP + place * (3 * _BAR + _GAP)
        lines.append(f'<text x="8" y="{top + 2 * _BAR}">{escape(system)}</text>')
        lines.extend(_group(top, values, scale))
    return "\n".join([*lines, "</svg>", ""])


def _legend() -> Iterator[str]:
    for place, size in enumerate(_SIZES):
        left = _LEFT + place * 150
        yield f'<rect x="{left}" y="30" width="10" height="10" fill="{_COLOURS[place]}"/>'
        yield f'<text x="{left + 15}" y="39">{_NAMES[size]} rows</text>'


def _group(top: int, values: Sequence[float | None], scale: float) -> Iterator[str]:
    for place, value in enumerate(values):
        if value is None:
            continue
        width, y = max(1.0, scale * math.log10(value / 10)), top + place * _BAR
        yield f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 1}" fill="{_COLOURS[place]}"/>'
        yield f'<text x="{_LEFT + width + 4:.1f}" y="{y + _BAR - 1}" font-size="9">{number(value)}</text>'


def ways(found: Figures) -> Iterator[str]:
    """Yield the table of the asyncio paths, line by line."""
    yield "| | 1 / 64 / 256 waiting, × fd, slow syncs | processor time per put, µs | raw disk, × fd | µs |"
    yield "|---|---|---|---|---|"
    for way in ("agent", "writer", "door"):
        cells: list[str] = []
        if f"queue.{way}.waiters_1.raw_per_s" not in found:
            continue
        for disk in ("slow", "raw"):
            fd = found[f"queue.fd.{disk}_per_s"]
            heads = [f"queue.{way}.waiters_{waiters}.{disk}" for waiters in (1, 64, 256)]
            cells.append(" / ".join(number(found[f"{head}_per_s"] / fd) for head in heads))
            cells.append(" / ".join(number(found[f"{head}_cpu_us"]) for head in heads))
        yield f"| {way} | " + " | ".join(cells) + " |"
    yield ""


def goals(document: Recorded) -> Iterator[str]:
    """Yield the table of what is judged, line by line."""
    yield "| what | measured | goal | met | against |"
    yield "|---|---|---|---|---|"
    for one in document.results:
        if one.goal is not None:
            beside = "" if one.baseline is None else f"{one.baseline.what}: {number(one.baseline.value)}"
            ratio = "" if one.baseline is None else f" ({number(one.value / one.baseline.value)} ×)"
            measured = f"{number(one.value)} {one.unit}{ratio}"
            met = "yes" if one.ok else "**no**"
            yield f"| {one.what} | {measured} | {one.goal} | {met} | {beside} |"
    yield ""


def tables(found: Figures) -> Iterator[str]:
    """Yield the tables, line by line."""
    fd = found["queue.fd.slow_per_s"]
    yield from _table(
        "Processor time, µs, no syncs: at 1,000 / 100,000 / 2,600,000 rows",
        {
            "put": ".put.cpu_us",
            "put ×100": ".put_batch.cpu_us",
            "claim + ack": ".cycle.cpu_us",
            "claim + ack ×50": ".cycle_batch.cpu_us",
        },
        found,
    )
    yield from _table(
        f"Durable rate, × fd, each sync at least 4 ms (fd here: {number(fd)}/s)",
        {
            "put": ".put.slow_per_s",
            "put ×100": ".put_batch.slow_per_s",
            "claim + ack": ".cycle.slow_per_s",
            "claim + ack ×50": ".cycle_batch.slow_per_s",
        },
        found,
        unit=fd,
    )
    yield from _table(
        "Opening with the first claim (s), files (MB), memory (MB), log per put ×100 (KiB)",
        {"open": ".reopen_s", "files": ".file_mb", "memory": ".peak_mb", "log": ".put_batch.log_kib"},
        found,
    )


def _table(title: str, columns: Mapping[str, str], found: Figures, unit: float = 1.0) -> Iterator[str]:
    yield f"**{title}**"
    yield ""
    yield "| | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for system in SYSTEMS:
        cells = [_cell(system, tail, found, unit) for tail in columns.values()]
        if any(cell != "–" for cell in cells):
            yield f"| {system} | " + " | ".join(cells) + " |"
    yield ""


def _cell(system: str, tail: str, found: Figures, unit: float) -> str:
    values = [found.get(f"queue.{size}.{system}{tail}") for size in _SIZES]
    if not any(values):
        return "–"
    return " / ".join("–" if value is None else number(value / unit) for value in values)


def main(arguments: Sequence[str]) -> int:
    """Write the picture and print the tables."""
    name, svg = arguments
    document = msgspec.json.decode(Path(name).read_bytes(), type=Recorded)
    found = figures(document)
    Path(svg).write_text(picture(found))
    sys.stdout.write("\n".join([*ways(found), *goals(document), *tables(found)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
