"""The queue's expected refusals as problem documents: which status, and what to do about it."""

from __future__ import annotations

from skerry.errors import SkerryError
from skerry.problem import problem
from task_queue.operations import Reason, Refused

#: reason → (status, name, what to do, seconds after which trying again may help)
_ANSWERS: dict[Reason, tuple[int, str, str, float | None]] = {
    "full": (429, "queue-full", "", 5.0),
    "too_large": (413, "too-large", "", None),
    "not_found": (404, "task-not-found", "`skerry tasks list` shows the tasks of this node", None),
    "ended": (409, "not-allowed-now", "", None),
    "not_allowed": (409, "not-allowed-now", "see its present state with `skerry tasks show`", None),
    "lease_lost": (409, "lease-lost", "another attempt owns it now", None),
    "fenced": (409, "lease-lost", "a later placement owns it now", None),
    "unsatisfiable": (422, "unsatisfiable", "", None),
    "stopping": (503, "stopping", "send it again when it is back", 2.0),
}


def refusal(refused: Refused) -> SkerryError:
    """Return the problem to raise for a refusal of the queue."""
    status, name, what_to_do, usual_s = _ANSWERS[refused.reason]
    retry_after_s = usual_s if refused.retry_after_s is None else refused.retry_after_s
    detail = f"{refused.message}; {what_to_do}" if what_to_do else refused.message
    return problem(status, detail, name=name, retry_after_s=retry_after_s)
