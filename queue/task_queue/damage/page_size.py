"""How large the pages of a database are, also of one whose header is gone.

Small pages: a commit rewrites each page that it touches, so they halve what a task costs in the write-ahead
log. Databases of earlier versions keep the larger ones. Knows no table.
"""

from __future__ import annotations

from pathlib import Path

#: Of a new database.
PAGE_BYTES = 1024
#: Those that there may be.
_SIZES = (PAGE_BYTES, 4096)
_SETTING = f"PRAGMA page_size = {PAGE_BYTES}"


def settings_of_new() -> tuple[str, ...]:
    """Return what must be set before a database has its first table, in this order."""
    return (_SETTING, "PRAGMA auto_vacuum = INCREMENTAL")


def page_bytes_of(database: Path) -> int:
    """Return the size of a database's pages: as its header says, else its log, else its pointer map."""
    head = _head(database)
    log = _head(database.with_name(database.name + "-wal"))
    said = (int.from_bytes(head[16:18], "big"), int.from_bytes(log[8:12], "big"))
    return next(
        (size for size in (*said, *filter(lambda size: _fits(head, size), _SIZES)) if size in _SIZES),
        PAGE_BYTES,
    )


def _fits(head: bytes, size: int) -> bool:
    """Decide whether the second page begins as a pointer map does: the third is a root, with no parent."""
    return head[size : size + 5] == b"\1\0\0\0\0"


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(max(_SIZES) + 5)
    except OSError:
        return b""
