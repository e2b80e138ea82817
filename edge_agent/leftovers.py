"""What a kill left half made in a data directory: found by its name and removed at the next start."""

from __future__ import annotations

import shutil
from pathlib import Path

#: How names begin of what exists only while it is made: copies, and restores that were not finished.
UNFINISHED = (".backup-", ".restore-", ".verify-")


def why_not_to_begin(home: Path) -> str:
    """Return what speaks against beginning with an empty queue: a restore was cut off between two queues."""
    if (home / "queue.db").exists() or not any(home.glob(".restore-*")):
        return ""
    aside = sorted(home.glob("replaced-*"), key=lambda path: path.stat().st_mtime)
    if not aside:
        return ""  # there was none before
    return (
        f"a restore into {home} was cut off before its queue was in place: run `skerry backup restore` again "
        f"with --replace, or move the files in {aside[-1]} back to have the queue that was there"
    )


def remove_unfinished(home: Path) -> list[str]:
    """Remove what was not finished and return the names. The caller holds the directory's lock."""
    found = [path for path in home.iterdir() if path.name.startswith(UNFINISHED)]
    for path in found:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return [path.name for path in found]
