"""What must hold in every state of the exhaustive check: laws 1, 2, 3, 6 and 7, from what the parts hold.

Owns the facts that are compared, and the sentences for what does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from cloud_coordinator.ledger.values import TaskFilter as LedgerFilter
from cloud_coordinator.ledger.values import TaskState as LedgerState
from skerry.fence import Fence, parse_fence
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.topics import COORDINATOR
from task_queue.store import TaskFilter
from task_queue.task import FINAL, State
from twin.faithful.exhaustive_agent import AgentPart
from twin.faithful.exhaustive_cloud import CloudPart

_EVERY_BYTE = 1 << 40
#: States of the ledger in which a task may still be done by somebody.
LIVE = (LedgerState.PENDING, LedgerState.PLACED)


class AgentFacts(NamedTuple):
    """What an agent holds. trimmed, waiting, heads: of its outbox, by lane."""

    tasks: dict[TaskId, State]
    running: tuple[TaskId, ...]
    stray: tuple[TaskId, ...]  #: running in the store and nowhere else
    trimmed: dict[Lane, int]
    waiting: dict[Lane, int]
    heads: dict[Lane, int]
    marks: dict[Lane, int]  #: of the coordinator's commands

    def has_ended(self, task_id: TaskId) -> bool:
        """Whether a task has ended here."""
        return self.tasks.get(task_id) in FINAL


class LedgerTask(NamedTuple):
    """What the ledger holds of a task. current: places where it is now.  fences: of every placement.

    won: the placement under which it ended; empty when it did not, or not under one.
    """

    state: LedgerState
    current: int
    fences: tuple[str, ...]
    won: str


class CloudFacts(NamedTuple):
    """What the coordinator holds, by node and lane."""

    tasks: dict[TaskId, LedgerTask]
    marks: dict[tuple[str, Lane], int]
    trimmed: dict[tuple[str, Lane], int]
    commands: int
    wants_plan: bool


Facts = AgentFacts | CloudFacts


def facts_of(part: AgentPart | CloudPart) -> Facts:
    """Return what a part holds."""
    return _facts_of_agent(part) if isinstance(part, AgentPart) else _facts_of_cloud(part)


def _facts_of_agent(part: AgentPart) -> AgentFacts:
    store, claimed = part.store, part.loop.core.state.entries
    records = store.find(TaskFilter(limit=100))
    depth = store.depth()
    mark = part.uplink.command_epoch
    first = {lane: next(iter(store.outbox(lane, 0, limit=1, limit_bytes=_EVERY_BYTE)), None) for lane in Lane}
    heads = {lane: depth.written.get(lane, 0) for lane in Lane}
    return AgentFacts(
        tasks={record.task_id: record.state for record in records},
        running=tuple(sorted(part.running)),
        stray=tuple(r.task_id for r in records if r.state is State.RUNNING and r.task_id not in claimed),
        trimmed={lane: heads[lane] if row is None else row.seq - 1 for lane, row in first.items()},
        waiting={lane: depth.outbox.get(lane, 0) for lane in Lane},
        heads=heads,
        marks={lane: store.inbox_mark(COORDINATOR, mark, lane) for lane in Lane},
    )


def _facts_of_cloud(part: CloudPart) -> CloudFacts:
    ledger = part.disk
    nodes = [record.name for record in ledger.nodes()]
    tasks = {}
    for task in ledger.find(LedgerFilter(limit=100)):
        made = ledger.placements(task.task_id)
        tasks[TaskId(task.task_id)] = LedgerTask(
            state=task.state,
            current=sum(not one.ended for one in made),
            fences=tuple(str(one.fence) for one in made),
            won=str(Fence(task.fence.path)) if task.state is LedgerState.ENDED and task.fence else "",
        )
    heads = {(name, lane): ledger.head(name, lane) for name in nodes for lane in Lane}
    return CloudFacts(
        tasks=tasks,
        marks={(n, lane): ledger.mark(n, f"store-{n}", lane).upto for n in nodes for lane in Lane},
        trimmed={key: head.acked for key, head in heads.items()},
        commands=sum(head.last - head.acked for head in heads.values()),
        wants_plan=part.asked is not None,
    )


def broken_by_step(before: Facts, after: Facts, seen: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    """Yield what a step of one part has broken by itself."""
    for what, *words in seen:
        if what == "broke":
            yield f"law 7: it broke: {words[0]}"
        if what == "began" and words[2] and parse_fence(words[1]) <= parse_fence(words[2]):
            yield f"law 3: the fence does not grow: {words[1]} after {words[2]} of task {words[0][-1]}"
    if isinstance(before, AgentFacts) and isinstance(after, AgentFacts):
        for task_id in after.stray:
            yield f"law 7: task {task_id[-1]} is running in the store and nowhere else"
    elif isinstance(before, CloudFacts) and isinstance(after, CloudFacts):
        yield from _broken_in_ledger(before, after)


def _broken_in_ledger(before: CloudFacts, after: CloudFacts) -> Iterator[str]:
    for task_id, task in before.tasks.items():
        if task.state is LedgerState.ENDED and after.tasks[task_id].state is not LedgerState.ENDED:
            yield f"law 3: the ledger opened task {task_id[-1]} again after its end"
    for task_id, task in after.tasks.items():
        fences = [parse_fence(fence) for fence in task.fences]
        if any(later <= earlier for earlier, later in pairwise(fences)):
            yield f"law 3: the fences of task {task_id[-1]} do not grow: {', '.join(task.fences)}"
        if task.won and task.fences and task.won != task.fences[-1]:
            yield f"law 3: task {task_id[-1]} ended under {task.won}, yet {task.fences[-1]} was current"
        if task.current > 1 or (task.current == 1) != (task.state is LedgerState.PLACED):
            yield f"law 6: task {task_id[-1]} is {task.state} and has {task.current} current placements"


def broken_between(
    agents: dict[str, AgentFacts], cloud: CloudFacts, promised: dict[TaskId, str]
) -> Iterator[str]:
    """Yield what does not hold between the parts.  promised: acknowledged tasks, with their home."""
    for task_id, home in promised.items():
        if task_id not in agents[home].tasks:
            yield f"law 1: task {task_id[-1]} was acknowledged and is not in the store of {home}"
        entry = cloud.tasks.get(task_id)
        if entry is not None and entry.state in LIVE and agents[home].has_ended(task_id):
            yield f"law 3: task {task_id[-1]} has ended at {home}, and is {entry.state} in the ledger"
    for name, facts in agents.items():
        for lane in Lane:
            held = cloud.marks[name, lane]
            if facts.trimmed[lane] > held:
                yield (
                    f"law 2: {name} has let {lane} rows go up to {facts.trimmed[lane]}, "
                    f"the ledger holds {held}"
                )
            if facts.waiting[lane] != facts.heads[lane] - facts.trimmed[lane]:
                yield f"law 2: {lane} rows are gone from the middle of the outbox of {name}"
            if cloud.trimmed[name, lane] > facts.marks[lane]:
                yield (
                    f"law 2: the ledger has let {lane} commands for {name} go up to "
                    f"{cloud.trimmed[name, lane]}, it has applied {facts.marks[lane]}"
                )


def broken_ends(before: AgentFacts, after: AgentFacts, name: str) -> Iterator[str]:
    """Yield the ended tasks that a step has changed: an end is for good where the task was submitted."""
    for task_id, state in before.tasks.items():
        if state in FINAL and after.tasks.get(task_id) is not state:
            now = after.tasks.get(task_id)
            yield f"law 3: task {task_id[-1]} had ended at {name} as {state} and is {now}"
