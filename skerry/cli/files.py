"""Making a service's directory: settings file and data directory, private, nothing overwritten."""

from __future__ import annotations

import os
from pathlib import Path

from skerry.errors import SettingsError


def write_settings(file: Path, text: str, *, force: bool) -> None:
    """Write a settings file (mode 0600), making its directory (mode 0700) when it is missing.

    Raises SettingsError when the file is there and not force, or cannot be written.
    """
    try:
        make_private(file.parent)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
        with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as out:
            out.write(text)
        file.chmod(0o600)
    except FileExistsError as error:
        raise SettingsError(
            f"{file} is there already: --force writes it anew, its settings are lost"
        ) from error
    except OSError as error:
        raise SettingsError(f"{file} cannot be written: {error.strerror}") from error


def make_private(directory: Path) -> Path:
    """Make a directory (mode 0700) when it is missing and return it.  Raises SettingsError."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise SettingsError(f"{directory} is a file, not a directory: choose another place") from error
    except OSError as error:
        raise SettingsError(f"the directory {directory} cannot be made: {error.strerror}") from error
    return directory


def become(module: str, config: Path) -> None:
    """Replace this process with a service: the service keeps the pid and none of the command line's packages.

    Raises SettingsError when the settings file is missing.
    """
    import sys

    if not config.is_file():
        raise SettingsError(
            f"there is no settings file {config}; make one with init, or name another with --config"
        )
    # -P: a file in the current directory must not take a module's place.
    words = [sys.executable, "-P", "-m", module, "--config", str(config)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, words)
