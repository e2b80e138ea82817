"""Policies and rollouts over HTTP, for operators. Owns the handlers and the views; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from cloud_coordinator.api.office import office
from cloud_coordinator.rollout.book import Book
from cloud_coordinator.rollout.values import NodePolicy, PolicyVersion, Progress, Rollout, RolloutSpec
from skerry.policy_documents import (
    NodeProgress,
    PolicyVersionList,
    PolicyVersionView,
    RolloutList,
    RolloutView,
)
from skerry.policy_manifest import PolicyManifest
from skerry.web import Answer, Route, json_response, read_json

OPERATOR = "operator"


class PolicyAdded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to take in; its file is in the content store already."""

    manifest: PolicyManifest
    by: Annotated[str, Meta(min_length=1, max_length=64)] = OPERATOR


class RolloutAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rollout to start."""

    spec: RolloutSpec
    by: Annotated[str, Meta(min_length=1, max_length=64)] = OPERATOR


async def add(request: web.Request) -> web.StreamResponse:
    """Take a version in and have it vetted."""
    asked = await read_json(request, PolicyAdded)
    version = await office(request).policies.add(asked.manifest, by=asked.by)
    return json_response(version_view(version, ""), status=202)


async def policies(request: web.Request) -> web.StreamResponse:
    """List the versions."""
    here = office(request).policies
    current = await here.current()
    views = tuple(version_view(one, current) for one in await here.versions())
    return json_response(PolicyVersionList(policies=views, current=current))


async def policy(request: web.Request) -> web.StreamResponse:
    """Show one version."""
    here = office(request).policies
    found = await here.version(request.match_info["name"])
    return json_response(version_view(found, await here.current()))


async def start(request: web.Request) -> web.StreamResponse:
    """Start a rollout."""
    asked = await read_json(request, RolloutAsked)
    rollout = await office(request).policies.begin(asked.spec, by=asked.by)
    return json_response(await _in_full(request, rollout.rollout_id), status=201)


async def rollouts(request: web.Request) -> web.StreamResponse:
    """List the rollouts."""
    found = await office(request).policies.rollouts()
    return json_response(RolloutList(rollouts=tuple(rollout_view(one, {}, None) for one in found)))


async def rollout(request: web.Request) -> web.StreamResponse:
    """Show one rollout with its nodes."""
    return json_response(await _in_full(request, request.match_info["id"]))


async def pause(request: web.Request) -> web.StreamResponse:
    """Tell no further node."""
    await office(request).policies.pause(request.match_info["id"], by=OPERATOR)
    return json_response(await _in_full(request, request.match_info["id"]))


async def resume(request: web.Request) -> web.StreamResponse:
    """Go on after a pause."""
    await office(request).policies.resume(request.match_info["id"], by=OPERATOR)
    return json_response(await _in_full(request, request.match_info["id"]))


async def abort(request: web.Request) -> web.StreamResponse:
    """Stop, and send every node back."""
    await office(request).policies.abort(request.match_info["id"], by=OPERATOR)
    return json_response(await _in_full(request, request.match_info["id"]))


async def _in_full(request: web.Request, rollout_id: str) -> RolloutView:
    return await office(request).policies.seen(rollout_id, rollout_view)


def version_view(version: PolicyVersion, current: str) -> PolicyVersionView:
    """Return a version as the API shows it."""
    return PolicyVersionView(
        policy=version.policy,
        version=version.manifest.version,
        state=version.state.value,
        reason=version.reason,
        added_by=version.added_by,
        added_wall_s=version.added_wall_s,
        is_current=version.policy == current,
        checked=version.checked,
        manifest=version.manifest,
    )


def rollout_view(rollout: Rollout, progress: Mapping[str, Progress], book: Book | None) -> RolloutView:
    """Return a rollout as the API shows it; with a book, the nodes too."""
    return RolloutView(
        rollout_id=rollout.rollout_id,
        policy=rollout.policy,
        version=rollout.policy.removeprefix("sha256:")[:12],
        previous=rollout.previous,
        state=rollout.state.value,
        reason=rollout.reason,
        canaries=rollout.canaries,
        started_by=rollout.started_by,
        started_wall_s=rollout.started_wall_s,
        ended_wall_s=rollout.ended_wall_s,
        waits_for=rollout.waits_for,
        nodes=tuple(_node_view(book.node_in(rollout.rollout_id, name), one) for name, one in progress.items())
        if book
        else (),
    )


def _node_view(known: NodePolicy, progress: Progress) -> NodeProgress:
    return NodeProgress(
        node=known.node,
        progress=progress.value,
        state=known.state,
        reason=known.reason,
        evidence=known.evidence,
        heard_wall_s=known.heard_wall_s,
    )


_ROLLOUT = "/v1/rollouts/{id}"
ROUTES = (
    Route(
        method="POST",
        path="/v1/policies",
        handler=add,
        summary="Take a policy version in: its file is in the content store, its manifest is signed.",
        body=PolicyAdded,
        answers=(Answer(202, "It is being vetted.", PolicyVersionView),),
        refusals=(409, 422),
    ),
    Route(
        method="GET",
        path="/v1/policies",
        handler=policies,
        summary="Every policy version, newest first.",
        answers=(Answer(200, "The registry.", PolicyVersionList),),
    ),
    Route(
        method="GET",
        path="/v1/policies/{name}",
        handler=policy,
        summary="One version, by its hash or the first digits of it.",
        answers=(Answer(200, "The version.", PolicyVersionView),),
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/rollouts",
        handler=start,
        summary="Start a rollout of a version: canaries first, then the fleet.",
        body=RolloutAsked,
        answers=(Answer(201, "It has begun.", RolloutView),),
        refusals=(404, 409, 422),
    ),
    Route(
        method="GET",
        path="/v1/rollouts",
        handler=rollouts,
        summary="Every rollout, newest first.",
        answers=(Answer(200, "The rollouts, without their nodes.", RolloutList),),
    ),
    Route(
        method="GET",
        path=_ROLLOUT,
        handler=rollout,
        summary="One rollout with how far each node is.",
        answers=(Answer(200, "The rollout.", RolloutView),),
        refusals=(404,),
    ),
    Route(
        method="POST",
        path=_ROLLOUT + "/pause",
        handler=pause,
        summary="Tell no further node; gates on the nodes go on.",
        answers=(Answer(200, "The rollout.", RolloutView),),
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=_ROLLOUT + "/resume",
        handler=resume,
        summary="Go on after a pause.",
        answers=(Answer(200, "The rollout.", RolloutView),),
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=_ROLLOUT + "/abort",
        handler=abort,
        summary="Stop, and send every node back to what the fleet ran before.",
        answers=(Answer(200, "The rollout.", RolloutView),),
        refusals=(404, 409),
    ),
)
