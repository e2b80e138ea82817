"""Which tasks want a place, and when to look at each. Owns the order of due times; knows nothing of tasks."""

from __future__ import annotations

import heapq

from skerry.clock import Instant


class PlanQueue:
    """Task ids with the moment from which each is to be planned, all of one boot of this machine."""

    def __init__(self) -> None:
        """Start empty."""
        self._due: dict[str, float] = {}
        #: Lazy: an entry counts only while it agrees with _due.
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, task_id: object) -> bool:
        """Decide whether the task waits here."""
        return task_id in self._due

    def __len__(self) -> int:
        """Return how many tasks wait here."""
        return len(self._due)

    def put(self, task_id: str, due: Instant) -> None:
        """Look at the task from then on (again)."""
        self._due[task_id] = due.uptime_s
        heapq.heappush(self._heap, (due.uptime_s, task_id))

    def drop(self, task_id: str) -> None:
        """Look at the task no more."""
        self._due.pop(task_id, None)

    def ids(self) -> list[str]:
        """Return every task that waits."""
        return list(self._due)

    def next_due_s(self, now: Instant) -> float | None:
        """Return the seconds until the first task is due, 0 or below when one is; None when none waits."""
        self._clean()
        return self._heap[0][0] - now.uptime_s if self._heap else None

    def due(self, until: Instant, limit: int) -> list[str]:
        """Return tasks due by then, earliest first; they stay here."""
        found: list[tuple[float, str]] = []
        while len(found) < limit:
            self._clean()
            if not self._heap or self._heap[0][0] > until.uptime_s:
                break
            entry = heapq.heappop(self._heap)
            if entry not in found[-1:]:  # the same task put twice for one moment
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [task_id for _, task_id in found]

    def _clean(self) -> None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
