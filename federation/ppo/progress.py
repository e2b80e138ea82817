"""What a person sees of a training run: a bar on a terminal, a line an update elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from federation.ppo.train import TrainingRun


class Progress:
    """Shows how far a run is and what came of it so far."""

    def __init__(self, *, is_plain: bool) -> None:
        """is_plain: lines instead of a bar."""
        self._bar = (
            None if is_plain else Bar(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        )
        self._task = None if self._bar is None else self._bar.add_task("training", total=1.0)

    def __enter__(self) -> Self:
        """Start to show."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, run: TrainingRun) -> None:
        """Show where the run stands."""
        words = in_words(run)
        if self._bar is None or self._task is None:
            print(words)
            sys.stdout.flush()
            return
        self._bar.update(self._task, completed=run.update / run.settings.updates, description=words)


def in_words(run: TrainingRun) -> str:
    """Return one line: update, processor time, the last point of the curve and the last update's figures."""
    parts = [f"update {run.update}/{run.settings.updates}", f"{run.cpu_s:.0f} CPU s"]
    if run.history:
        last = run.history[-1]
        parts.append(f"reward {last.reward:.3f}, entropy {last.entropy:.2f}, KL {last.kl:.4f}")
    if run.curve:
        point = run.curve[-1]
        ratios = ", ".join(f"{ratio:.3f} at {devices} devices" for devices, ratio in point.ratio.items())
        parts.append(f"cost / min-increase after {point.update}: {ratios}")
    return "  ".join(parts)
