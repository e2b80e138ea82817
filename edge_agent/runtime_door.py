"""The door: what can never run on a node without a coordinator is refused at once, with what is missing."""

from __future__ import annotations

from edge_agent.core.state import State as CoreState
from edge_agent.runtime_build import Parts
from policy.filters import in_units
from skerry.ids import TaskId
from skerry.task import TaskSpec, blobs_of
from task_queue.operations import Refused

#: What to do about a task that asks for more than there is.
_ASK_LESS = "ask for less; `skerry devices` lists what this node has"
#: Stands for the id that a task at the door does not have yet.
_NO_ID = TaskId("0" * 32)


def refuse_at_the_door(parts: Parts, core: CoreState, task: TaskSpec) -> Refused | None:
    """Return why the task is not accepted, None when it is. With a coordinator, another node may run it."""
    if core.is_stopping:
        return Refused(reason="stopping", message="the agent is stopping")
    if parts.facts.is_enrolled:
        return None
    reason = _missing_content(parts, task) or _beyond_this_node(parts, task) or _never_here(parts, core, task)
    return Refused(reason="unsatisfiable", message=reason) if reason else None


def _missing_content(parts: Parts, task: TaskSpec) -> str:
    missing = [name for name in blobs_of(task) if not parts.blobs.has(name)]
    if not missing:
        return ""
    return (
        f"content {missing[0]} is not on this node, and there is no coordinator to fetch it from: "
        "add it with `skerry models add FILE`, or PUT it to /v1/blobs/<hash>"
    )


def _beyond_this_node(parts: Parts, task: TaskSpec) -> str:
    need, facts = task.resources, parts.facts
    if need.memory_bytes > facts.memory_bytes:
        return (
            f"resources.memory_bytes: it needs {in_units(need.memory_bytes)}, "
            f"{facts.node} has {in_units(facts.memory_bytes)} and no coordinator to ask for more: {_ASK_LESS}"
        )
    if need.cpu_millicores > facts.cpu_millicores:
        return (
            f"resources.cpu_millicores: it needs {need.cpu_millicores}, "
            f"{facts.node} has {facts.cpu_millicores} and no coordinator to ask for more: {_ASK_LESS}"
        )
    return ""


def _never_here(parts: Parts, core: CoreState, task: TaskSpec) -> str:
    ruling = parts.decider(_NO_ID, task, core.idle_view(), parts.clock.now())
    if not ruling.is_permanent:
        return ""
    return (
        f"{ruling.decision.reason}; this node has no coordinator that could place it on another: change the "
        "task, or enrol the node (`skerry enrol`)"
    )
