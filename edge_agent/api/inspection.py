"""Routes for the queue as a whole: what it holds, whether it is whole, a copy of it."""

from __future__ import annotations

import asyncio

from aiohttp import web

from edge_agent.api.keys import FACADE
from skerry.queue_documents import QueueCheck, QueueDetails
from skerry.web import Answer, Route, json_response

ARCHIVE = "application/zip"
_CHUNK = 256 * 1024


async def details(request: web.Request) -> web.StreamResponse:
    """Return what the queue holds."""
    return json_response(await request.app[FACADE].queue_details())


async def check(request: web.Request) -> web.StreamResponse:
    """Check the queue's database beside the work on it."""
    return json_response(await request.app[FACADE].check_queue())


async def backup(request: web.Request) -> web.StreamResponse:
    """Make a backup and send it."""
    archive = await request.app[FACADE].make_backup()
    try:
        size = archive.stat().st_size
        response = web.StreamResponse(headers={"Content-Type": ARCHIVE, "Content-Length": str(size)})
        await response.prepare(request)
        with archive.open("rb") as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                await response.write(chunk)
        await response.write_eof()
        return response
    finally:
        archive.unlink(missing_ok=True)


ROUTES = (
    Route(
        method="GET",
        path="/v1/queue",
        handler=details,
        summary="The queue: depth by state, priority and class, oldest task, room, losses, last check.",
        answers=(Answer(200, "The queue as it is now.", QueueDetails),),
    ),
    Route(
        method="POST",
        path="/v1/queue:check",
        handler=check,
        summary="Check the queue's database from end to end, beside the work on it.",
        answers=(Answer(200, "What was found.", QueueCheck),),
        refusals=(507,),
    ),
    Route(
        method="GET",
        path="/v1/backup",
        handler=backup,
        summary="A backup of the queue as it is at this moment: one archive, which `skerry backup` reads.",
        answers=(Answer(200, "The archive.", None, ARCHIVE),),
        refusals=(507,),
    ),
)
