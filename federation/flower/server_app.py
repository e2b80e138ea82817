# pyright: reportMissingImports=false
"""The Flower server: makes the run's versions over whatever grid it is given."""

from __future__ import annotations

from pathlib import Path

import msgspec
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federation.flower.journal import Checkpoint, Journal, MemoryJournal
from federation.flower.settings import RESULT, from_run_config
from federation.flower.strategies.registry import make_strategy
from federation.flower.versions import Versions
from federation.wire import content_hash, pack

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Make every version. A grid that keeps versions is asked to; else they are kept in memory.

    The run setting `result` names a file for the outcome, for runs that nobody else keeps.
    """
    spec = from_run_config(context.run_config)
    kept: Journal | None = getattr(grid, "journal", None)
    outcome = Versions(grid, make_strategy(spec), kept or MemoryJournal(spec), spec).run()
    if result := str(context.run_config.get(RESULT, "")):
        Path(result).write_bytes(msgspec.json.encode(summary_of(outcome)))


def summary_of(outcome: Checkpoint) -> dict[str, object]:
    """Return the last version's number, the hash of its packet and its metrics."""
    return {
        "version": outcome.version,
        "model": content_hash(pack(outcome.arrays)),
        "metrics": outcome.metrics,
    }
