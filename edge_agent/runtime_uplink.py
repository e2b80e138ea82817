"""Putting the link together, on an enrolled node only: it brings signatures and the MQTT client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edge_agent.homecoming import WANTED, Homecoming
from edge_agent.outgoing import OWED, Outgoing
from edge_agent.runtime_report import birth_of, state_of, store_now
from edge_agent.uplink import COMMAND_EPOCH, DEAD_LETTERS, LEASE_S, SESSION_OFFSET, TERM, Identity, Uplink
from edge_agent.uplink_rows import OutboxReader
from skerry.link.edge import EdgeLink
from skerry.messages import Lane
from skerry.topics import COORDINATOR
from skerry.transport.factory import make_transport
from skerry.transport.port import Transport, Will

if TYPE_CHECKING:
    from edge_agent.runtime import Agent


def build_uplink(agent: Agent, transport: Transport | None = None) -> Uplink:
    """Return the link to the coordinator.  transport: instead of the one that the settings name."""
    parts = agent.parts
    assert parts.enrolment is not None  # asked for on an enrolled node only
    assert parts.key is not None
    assert agent.training is not None
    store = parts.store
    offset = store.meta(SESSION_OFFSET) or 0
    session = store.session + offset
    birth = birth_of(agent, session=session, command_epoch=store.meta(COMMAND_EPOCH) or "")
    birth = msgspec.structs.replace(birth, term=store.meta(TERM) or 0)
    name = f"{parts.enrolment.fleet}-{parts.enrolment.node}"

    def will() -> Will:
        return uplink.will()

    def mark_of(epoch: str, lane: Lane) -> int:
        return store.inbox_mark(COORDINATOR, epoch, lane)

    outgoing = Outgoing(agent.content.upload, agent.loop.commit, store.meta(OWED) or ())
    uplink = Uplink(
        Identity(enrolment=parts.enrolment, key=parts.key, session=session),
        transport or make_transport(parts.mqtt, client_id=name, will=will),
        EdgeLink(birth, mark_of=mark_of, rng=parts.rng, heads=store.depth().written),
        agent.loop,
        OutboxReader(parts.writer, agent.content.upload, outgoing.owe),
        birth=birth,
        clock=parts.clock,
        state_of=lambda: state_of(agent),
        store_now=lambda: store_now(agent),
        outgoing=outgoing,
        list_tasks=agent.list,
        homecoming=Homecoming(agent.content.have, agent.loop.commit, store.meta(WANTED) or ()),
        training=agent.training,
        dead_letters=store.meta(DEAD_LETTERS),
        lease_s=store.meta(LEASE_S) or 0.0,
        session_offset=offset,
    )
    return uplink
