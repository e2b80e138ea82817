"""What is said of backups: the manifest inside one, and what a check or a restore found. Pure values."""

from __future__ import annotations

import msgspec

from skerry.documents import Document

_FORMAT = 1


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds. sha256: of its database; contents: hash to size of what the node held by hash."""

    format: int = _FORMAT
    made_wall_s: float
    made_by: str  #: version of Skerry
    node: str
    epoch: str  #: of the queue it was made from; a restored one gets another
    schema: int
    size_bytes: int
    sha256: str
    tasks: dict[str, int]
    outbox: dict[str, int]
    contents: dict[str, int] = {}

    @staticmethod
    def format_now() -> int:
        """Return the format that this program reads and writes."""
        return _FORMAT


class Verified(Document, frozen=True, kw_only=True):
    """A backup that was read from end to end and is whole. size_bytes: of the archive."""

    manifest: BackupManifest
    size_bytes: int


class Restored(Document, frozen=True, kw_only=True):
    """What a restore did.

    ended_once: tasks that may take effect only once and may have run since; set_aside: where the queue is now
    that was there before; missing_contents: what tasks may need and this node does not hold.
    """

    manifest: BackupManifest
    epoch: str
    ended_once: int
    set_aside: str = ""
    missing_contents: tuple[str, ...] = ()
