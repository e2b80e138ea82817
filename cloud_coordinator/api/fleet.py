"""The fleet as operators see it: status, nodes, tasks, dead letters, counters. Owns the handlers only."""

from __future__ import annotations

from collections import Counter

import msgspec
from aiohttp import web

import skerry
from cloud_coordinator.api.office import office
from cloud_coordinator.api.views import (
    CounterList,
    LetterQuery,
    ReleaseQuery,
    TaskQuery,
    letter_view,
    task_in_full,
    task_view,
)
from cloud_coordinator.core import losses
from cloud_coordinator.core.events import NodeReleased, NodeRevoked
from cloud_coordinator.ledger.values import TaskFilter
from skerry.errors import TaskNotFound
from skerry.fleet_documents import (
    DeadLetterPage,
    LedgerTaskPage,
    LedgerTaskView,
    LossList,
    NodeList,
    StatusView,
)
from skerry.ids import parse_task_id
from skerry.node import NodeRecord
from skerry.problem import problem
from skerry.web import Answer, Route, json_response, read_query


async def status(request: web.Request) -> web.StreamResponse:
    """Tell how the coordinator is."""
    here = office(request)
    tasks, nodes, waiting = await here.ask(
        lambda core: (core.ledger.count_tasks(), core.nodes(), len(core.memory.queue))
    )
    view = StatusView(
        fleet=here.settings.fleet,
        version=skerry.__version__,
        term=here.runtime.term,
        ledger_epoch=here.ledger_epoch,
        public_key=here.key.public_hex,
        is_broker_up=here.runtime.is_up,
        tasks={state.value: count for state, count in tasks.items()},
        nodes=dict(Counter(node.status for node in nodes)),
        waiting=waiting,
        placement_ms=here.figures.placement_ms(),
        content_bytes=here.blobs.used_bytes,
    )
    return json_response(view)


async def nodes(request: web.Request) -> web.StreamResponse:
    """List the register."""
    found = await office(request).ask(lambda core: core.nodes())
    return json_response(NodeList(nodes=tuple(found)))


async def node(request: web.Request) -> web.StreamResponse:
    """Show one node."""
    return json_response(await _node(request))


async def node_losses(request: web.Request) -> web.StreamResponse:
    """Show what one node's store had to let go."""
    record = await _node(request)
    found = await office(request).ask(lambda core: losses.of_node(core.ledger, record.name))
    return json_response(LossList(node=record.name, losses=found))


async def revoke(request: web.Request) -> web.StreamResponse:
    """Put a node out of the fleet: its key counts for nothing from here on."""
    record = await _node(request)
    await _tell(request, NodeRevoked(record.name))
    return json_response(await _node(request))


async def release(request: web.Request) -> web.StreamResponse:
    """End a node's quarantine."""
    asked = read_query(request, ReleaseQuery)
    record = await _node(request)
    if record.status != "quarantined" or not record.public_key:
        raise problem(409, f"{record.name} is {record.status}; only a node in quarantine can be released")
    await _tell(request, NodeReleased(record.name, is_moved=asked.moved))
    return json_response(await _node(request))


async def tasks(request: web.Request) -> web.StreamResponse:
    """List tasks, newest first."""
    asked = read_query(request, TaskQuery)
    task_filter = TaskFilter(**msgspec.structs.asdict(asked))
    found = await office(request).ask(lambda core: core.ledger.find(task_filter))
    before = found[-1].task_id if len(found) == asked.limit else ""
    return json_response(LedgerTaskPage(tasks=tuple(map(task_view, found)), before=before))


async def task(request: web.Request) -> web.StreamResponse:
    """Show one task with its placements and their decisions."""
    task_id = parse_task_id(request.match_info["id"])
    entry, placements = await office(request).ask(
        lambda core: (core.ledger.task(task_id), core.ledger.placements(task_id))
    )
    if entry is None:
        raise TaskNotFound(f"the ledger has no task {task_id}")
    return json_response(task_in_full(entry, placements))


async def dead_letters(request: web.Request) -> web.StreamResponse:
    """List the rows that could not be applied."""
    asked = read_query(request, LetterQuery)
    found = await office(request).ask(lambda core: core.ledger.dead_letters(asked.limit, asked.before))
    before = found[-1].number if len(found) == asked.limit else None
    return json_response(DeadLetterPage(dead_letters=tuple(map(letter_view, found)), before=before))


async def counters(request: web.Request) -> web.StreamResponse:
    """List what was counted."""
    found = await office(request).ask(lambda core: core.ledger.counters())
    return json_response(CounterList(counters=tuple(found)))


async def _node(request: web.Request) -> NodeRecord:
    name = request.match_info["name"]
    found = await office(request).ask(lambda core: core.node(name))
    if found is None:
        raise problem(404, f"there is no node {name[:80]!r}", name="node-not-found")
    return found


async def _tell(request: web.Request, event: NodeRevoked | NodeReleased) -> None:
    here = office(request)
    now, wall_s = here.clock.now(), here.clock.wall_s()
    here.runtime.perform(await here.ask(lambda core: core.handle(event, now, wall_s)))


ROUTES = (
    Route(
        method="GET",
        path="/v1/status",
        handler=status,
        summary="The coordinator at a glance.",
        answers=(Answer(200, "How it is.", StatusView),),
    ),
    Route(
        method="GET",
        path="/v1/nodes",
        handler=nodes,
        summary="The register of nodes.",
        answers=(Answer(200, "Every node, by name.", NodeList),),
    ),
    Route(
        method="GET",
        path="/v1/nodes/{name}",
        handler=node,
        summary="One node.",
        answers=(Answer(200, "The node.", NodeRecord),),
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/nodes/{name}/losses",
        handler=node_losses,
        summary="What the node's store evicted, expired, dead-lettered or did not let in, as it last told.",
        answers=(Answer(200, "Totals by class and reason.", LossList),),
        refusals=(404,),
    ),
    Route(
        method="DELETE",
        path="/v1/nodes/{name}",
        handler=revoke,
        summary="Put a node out of the fleet: its key is refused from here on, its work is placed anew.",
        answers=(Answer(200, "The node, without a key.", NodeRecord),),
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/nodes/{name}/release",
        handler=release,
        summary="End a node's quarantine: it is heard on the machine it was known on, or if it moved on any.",
        query=ReleaseQuery,
        answers=(Answer(200, "The node.", NodeRecord),),
        refusals=(404, 409, 422),
    ),
    Route(
        method="GET",
        path="/v1/tasks",
        handler=tasks,
        summary="Tasks in the ledger, newest first.",
        query=TaskQuery,
        answers=(Answer(200, "A page of tasks.", LedgerTaskPage),),
        refusals=(422,),
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}",
        handler=task,
        summary="One task with its placements and their decisions.",
        answers=(Answer(200, "The task.", LedgerTaskView),),
        refusals=(404, 422),
    ),
    Route(
        method="GET",
        path="/v1/dead-letters",
        handler=dead_letters,
        summary="Rows that could not be applied, newest first.",
        query=LetterQuery,
        answers=(Answer(200, "A page of dead letters.", DeadLetterPage),),
        refusals=(422,),
    ),
    Route(
        method="GET",
        path="/v1/counters",
        handler=counters,
        summary="What was counted, by node and reason; counts survive restarts.",
        answers=(Answer(200, "Every counter.", CounterList),),
    ),
)
