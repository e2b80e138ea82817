"""What operations ask for while rows are still to come: it is brought over at once, before its turn.

Without that an answer would be given from the half of the queue that is there: a key accepted a second time,
an ordering key's order broken, an attempt's end refused. Every file is asked, that of the salvage under way
and those of older ones that go on after it. Owns what belongs to an operation; Salvage counts what comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from skerry.errors import StorageFailed
from skerry.task import TaskSpec
from task_queue.damage.old_file import UNSEARCHABLE
from task_queue.damage.remains import BY_ID, BY_KEY
from task_queue.damage.salvage import Salvage
from task_queue.operations import Advance, DropRecurring, Enqueue, Operation, PutRecurring
from task_queue.records import Unreadable
from task_queue.store import scoped_key
from task_queue.transaction import Transaction

_BY_QUEUE_KEY, _REMEMBERED_KEY = "task_key", "remembered_request"
#: The newest events of a task say how it ended.
_EVENTS_ASKED_FOR = 2


def bring(salvage: Salvage, tx: Transaction, operations: Iterable[Operation]) -> None:
    """Bring over at once what these operations are about, as far as it is not here.

    Raises StorageFailed when the old file does not say whether it has that: ask again in a while.
    """
    try:
        with salvage.at_work():
            has_come = any([_bring_all_of(salvage, tx, op) for op in operations])
    except UNSEARCHABLE as error:
        salvage.save(tx)  # what has come until here stays when the commit goes on without the rest
        raise StorageFailed(
            "the queue's database was damaged and is being brought back: what is asked for cannot be "
            "looked up in it yet; try again in a moment"
        ) from error
    if has_come:
        salvage.save(tx)


def bring_key(salvage: Salvage, tx: Transaction, queue_key: str) -> bool:
    """Bring over every task with an ordering key; False when it cannot be told which those are."""
    if salvage.is_at_work:
        return False
    if queue_key in salvage.whole_keys:
        return True
    try:
        with salvage.at_work():
            for source in salvage.sources():
                _bring_tasks(source, tx, _BY_QUEUE_KEY, queue_key)
    except UNSEARCHABLE:
        return False
    finally:
        salvage.save(tx)
    salvage.whole_keys.add(queue_key)
    return True


def may_hold(salvage: Salvage, task_id: str) -> bool:
    """Decide whether one of the old files may hold a task; one that cannot be searched may."""
    name = bytes.fromhex(task_id)
    try:
        return any(True for source in salvage.sources() for _ in source.old.rows_under(BY_ID, name))
    except UNSEARCHABLE:
        return True


def _bring_all_of(salvage: Salvage, tx: Transaction, op: Operation) -> bool:
    """Bring over the rows that an operation is about, and then the stories of its task."""
    task_id: str | None = getattr(op, "task_id", None)
    name = bytes.fromhex(task_id) if task_id else None
    has_come = False
    for source in salvage.sources():
        if isinstance(op, PutRecurring | DropRecurring | Advance):
            has_come |= source.bring_table(tx, "recurring")
        if name is not None:
            has_come |= _bring_remembered(source, tx, name)
            has_come |= _bring_tasks(source, tx, BY_ID, name)
        if isinstance(op, Enqueue):
            has_come |= _bring_keys_of(source, tx, op.task, salvage.whole_keys)
    if name is not None:  # only now is the task here that names its events
        has_come |= any([_bring_story(source, tx, name) for source in salvage.sources()])
    return has_come


def _bring_keys_of(source: Salvage, tx: Transaction, task: TaskSpec, whole_keys: set[str]) -> bool:
    """Bring over what has the idempotency key of a task, and what has its ordering key."""
    has_come = False
    request_key = scoped_key(task.tenant, task.idempotency_key)
    if request_key is not None:
        has_come |= _bring_remembered_key(source, tx, request_key)
        has_come |= _bring_tasks(source, tx, BY_KEY, request_key)
    queue_key = scoped_key(task.tenant, task.ordering_key)
    if queue_key is not None and queue_key not in whole_keys:
        has_come |= _bring_tasks(source, tx, _BY_QUEUE_KEY, queue_key)
    return has_come


def _bring_tasks(source: Salvage, tx: Transaction, index: str, key: str | bytes) -> bool:
    """Bring over the tasks that an index names under a key; one that cannot be read is marked as lost."""
    has_come = False
    for seq in source.old.rows_under(index, key):
        if not source.putting.has(seq):
            has_come |= source.bring_row(tx, "task", seq)
        if index in (BY_ID, BY_KEY) and not source.putting.has(seq):
            has_come |= source.mark(tx, index, (0, [key, seq]))
    return has_come


def _bring_remembered_key(source: Salvage, tx: Transaction, request_key: str) -> bool:
    """Bring over what is remembered of forgotten tasks under an idempotency key."""
    if source.is_over("remembered"):
        return False
    names = [entry[-1] for entry in source.old.entries(_REMEMBERED_KEY, request_key)]
    return any([_bring_remembered(source, tx, name) for name in names if isinstance(name, bytes)])


def _bring_remembered(source: Salvage, tx: Transaction, task_id: bytes) -> bool:
    """Bring over what is remembered of a forgotten task."""
    if source.is_over("remembered"):
        return False
    pages = source.old.pages_with("remembered", task_id)
    return any([source.bring_page(tx, "remembered", page) for page in pages])


def _bring_story(source: Salvage, tx: Transaction, task_id: bytes) -> bool:
    """Bring over the newest events of a task, one after the other: each names the one before."""
    has_come = False
    for age in range(_EVENTS_ASKED_FOR):
        number = source.putting.event_of(task_id, age)
        if number is not None:
            with suppress(Unreadable, IndexError):  # it comes with its page, or is lost
                has_come |= source.bring_row(tx, "event", number)
    return has_come
