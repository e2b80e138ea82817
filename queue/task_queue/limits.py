"""How much one queue may hold. Owns the bounds; knows nothing of storage."""

from __future__ import annotations

from typing import Literal

import msgspec

from skerry.task import DOCUMENT_LIMIT_BYTES

MIB = 1024 * 1024
#: How hard a commit is written down. What each level loses at a power cut: docs/explanation/queue-promises.md
#: "off" never waits for a disk: for worlds without power cuts (the twin). No setting of an agent names it.
Synchronous = Literal["full", "normal", "off"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one store."""

    synchronous: Synchronous = "full"  #: "normal" gives a power cut the newest acknowledged commits
    max_bytes: int = 1024 * MIB  #: of the database file
    #: Kept free below max_bytes for the ends and reports of what was accepted; at most a tenth of max_bytes.
    reserve_bytes: int = 64 * MIB
    max_document_bytes: int = 2 * DOCUMENT_LIMIT_BYTES  #: of one task, or of one result
    max_row_bytes: int = 4 * DOCUMENT_LIMIT_BYTES  #: of one outbox row
    free_floor_bytes: int = 8 * MIB  #: no task is accepted when the file system has less than this
    ballast_bytes: int = 8 * MIB  #: a file that is given up on a full disk, so that the rest can end in order
    control_ballast_bytes: int = 1 * MIB  #: another one, given up when only the control lane may still write
    #: Of the write-ahead log, which grows while someone reads in one long transaction: near it the door
    #: closes, above it only control is written.
    max_log_bytes: int = 64 * MIB
    #: How long a task that is elsewhere waits for word of its end after its own time, powered-on s: more
    #: than the longest outage promised (72 h), so that the word has come before it is given up.
    await_word_s: float = 96 * 3600.0
    keep_ended: int = 100_000  #: records of ended tasks kept; the oldest go first
    keep_ended_s: float = 30 * 86400.0  #: and for how long, powered-on seconds
    #: Ids and keys of ended tasks recognise a repetition after the record is gone. One is forgotten when more
    #: than so many are kept, and it ended so long ago: longer than the longest outage promised (72 h).
    remember_ended: int = 200_000
    remember_s: float = 96 * 3600.0

    @property
    def enqueue_bytes(self) -> int:
        """Above this many bytes in use no task is accepted."""
        return self.max_bytes - min(self.reserve_bytes, self.max_bytes // 10)

    @property
    def checkpoint_bytes(self) -> int:
        """Length at which the log is written into the file: what the ballast frees must be room for it."""
        return min(CHECKPOINT_BYTES, self.ballast_bytes // 2) if self.ballast_bytes else CHECKPOINT_BYTES

    @property
    def accepted_bytes(self) -> int:
        """Above this many bytes in use only control is written: what lies between is its reserved room."""
        return self.max_bytes - min(CONTROL_RESERVE_BYTES, self.max_bytes // 32)


#: Room below the cap that only control may use, bytes; at most a thirty-second of the cap.
CONTROL_RESERVE_BYTES = 8 * MIB
#: The write-ahead log is written into the file at this length, bytes.
CHECKPOINT_BYTES = 4 * MIB
#: One commit adds less than this to the log: a batch has at most half of it in documents.
COMMIT_BYTES = 16 * MIB
#: A long write-ahead log is looked for, and one that a reader still needs tried again, every so many seconds.
LOG_RETRY_S = 0.5
#: While there is ample room, what the disk says is asked again after so many seconds, or when so many bytes
#: were written: each question is a system call of 2 to 4 µs, and a commit has nine.
LOOK_EVERY_S = 0.25
LOOK_AGAIN_BYTES = 8 * MIB
#: Room is ample when so many bytes more would change nothing: what may be written unseen, twice.
AMPLE_BYTES = 2 * LOOK_AGAIN_BYTES
#: A commit of more operations measures always; so many of the largest fit into LOOK_AGAIN_BYTES.
FEW_OPERATIONS = 8
#: A value kept with PutMeta, bytes of JSON.
META_LIMIT_BYTES = 64 * 1024
#: Rows that one commit deletes from the outbox at most: a longer one would hold up the commits behind it.
TRIM_SLICE = 5000
#: Every priority that a task may have, the most urgent first.
PRIORITIES = tuple(range(9, -1, -1))
#: Of so many claimed tasks one is the oldest that is ready, whatever its priority: none waits for ever.
AGEING_SHARE = 16
#: Attempts that may end through no fault of the task; those after count, so that no task runs for ever.
UNCOUNTED_LIMIT = 20
#: What a row costs beside its document, bytes, roughly (indexes, attempt, report).
ROW_OVERHEAD_BYTES = 1024
#: What a message costs beside its body, bytes, roughly.
MESSAGE_OVERHEAD_BYTES = 64
#: The book is written with every change, and at least this often, seconds: what a power cut can take from the
#: powered-on clock, and a kill from the latest renewal of placements (which then end earlier, never later).
CHECKPOINT_S = 30.0
