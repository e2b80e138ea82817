"""Where the rollout's core meets the coordinator's: the fleet as it is now, and commands into nodes' logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cloud_coordinator.core.actions import Report
from cloud_coordinator.core.turn import NodeNow, Turn
from cloud_coordinator.rollout.core import Rollouts, Tell
from cloud_coordinator.rollout.progress import Now
from cloud_coordinator.rollout.values import Rollout, RolloutState
from skerry.messages import ActivatePolicy, GateEvidence, Lane, PolicyReport

T = TypeVar("T")
#: What an operator asks of rollouts: (rollouts, now, fleet, tell) → answer.
Asked = Callable[[Rollouts, Now, dict[str, bool], Tell], T]


def now_of(turn: Turn) -> Now:
    """Return the moment as rollouts see it."""
    return Now(turn.now, turn.wall_s)


def fleet_of(turn: Turn) -> dict[str, bool]:
    """Return the nodes that may take part, by name, with whether each is connected."""
    nodes = turn.memory.nodes
    return {
        name: nodes[name].record.status == "online"
        for name in sorted(nodes)
        if nodes[name].record.public_key and nodes[name].record.status != "quarantined"
    }


def tell(turn: Turn) -> Tell:
    """Return how to tell a node: a row in its command log, in this commit."""

    def write(node: str, message: ActivatePolicy) -> None:
        turn.command(node, message, Lane.CONTROL)

    return write


def ask(turn: Turn, rollouts: Rollouts, asked: Asked[T]) -> T:
    """Have an operator's wish done."""
    return asked(rollouts, now_of(turn), fleet_of(turn), tell(turn))


def tick(turn: Turn) -> None:
    """Look at the active rollout."""
    _tell_people(turn, turn.rollouts.tick(now_of(turn), fleet_of(turn), tell(turn)))


def connected(turn: Turn, node: NodeNow) -> None:
    """A node's session is open."""
    record = node.record
    turn.rollouts.connected(record.name, now_of(turn), tell(turn), store_epoch=record.store_epoch)


def reported(turn: Turn, node: str, said: PolicyReport | GateEvidence) -> None:
    """Take a node's word about a policy."""
    state = said.state if isinstance(said, PolicyReport) else said.gate_state
    turn.count("policy_reports", node=node, reason=state[:64])
    if state in ("rolled_back", "refused"):
        turn.act(Report("warning", f"policy {said.policy[7:19]} is {state}: {said.reason[:300]}", node))
    _tell_people(turn, turn.rollouts.reported(node, said, now_of(turn), fleet_of(turn), tell(turn)))


def _tell_people(turn: Turn, changed: Rollout | None) -> None:
    if changed is None:
        return
    is_bad = changed.state is RolloutState.ROLLED_BACK
    text = f"rollout {changed.rollout_id} is {changed.state.value}: {changed.reason}"
    turn.act(Report("warning" if is_bad else "info", text))
