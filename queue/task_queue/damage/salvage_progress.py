"""How far a salvage has come, and its counts: what is kept in the fresh store, in the commits of the rows.

Plain values; knows no file and no database.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skerry.messages import Lane, StoreSalvaged
from task_queue.damage import spans


class Progress(msgspec.Struct, omit_defaults=True):
    """How far a salvage has come. session: of the store when it was damaged."""

    copy: str
    session: int = 0
    units: int = 0  #: done, from the front
    ahead: spans.Spans = []  #: units done before their turn, none below `units`
    ordered: str = ""  #: ordering keys are put right up to this one
    kept: dict[str, int] = {}
    lost: dict[str, int] = {}
    expected: dict[str, int] = {}  #: rows that the old counters told of
    trimmed: dict[Lane, int] = {}  #: of the old outbox
    then: dict[str, Any] | None = None  #: the progress of an older salvage, which goes on after this one

    def has_done(self, unit: int) -> bool:
        """Decide whether a unit's rows have come."""
        return unit < self.units or spans.has(self.ahead, unit)

    def copies(self) -> set[str]:
        """Return the names of the copies that this salvage reads, and those that go on after it."""
        names = {self.copy}
        then = self.then
        while then is not None:
            names.add(str(then.get("copy", "")))
            then = then.get("then")
        return names

    def keep(self, table: str) -> None:
        """Count a row that has come."""
        self.kept[table] = self.kept.get(table, 0) + 1

    def lose(self, table: str) -> None:
        """Count a row that cannot be read or believed."""
        self.lost[table] = self.lost.get(table, 0) + 1

    def miss(self, table: str, rows: int) -> None:
        """Count as lost what is missing in the end, where that is more than was met on the way."""
        if rows > self.lost.get(table, 0):
            self.lost[table] = rows

    def report(self) -> StoreSalvaged:
        """Return the counts, as the coordinator hears of them."""
        lost = {table: n for table, n in self.lost.items() if n}
        return StoreSalvaged(
            quarantined=self.copy,
            rows_kept=sum(self.kept.values()),
            rows_lost=sum(lost.values()),
            kept=dict(sorted(self.kept.items())),
            lost=dict(sorted(lost.items())),
        )
