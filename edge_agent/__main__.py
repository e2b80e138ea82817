"""`python -m edge_agent --config FILE`: settings in, one agent out. Mistakes end in one clear line."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from edge_agent.settings import AgentSettings, read_settings
from skerry.errors import SkerryError
from skerry.exits import service_exit
from skerry.lean import no_system_certificates


def run_agent(settings: AgentSettings) -> int:
    """Run an agent until it is asked to stop; return the exit status of the process."""
    with no_system_certificates():
        from edge_agent.service import run_service
    from skerry.logs import set_up

    set_up(style=settings.log.format, level=settings.log.level)
    asyncio.run(run_service(settings))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Read the settings and run; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m edge_agent", description="Run a Skerry agent.")
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    parser.add_argument("--data-dir", help="data directory, instead of the settings'")
    given = parser.parse_args(arguments)
    try:
        return run_agent(read_settings(given.config, os.environ, {"data_dir": given.data_dir}))
    except SkerryError as error:
        print(f"skerry agent: {error}", file=sys.stderr)
        return service_exit(error)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
