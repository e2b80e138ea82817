"""Federated rounds over HTTP, for operators. Owns the handlers and the views; decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from msgspec.structs import replace

from cloud_coordinator.api.office import office
from cloud_coordinator.rounds_wiring import Rounds
from skerry.problem import problem
from skerry.round_documents import (
    Participant,
    Refused,
    RoundAsked,
    RoundList,
    RoundPolicy,
    RoundVersion,
    RoundView,
)
from skerry.web import Answer, Route, json_response, read_json

if TYPE_CHECKING:
    from federation.rounds.ledger import Entry, Run
    from federation.rounds.service import RunReport


async def start(request: web.Request) -> web.StreamResponse:
    """Start a run."""
    asked = await read_json(request, RoundAsked)
    run = await office(request).rounds.start(asked)
    return json_response(await _in_full(office(request).rounds, run.spec.run_id), status=201)


async def rounds(request: web.Request) -> web.StreamResponse:
    """List the runs."""
    here = office(request).rounds
    if here.off:
        return json_response(RoundList(rounds=(), off=here.off))
    found = await (await here.service()).runs()
    return json_response(RoundList(rounds=tuple(run_view(run) for run in found)))


async def show(request: web.Request) -> web.StreamResponse:
    """Show one run."""
    return json_response(await _in_full(office(request).rounds, await _known(request)))


async def cancel(request: web.Request) -> web.StreamResponse:
    """End a run."""
    name = await _known(request)
    here = office(request).rounds
    await (await here.service()).cancel(name, "cancelled by an operator")
    return json_response(await _in_full(here, name))


async def resume(request: web.Request) -> web.StreamResponse:
    """See to it that a run is worked on."""
    name = await _known(request)
    here = office(request).rounds
    await (await here.service()).resume(name)
    return json_response(await _in_full(here, name))


async def _known(request: web.Request) -> str:
    name = request.match_info["name"]
    found = await (await office(request).rounds.service()).runs()
    if not any(run.spec.run_id == name for run in found):
        raise problem(404, f"there is no run {name[:80]!r}", name="round-not-found")
    return name


async def _in_full(here: Rounds, name: str) -> RoundView:
    report = await (await here.service()).show(name)
    return report_view(report, await here.policy(name), is_worked_on=here.worker_pid(name) is not None)


def run_view(run: Run) -> RoundView:
    """Return a run as the API lists it."""
    spec = run.spec
    return RoundView(
        name=spec.run_id,
        state=run.state.value,
        reason=run.reason,
        trainer=spec.trainer,
        strategy=spec.strategy,
        rounds=spec.rounds,
        version=run.version,
        quorum=spec.quorum,
        deadline_s=spec.deadline_s,
        patience_left_s=run.patience_left_s,
        base_policy=spec.base_policy,
        created_wall_s=run.created_wall_s,
        ended_wall_s=run.ended_wall_s,
    )


def report_view(report: RunReport, policy: RoundPolicy, *, is_worked_on: bool) -> RoundView:
    """Return a run in full."""
    return replace(
        run_view(report.run),
        is_worked_on=is_worked_on,
        eligible=report.eligible,
        participants=tuple(_participant(entry) for entry in report.entries),
        versions=tuple(
            RoundVersion(
                version=one.version,
                model=one.model,
                accepted=one.accepted,
                refused=one.refused,
                metrics=one.metrics,
                wall_s=one.wall_s,
            )
            for one in report.versions
        ),
        refused=tuple(
            Refused(node=one.node, code=one.code, reason=one.reason, count=one.count)
            for one in report.refusals
        ),
        policy=policy,
    )


def _participant(entry: Entry) -> Participant:
    reply = entry.reply
    return Participant(
        node=entry.instruction.node,
        version=entry.instruction.version,
        state=entry.state.value,
        counted_in=entry.counted_in,
        is_late=entry.is_late,
        examples=reply.num_examples if reply is not None else 0,
        weight=entry.weight,
        staleness=entry.staleness,
        code=entry.code,
        reason=entry.reason,
        metrics=reply.metrics if reply is not None else {},
    )


_ROUND = "/v1/rounds/{name}"
ROUTES = (
    Route(
        method="POST",
        path="/v1/rounds",
        handler=start,
        summary="Start a federated run: nodes that take part train, versions are merged from their replies.",
        body=RoundAsked,
        answers=(Answer(201, "It has begun.", RoundView),),
        refusals=(404, 409, 422),
    ),
    Route(
        method="GET",
        path="/v1/rounds",
        handler=rounds,
        summary="Every run, newest first, or why there can be none here.",
        answers=(Answer(200, "The runs, without their participants.", RoundList),),
    ),
    Route(
        method="GET",
        path=_ROUND,
        handler=show,
        summary="One run with participants, verdicts and versions.",
        answers=(Answer(200, "The run.", RoundView),),
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=_ROUND + "/cancel",
        handler=cancel,
        summary="End a run: its worker is stopped, nodes that have not begun need not.",
        answers=(Answer(200, "The run.", RoundView),),
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=_ROUND + "/resume",
        handler=resume,
        summary="See to it that a run that has not ended is worked on.",
        answers=(Answer(200, "The run.", RoundView),),
        refusals=(404, 409),
    ),
)
