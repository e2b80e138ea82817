"""What the demo shows while it runs and at its end. On a terminal a live table, else plain lines."""

from __future__ import annotations

import time
from collections.abc import Set
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from skerry.cli.demo.fleet import NodePlan
from skerry.cli.demo.watching import Sample, Watch

_LINES_KEPT = 8
#: With a panel beneath them.
_LINES_BESIDE = 5


class View:
    """The story so far, and the fleet as it is. Use it in a `with` block."""

    def __init__(self, stream: TextIO, plans: dict[str, NodePlan]) -> None:
        """stream: where it is drawn (standard error, so that `--json` leaves standard output alone)."""
        self._console = Console(file=stream)
        self._plans = plans
        self._lines: list[str] = []
        self._began = time.monotonic()
        self._watch: Watch | None = None
        self._cut: Set[str] = frozenset()
        self._panel: RenderableType | None = None
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._draw, console=self._console, refresh_per_second=4)

    def follow(self, watch: Watch, cut: Set[str]) -> None:
        """Draw these samples from now on. cut: nodes without a network now; they notice it late."""
        self._watch, self._cut = watch, cut

    def show(self, panel: RenderableType) -> None:
        """Draw this beneath the fleet from now on, on a terminal."""
        self._panel = panel

    def say(self, line: str) -> None:
        """Tell one thing that happened."""
        stamped = f"{time.monotonic() - self._began:6.1f} s  {line}"
        self._lines = [*self._lines, stamped][-_LINES_KEPT:]
        if self._live is None:
            self._console.print(stamped, soft_wrap=True, highlight=False)

    def __enter__(self) -> View:
        """Begin drawing."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last picture standing."""
        if self._live is not None:
            self._live.stop()

    def _draw(self) -> Group:
        # Without edges it fits 80 columns.
        table = Table(title="the fleet", title_justify="left", show_edge=False, pad_edge=False)
        for column in ("node", "region", "devices"):
            table.add_column(column)
        table.add_column("link", min_width=len("cut off"))
        for column in ("waiting", "unsent", "done"):
            table.add_column(column, justify="right")
        samples = self._watch.samples if self._watch else {}
        for plan in self._plans.values():
            table.add_row(*self._row(plan, samples.get(plan.name, Sample())))
        if self._panel is None:
            return Group(table, self._told(_LINES_KEPT))
        return Group(table, self._told(_LINES_BESIDE), self._panel)

    def _told(self, count: int) -> Text:
        """Return the newest lines; what a small terminal cuts off is at its lower end."""
        return Text("\n".join(self._lines[-count:]), no_wrap=True, overflow="ellipsis")

    def _row(self, plan: NodePlan, sample: Sample) -> tuple[str | Text, ...]:
        devices = ", ".join(("cpu", *(f"{board} (emulated)" for board in plan.boards)))
        figures = (str(sample.waiting), str(sample.outbox), str(sample.done))
        return (plan.name, plan.region, devices, _link(sample, is_cut=plan.name in self._cut), *figures)


def _link(sample: Sample, *, is_cut: bool) -> Text:
    if not sample.is_up:
        return Text("down", "red")
    if is_cut:
        return Text("cut off", "yellow")
    return Text(sample.link, "green" if sample.link == "up" else "yellow")


def print_table(
    stream: TextIO, document: dict[str, Any], where: dict[str, dict[str, int]], explained: str
) -> None:
    """Print the reckoning."""
    console = Console(file=stream)
    trips = document["placement_ms"]
    rows = (
        ("submitted", str(document["submitted"])),
        ("done", str(document["done"])),
        ("lost", str(document["lost"])),
        ("done twice", str(document["done_twice"])),
        ("attempts cut short by the kill", str(document["attempts_cut_short"])),
        ("largest backlog", f"{document['backlog_max']} tasks and messages"),
        ("outage", f"{document['outage_s']:.1f} s"),
        ("drain time", f"{document['drain_s']:.1f} s"),
        ("placed across regions", str(document["placed_across"])),
        ("placement, asked to answered", f"p50 {trips['p50']:.1f} ms, p99 {trips['p99']:.1f} ms"),
        ("broker", document["broker"]),
    )
    table = Table(title="the reckoning", title_justify="left", show_header=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    places = Table("kind of task", "ran on", title="where each kind ran", title_justify="left")
    for kind, counts in where.items():
        places.add_row(kind, ", ".join(f"{n} × {place}" for place, n in sorted(counts.items())))
    console.print(places)
    if explained:
        console.print("two decisions, in words:", highlight=False)
        console.print(Text(explained))
