"""`python -m cloud_coordinator --config coordinator.toml`: reads the settings, runs until told to stop."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cloud_coordinator.service import run_coordinator
from cloud_coordinator.settings import CoordinatorSettings, check_settings
from skerry.errors import SettingsError
from skerry.settings import load_settings

PREFIX = "SKERRY_COORDINATOR__"


def read_settings(path: Path | None) -> CoordinatorSettings:
    """Return the settings from a file and the environment, checked.  Raises SettingsError."""
    return check_settings(load_settings(CoordinatorSettings, path=path, environ=os.environ, prefix=PREFIX))


def main(argv: list[str] | None = None) -> int:
    """Run a coordinator; return the exit status: 0 stopped in order, 2 a mistake that the message names."""
    parser = argparse.ArgumentParser(prog="cloud_coordinator", description="Run a Skerry coordinator.")
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    arguments = parser.parse_args(argv)
    try:
        settings = read_settings(arguments.config)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run_coordinator(settings)


if __name__ == "__main__":
    sys.exit(main())
