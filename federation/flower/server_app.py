# pyright: reportMissingImports=false
"""The Flower server: makes the run's versions over whatever grid it is given."""

from __future__ import annotations

from itertools import pairwise
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

    The run setting `result` names a file for the outcome and the time of each version, for runs that nobody
    else keeps.
    """
    spec = from_run_config(context.run_config)
    journal: Journal = getattr(grid, "journal", None) or MemoryJournal(spec)
    outcome = Versions(grid, make_strategy(spec), journal, spec).run()
    if result := str(context.run_config.get(RESULT, "")):
        times = journal.kept_at_s if isinstance(journal, MemoryJournal) else []
        took_s = [after - before for before, after in pairwise(times)]
        Path(result).write_bytes(msgspec.json.encode({**summary_of(outcome), "took_s": took_s}))


def summary_of(outcome: Checkpoint) -> dict[str, object]:
    """Return the last version's number, the hash of its packet and its metrics."""
    return {
        "version": outcome.version,
        "model": content_hash(pack(outcome.arrays)),
        "metrics": outcome.metrics,
    }
