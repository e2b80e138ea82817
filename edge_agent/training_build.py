"""Putting local training together. A node that does not train never loads what that needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from skerry.link.actions import ReceivedRow
from skerry.messages import FederationRequest, Lane, row_of
from task_queue.operations import AppendOutbox, Operation

if TYPE_CHECKING:
    from edge_agent.runtime import Agent
    from edge_agent.training_child import Child
    from edge_agent.training_record import Recorder
    from edge_agent.training_service import TrainingService


class Training(Protocol):
    """Training as the agent sees it."""

    @property
    def is_open(self) -> bool:
        """This node takes part in rounds."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    async def close(self) -> None:
        """Stop, while the store is still open."""
        ...

    def note(self, rows: Sequence[ReceivedRow]) -> list[Operation]:
        """Return what to commit together with the rows' mark."""
        ...


class ClosedTraining:
    """Answers every instruction with the reason against it."""

    is_open = False

    def __init__(self, reason: str) -> None:
        """reason: why this node trains for nobody."""
        self.reason = reason

    def start(self) -> None:
        """Nothing is to be begun."""

    async def close(self) -> None:
        """Nothing was begun."""

    def note(self, rows: Sequence[ReceivedRow]) -> list[Operation]:
        """See Training."""
        from edge_agent.training_inbox import error_reply

        asked = [row.message for row in rows if isinstance(row.message, FederationRequest)]
        answers = [row_of(error_reply(request, self.reason)) for request in asked]
        return [AppendOutbox(lane=Lane.BACKLOG, kind=kind, body=body) for kind, body in answers]


class OpenTraining:
    """The service with the recorder beside it."""

    is_open = True

    def __init__(self, service: TrainingService, recorder: Recorder) -> None:
        """Own both."""
        self.service = service
        self.recorder = recorder
        self._chore: asyncio.Task[None] | None = None

    def start(self) -> None:
        """See Training."""
        self.service.start()
        self._chore = asyncio.create_task(self.recorder.keep_writing())

    async def close(self) -> None:
        """See Training."""
        await self.service.close()
        if self._chore is not None:
            self._chore.cancel()
            await asyncio.gather(self._chore, return_exceptions=True)
        await self.recorder.close()

    def note(self, rows: Sequence[ReceivedRow]) -> list[Operation]:
        """See Training."""
        return self.service.note(rows)


def build_training(agent: Agent) -> Training:
    """Return the node's training as its settings want it."""
    settings = agent.parts.settings.training
    if not settings.enabled:
        return ClosedTraining("this node does not take part in training: [training] enabled is false")
    if agent.child is not None:
        return _open(agent, agent.child)
    from federation.interpreter import find_interpreter

    python, reason = find_interpreter(settings.python)
    if python is None:
        agent.alarms["training"] = f"this node cannot train: {reason}"
        return ClosedTraining(reason)
    return _open(agent, _process(agent, python))


def _process(agent: Agent, python: Path) -> Child:
    from devices.executors.orphans import agent_marker
    from edge_agent.training_child import TrainingChild

    settings = agent.parts.settings.training
    return TrainingChild(
        python,
        marker=agent_marker(agent.parts.settings.home),
        time_limit_s=settings.time_limit_s,
        memory_bytes=settings.memory_bytes,
    )


def _open(agent: Agent, child: Child) -> OpenTraining:
    from edge_agent.training_record import Recorder
    from edge_agent.training_service import STATE, TrainingService

    parts, settings = agent.parts, agent.parts.settings.training
    recorder = Recorder(parts.settings.home / "experience.db", parts.clock)

    async def record(directory: Path) -> None:
        await recorder.export(directory, agent.inventory_now().devices, parts.decider.profile.dump())

    def load() -> float:
        return agent.core.used_cpu_millicores / max(1, parts.facts.cpu_millicores)

    service = TrainingService(
        parts.store.meta(STATE),
        node=parts.facts.node,
        child=child,
        directory=parts.settings.home / "training",
        blobs=parts.blobs,
        have=agent.content.have,
        commit=agent.loop.commit,
        clock=parts.clock,
        load=load,
        record=record,
        start_below_load=settings.start_below_load,
        patience_s=settings.patience_s,
        node_config=dict(settings.node_config),
    )
    agent.loop.seen.append(recorder.seen)
    return OpenTraining(service, recorder)
