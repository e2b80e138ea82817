"""How full a queue is, and what that means at its door: one pure function from usage and limits to a level.

Owns the shares at which producers, telemetry and history feel the bounds. Knows nothing of storage, and
decides nothing about a task that was accepted: from the door on it ends by its own terms.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from task_queue.limits import AMPLE_BYTES, Limits


class Level(IntEnum):
    """How short room is. Each level keeps what the one below it asks for."""

    FREE = 0
    SAMPLED = 1  #: one of so many rows of telemetry is kept; ended tasks are forgotten before their time
    SLOWED = 2  #: tasks of the lowest priorities are refused, other producers are answered later
    URGENT = 3  #: only tasks of the highest priorities; the oldest telemetry makes room
    CLOSED = 4  #: no task and no telemetry; ends, reports and control go on in the room that is kept for them


#: The share of the budget from which each level holds.
SHARES = {Level.SAMPLED: 0.70, Level.SLOWED: 0.85, Level.URGENT: 0.95, Level.CLOSED: 1.0}
#: Tasks of this priority and above are accepted.
LOWEST_PRIORITY = {Level.FREE: 0, Level.SAMPLED: 0, Level.SLOWED: 2, Level.URGENT: 7, Level.CLOSED: 10}
#: Of so many rows of telemetry one is kept; 0: none.
SAMPLE = {Level.FREE: 1, Level.SAMPLED: 8, Level.SLOWED: 32, Level.URGENT: 128, Level.CLOSED: 0}
#: Seconds after which one who was refused should ask again: about as long as the next drain takes.
RETRY_AFTER_S = {
    Level.FREE: 0.0,
    Level.SAMPLED: 0.0,
    Level.SLOWED: 2.0,
    Level.URGENT: 5.0,
    Level.CLOSED: 15.0,
}
#: No higher share is told: of a budget that is gone altogether it would be without end.
MOST_SHARE = 10.0
#: Unused pages that the file should have on a full disk, bytes, at most a quarter of it: ends go there.
SLACK_BYTES = 4 * 1024 * 1024
#: The longest that an accepted task's producer is kept waiting for its answer, seconds.
PAUSE_MOST_S = 1.0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a store takes of its disk, bytes."""

    used_bytes: int  #: of the database file that hold something
    file_bytes: int  #: the whole file: what it holds beyond used_bytes is written again before it grows
    free_bytes: int  #: what this user may still write on the file system
    log_bytes: int = 0  #: the write-ahead log


def budget_bytes(usage: Usage, limits: Limits) -> int:
    """Return how much may be used before the door closes: the configured bytes or what the disk has left."""
    on_disk = usage.file_bytes + usage.free_bytes - limits.free_floor_bytes
    return min(limits.enqueue_bytes, on_disk)


def fullness(usage: Usage, limits: Limits) -> float:
    """Return the share of the budget in use, at most MOST_SHARE; 1 and above: none is left.

    A write-ahead log that cannot be emptied, because someone reads in one long transaction, counts as well.
    """
    return _share(usage.used_bytes, budget_bytes(usage, limits), usage.log_bytes / limits.max_log_bytes)


def _share(used_bytes: int, budget: int, log_share: float) -> float:
    data_share = used_bytes / budget if budget > 0 else MOST_SHARE
    return min(MOST_SHARE, max(data_share, log_share))


def level_at(share: float) -> Level:
    """Return the level that holds at this share of the budget."""
    if share < SHARES[Level.SAMPLED]:  # nearly always
        return Level.FREE
    return max(level for level, least in SHARES.items() if share >= least)


def level(usage: Usage, limits: Limits) -> Level:
    """Return how short room is."""
    return level_at(fullness(usage, limits))


def is_ample(usage: Usage, limits: Limits) -> bool:
    """Decide whether AMPLE_BYTES more, in the file and in its log, would still leave room free."""
    later = msgspec.structs.replace(
        usage, used_bytes=usage.used_bytes + AMPLE_BYTES, log_bytes=usage.log_bytes + AMPLE_BYTES
    )
    return level(later, limits) is Level.FREE


def pause_s(share: float, priority: int) -> float:
    """Return how much later the producer of an accepted task gets its answer, seconds."""
    least, most = SHARES[Level.SLOWED], SHARES[Level.URGENT]
    if share < least or priority >= LOWEST_PRIORITY[Level.URGENT]:
        return 0.0
    return PAUSE_MOST_S * min(1.0, (share - least) / (most - least))


def why_only_control(usage: Usage, limits: Limits, accepted_bytes: int) -> str:
    """Say why nothing but control may be written now; empty while anything may.

    accepted_bytes: what lies above is the room of control.
    """
    is_log_long = usage.log_bytes > limits.max_log_bytes
    return why_full(usage, limits) if is_log_long or usage.used_bytes > accepted_bytes else ""


def why_full(usage: Usage, limits: Limits) -> str:
    """Say which bound is the tight one, and what to do about it."""
    if usage.log_bytes / limits.max_log_bytes >= SHARES[Level.SLOWED]:
        return (
            f"the queue's write-ahead log has {_mib(usage.log_bytes)} and cannot be emptied while another "
            "program reads the database in one long transaction: end that program"
        )
    if budget_bytes(usage, limits) < limits.enqueue_bytes:
        return (
            f"the file system is full ({_mib(usage.free_bytes)} free, {_mib(limits.free_floor_bytes)} are "
            "kept free): delete something there; nothing that was accepted is lost"
        )
    return (
        f"the queue holds {_mib(usage.used_bytes)} of the {_mib(limits.max_bytes)} that it may: wait until "
        "tasks end and their reports are acknowledged, or raise the queue's limit in the settings"
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"


class Room:
    """The usage as one commit changes it. What the commit adds is estimated; the next one measures."""

    def __init__(self, usage: Usage, limits: Limits) -> None:
        """Start from what was measured."""
        self._usage = usage
        self._limits = limits
        self._budget_bytes = budget_bytes(usage, limits)
        self._log_share = usage.log_bytes / limits.max_log_bytes
        self._used_bytes = usage.used_bytes

    @property
    def level(self) -> Level:
        """How short room is by now."""
        return level_at(self.share_with(0))

    def is_evicting(self, least: Level) -> bool:
        """Decide whether rows should leave, from this level on.

        On a full disk only until the file has room of its own to write in: more would help nobody.
        """
        if self.level < least:
            return False
        file_bytes = self._usage.file_bytes
        slack_bytes = min(SLACK_BYTES, file_bytes // 4)
        return not self.is_disk_short or file_bytes - self._used_bytes < slack_bytes

    @property
    def is_disk_short(self) -> bool:
        """The file system has less room than the settings allow: a commit must be small to fit."""
        return self._budget_bytes < self._limits.enqueue_bytes

    def share_with(self, size_bytes: int) -> float:
        """Return the share of the budget in use once that much more is."""
        return _share(self._used_bytes + size_bytes, self._budget_bytes, self._log_share)

    def take(self, size_bytes: int) -> None:
        """Take note of something written; a negative size of something deleted."""
        self._used_bytes = max(0, self._used_bytes + size_bytes)

    def why_full(self) -> str:
        """Say which bound is the tight one."""
        return why_full(msgspec.structs.replace(self._usage, used_bytes=self._used_bytes), self._limits)
