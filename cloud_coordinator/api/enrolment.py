"""Tokens and enrolment. Owns the handlers; what a token allows is the register's word."""

from __future__ import annotations

import secrets
from pathlib import Path

from aiohttp import web

from cloud_coordinator.api.office import Office, office
from cloud_coordinator.api.views import TokenRequest
from cloud_coordinator.core.register import digest_of
from skerry.enrolment import (
    EnrolAnswer,
    EnrolRequest,
    EnrolToken,
    fingerprint_of,
    is_request_signed,
    sign_answer,
)
from skerry.errors import SettingsError
from skerry.fleet_documents import TokenMade
from skerry.identity import Enrolment
from skerry.ids import check_name
from skerry.node import NodeRecord
from skerry.problem import problem
from skerry.topics import check_node_name
from skerry.web import Answer, Route, json_response, read_json

REGION = "default"


async def make_token(request: web.Request) -> web.StreamResponse:
    """Make a one-use token."""
    here = office(request)
    asked = await read_json(request, TokenRequest) if request.body_exists else TokenRequest()
    if asked.node:
        check_node_name(asked.node)
    if asked.region:
        check_name(asked.region, what="region")
    valid_s = asked.valid_s or here.settings.nodes.token_valid_s
    token = EnrolToken(
        token_id=secrets.token_hex(4),
        secret=secrets.token_urlsafe(24),
        fingerprint=fingerprint_of(here.key.public_hex),
    )
    digest, now, wall_s = digest_of(token.token_id, token.secret), here.clock.now(), here.clock.wall_s()
    await here.ask(
        lambda core: core.admit_token(
            digest, now, wall_s, valid_s=valid_s, node=asked.node, region=asked.region
        )
    )
    made = TokenMade(token=str(token), valid_s=valid_s, coordinator_url=here.http_url)
    return json_response(made, status=201)


async def enrol(request: web.Request) -> web.StreamResponse:
    """Enrol a node that shows a token and signs with its key; the answer is signed with ours."""
    here = office(request)
    wait_s = here.pace.take(here.clock.now())
    if wait_s:
        raise problem(429, "too many nodes enrol at once: try again a little later", retry_after_s=wait_s)
    asked = await read_json(request, EnrolRequest)
    record = _record(here, asked)
    if not is_request_signed(asked):
        here.runtime.refuse(
            "unknown", "enrol_signature", f"the enrolment of {asked.node} is not signed by its key"
        )
        raise problem(403, "the request is not signed by the key it names", name="enrolment-refused")
    now, wall_s = here.clock.now(), here.clock.wall_s()
    digest = digest_of(asked.token_id, asked.secret)
    against, actions = await here.ask(lambda core: core.redeem(digest, record, now, wall_s))
    here.runtime.perform(actions)
    if against:
        here.runtime.refuse("unknown", "enrol_token", f"{record.name}: {against}")
        raise problem(403, against, name="enrolment-refused", title="The enrolment is refused")
    return json_response(sign_answer(here.key, _enrolment(here, record), record.public_key))


def _record(here: Office, asked: EnrolRequest) -> NodeRecord:
    name = check_node_name(asked.node)
    region = check_name(asked.region or REGION, what="region")
    site = check_name(asked.site, what="site") if asked.site else ""
    return NodeRecord(
        name=name, fleet=here.settings.fleet, region=region, site=site, public_key=asked.public_key.lower()
    )


def _enrolment(here: Office, record: NodeRecord) -> Enrolment:
    advertise = here.settings.advertise
    return Enrolment(
        fleet=record.fleet,
        node=record.name,
        region=record.region,
        site=record.site,
        coordinator_url=here.http_url,
        coordinator_public_key=here.key.public_hex,
        broker_url=advertise.mqtt_url or here.settings.mqtt.url,
        broker_username=advertise.broker_username,
        broker_password=_password(advertise.broker_password_file),
        enrolled_wall_s=here.clock.wall_s(),
    )


def _password(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").split("\n", 1)[0]
    except OSError as error:
        raise SettingsError(
            f"advertise.broker_password_file {path} cannot be read: {error.strerror}"
        ) from error


ROUTES = (
    Route(
        method="POST",
        path="/v1/tokens",
        handler=make_token,
        summary="Make a one-use token with which one node can enrol.",
        body=TokenRequest,
        answers=(Answer(201, "The token; it is shown this once.", TokenMade),),
        refusals=(422,),
    ),
    Route(
        method="POST",
        path="/v1/enrol",
        handler=enrol,
        summary="Enrol a node: one-use token in the body, signed by the node's key.",
        body=EnrolRequest,
        answers=(Answer(200, "Enrolled; signed by the coordinator.", EnrolAnswer),),
        refusals=(403, 422, 429),
        is_open=True,
    ),
)
