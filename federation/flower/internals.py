# pyright: reportMissingImports=false
"""The only place that touches what Flower does not promise: written for the pinned version, held by tests.

Everything else imports flwr.app, flwr.serverapp and flwr.clientapp alone.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from federation.values import Scalar

#: By which Flower's messages name their sender when it is the server.
SERVER_NUMBER = 1
_RUN_NUMBER = 1


def become_server() -> None:
    """Make this process one that may create instructions: Flower asks for a process-wide identity.

    Hence one run a process.
    """
    TaskIdentity.run_id = _RUN_NUMBER
    TaskIdentity.node_id = SERVER_NUMBER
    TaskIdentity.task_id = _RUN_NUMBER


def empty_run() -> Run:
    """Return the description of a run that Flower's grid interface asks for."""
    return Run.create_empty(_RUN_NUMBER)


def stamp(message: Message, message_id: str) -> Message:
    """Give a message its id, as Flower's own grids do, and return it."""
    message.metadata.__dict__["_message_id"] = message_id
    return message


def context(node_number: int, node_config: dict[str, Scalar], run_config: dict[str, Scalar]) -> Context:
    """Return what an app is told of the place where it runs."""
    return Context(
        run_id=_RUN_NUMBER,
        node_id=node_number,
        node_config=node_config,
        state=RecordDict(),
        run_config=run_config,
    )


def instruction(content: RecordDict, node_number: int, message_id: str, *, ttl_s: float) -> Message:
    """Return an instruction to train, as a client receives it."""
    become_server()
    return stamp(Message(content, node_number, "train", ttl=ttl_s), message_id)


def reply_of(asked: Message, answer: Any) -> Message:
    """Return a reply to an instruction from its content or its flwr Error."""
    return Message(answer, reply_to=asked)


def bare(message_id: str, node: int) -> Message:
    """Return an instruction of an earlier process, of which id and node are known: enough to reply to."""
    return stamp(Message(RecordDict(), node, "train", ttl=1.0), message_id)
