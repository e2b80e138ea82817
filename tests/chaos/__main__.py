"""`python -m tests.chaos [fleet | queue | power | files | broken] …`: what to torture (else the fleet)."""

from __future__ import annotations

import importlib
import sys

PARTS = {
    "fleet": "tests.chaos.torture",
    "queue": "tests.chaos.queue_torture",
    "power": "tests.chaos.power_cuts",
    "files": "tests.chaos.fuse_cuts",
    "broken": "tests.chaos.broken_files",
}


def main() -> int:
    """Hand the rest of the command line to the part's own command; return its exit status."""
    name = sys.argv.pop(1) if sys.argv[1:2] and sys.argv[1] in PARTS else "fleet"
    status: int = importlib.import_module(PARTS[name]).main()
    return status


if __name__ == "__main__":
    sys.exit(main())
