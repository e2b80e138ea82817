# pyright: reportMissingImports=false, reportUntypedBaseClass=false
"""What our grids share, and how the loop waits on a grid of Flower's own, which can only be asked again."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from federation.flower import internals

#: How often a grid that cannot wake us is asked.
POLL_S = 0.05


class EventGrid(Grid):
    """A grid that wakes its caller."""

    def __init__(self) -> None:
        """Make this process one that may create instructions."""
        internals.become_server()
        self._run = internals.empty_run()

    @abstractmethod
    def wait_for_nodes(self, minimum: int, patience_s: float) -> list[int]:
        """Return the eligible nodes once there are `minimum`, or fewer when patience is over."""

    @abstractmethod
    def wait_for_replies(self, message_ids: Collection[str], minimum: int, timeout_s: float) -> None:
        """Return when `minimum` of these have a reply to pull, or the time is over."""

    def set_run(self, run: object) -> None:
        """Keep what Flower says of the run."""
        self._run = run

    @property
    def run(self) -> object:
        """What Flower says of the run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new instruction: what Flower's interface still asks for."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push, then pull until all replies are here or the time is over."""
        open_ids = set(self.push_messages(messages))
        ends = time.monotonic() + (float("inf") if timeout is None else timeout)
        replies: list[Message] = []
        while open_ids:
            fresh = list(self.pull_messages(open_ids))
            replies.extend(fresh)
            open_ids.difference_update(reply.metadata.reply_to_message_id for reply in fresh)
            left = ends - time.monotonic()
            if not open_ids or left <= 0:
                break
            self.wait_for_replies(open_ids, 1, min(left, 3600.0))
        return replies


def await_nodes(grid: Grid, minimum: int, patience_s: float) -> list[int]:
    """Return the nodes once there are `minimum`, or fewer when patience is over."""
    if isinstance(grid, EventGrid):
        return grid.wait_for_nodes(minimum, patience_s)
    ends = time.monotonic() + patience_s
    while len(nodes := sorted(grid.get_node_ids())) < minimum and time.monotonic() < ends:
        time.sleep(POLL_S)
    return nodes


def await_replies(grid: Grid, message_ids: Collection[str], minimum: int, timeout_s: float) -> None:
    """Return when another look is worth it."""
    if isinstance(grid, EventGrid):
        grid.wait_for_replies(message_ids, minimum, timeout_s)
    else:
        time.sleep(min(POLL_S, timeout_s))
