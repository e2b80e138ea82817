"""One run in one process: `python -m federation.run_worker --socket PATH --run ID`. Wiring only.

Everything it knows is in the coordinator's ledger: it may be killed at any moment and started again.
Exit status: 0 the run is final, 3 the coordinator is gone, 4 it failed to say how the run ended.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from devices.executors.kernel import die_with_parent
from federation.flower import internals
from federation.flower.server_app import app
from federation.flower.settings import to_run_config
from federation.grid.durable import DurableGrid
from federation.grid.link import Link
from federation.rounds.channel import ChannelClosed, Done, Finish
from federation.values import RunState
from skerry.errors import FederationError

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the run that the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m federation.run_worker", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="the coordinator's socket for runs")
    parser.add_argument("--run", required=True, help="the run to serve")
    parser.add_argument("--parent", type=int, default=0, help="the process to end with; 0: with none")
    given = parser.parse_args(arguments)
    if given.parent:
        die_with_parent(given.parent)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        link = Link(given.socket)
        _finish(link, *_outcome(link, given.run))
    except ChannelClosed as error:
        print(error, file=sys.stderr)
        return 3
    except FederationError as error:
        print(error, file=sys.stderr)
        return 4
    return 0


def _outcome(link: Link, run_id: str) -> tuple[RunState, str]:
    """Run the server app to its end and return how it ended.  Raises ChannelClosed."""
    try:
        grid = DurableGrid(link, run_id)
        app(grid, internals.context(internals.SERVER_NUMBER, {}, to_run_config(grid.spec)))
    except ChannelClosed:
        raise
    except FederationError as error:
        return RunState.FAILED, str(error)
    except Exception as error:
        # A defect of a strategy ends this run with its name; it must not be tried again for ever.
        _log.exception("the run ended with an error")
        return RunState.FAILED, f"{type(error).__name__}: {error}"
    return RunState.DONE, ""


def _finish(link: Link, state: RunState, reason: str) -> None:
    link.ask(Finish(state=state, reason=reason[:500]), Done)


if __name__ == "__main__":
    sys.exit(main())
