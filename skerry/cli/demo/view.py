"""What the demo shows while it runs and at its end. On a terminal a live table, else plain lines."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from skerry.cli.demo.fleet import NodePlan
from skerry.cli.demo.watching import Sample, Watch

_LINES_KEPT = 8


class View:
    """The story so far, and the fleet as it is. Use it in a `with` block."""

    def __init__(self, stream: TextIO, plans: dict[str, NodePlan]) -> None:
        """stream: where it is drawn (standard error, so that `--json` leaves standard output alone)."""
        self._console = Console(file=stream)
        self._plans = plans
        self._lines: list[str] = []
        self._began = time.monotonic()
        self._watch: Watch | None = None
        self._panel: RenderableType = Text()
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._draw, console=self._console, refresh_per_second=4)

    def follow(self, watch: Watch) -> None:
        """Draw these samples from now on."""
        self._watch = watch

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
        table = Table(title="the fleet", title_justify="left", expand=False)
        for column in ("node", "region", "devices", "link", "waiting", "unsent", "done"):
            table.add_column(column, justify="right" if column in {"waiting", "unsent", "done"} else "left")
        samples = self._watch.samples if self._watch else {}
        for plan in self._plans.values():
            table.add_row(*self._row(plan, samples.get(plan.name, Sample())))
        return Group(table, self._panel, Text("\n".join(self._lines)))

    def _row(self, plan: NodePlan, sample: Sample) -> tuple[str | Text, ...]:
        devices = ", ".join(("cpu", *(f"{board} (emulated)" for board in plan.boards)))
        state = Text(sample.link, "green") if sample.link == "up" else Text("cut off", "yellow")
        if not sample.is_up:
            state = Text("not running", "red")
        figures = (str(sample.waiting), str(sample.outbox), str(sample.done))
        return (plan.name, plan.region, devices, state, *figures)


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
        console.print("one decision, in words:", highlight=False)
        console.print(Text(explained))
