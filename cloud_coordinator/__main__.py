"""`python -m cloud_coordinator --config coordinator.toml`: reads the settings, runs until told to stop."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cloud_coordinator.service import run_coordinator
from cloud_coordinator.settings import read_settings
from skerry.errors import SkerryError
from skerry.exits import service_exit


def main(argv: list[str] | None = None) -> int:
    """Run a coordinator; return the exit status: 0 stopped in order; a mistake is one clear line."""
    parser = argparse.ArgumentParser(prog="cloud_coordinator", description="Run a Skerry coordinator.")
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    arguments = parser.parse_args(argv)
    try:
        return run_coordinator(read_settings(arguments.config, os.environ))
    except SkerryError as error:
        print(f"skerry coordinator: {error}", file=sys.stderr)
        return service_exit(error)


if __name__ == "__main__":
    sys.exit(main())
