# pyright: reportMissingImports=false
"""The grid whose messages outlive every process: instructions and replies are rows of a ledger.

Asks the coordinator for everything and never learns what carries an instruction to its node. Node names
become Flower's numbers here, and only here.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from flwr.app import Message

from federation.flower import internals
from federation.flower.journal import Checkpoint, initial_parameters
from federation.flower.records import ARRAYS, CONFIG, error_of, from_record, reply_content
from federation.grid.base import EventGrid
from federation.grid.link import Link
from federation.rounds.channel import (
    AskNodes,
    CommitVersion,
    Done,
    Nodes,
    Open,
    Opened,
    Patience,
    Push,
    RefuseReplies,
    Take,
    Taken,
    TakenReply,
    WaitForQuorum,
    WaitReplies,
)
from federation.values import Instruction, Refused, RunSpec, Verdict, instruction_id, node_number
from federation.wire import Arrays, PacketRefused, content_hash, pack, unpack
from skerry.errors import FederationError

#: A wait is asked again after this long, so that a coordinator which forgot it does not keep us for ever.
_LONGEST_WAIT_S = 600.0


class DurableGrid(EventGrid):
    """One run's grid, over its worker's link."""

    def __init__(self, link: Link, run_id: str) -> None:
        """Open the run.  Raises FederationError when it cannot be served."""
        super().__init__()
        self._link = link
        self.opened = link.ask(Open(run_id=run_id), Opened)
        self.spec: RunSpec = self.opened.spec
        self.journal = DurableJournal(link, self.opened)
        self._names: dict[int, str] = {}
        self._asked: dict[str, Message] = {}

    # --- nodes ---------------------------------------------------------------------------------------

    def get_node_ids(self) -> list[int]:
        """Return the numbers of the eligible nodes, whether they are online or not."""
        return self.wait_for_nodes(0, 0.0)

    def wait_for_nodes(self, minimum: int, patience_s: float) -> list[int]:
        """Return the eligible nodes once there are `minimum`. Patience is the coordinator's own."""
        names = self._link.ask(AskNodes(minimum=minimum), Nodes).names
        self._names.update({node_number(name): name for name in names})
        return sorted(node_number(name) for name in names)

    # --- messages ------------------------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Have the instructions written down and handed over; return their ids.

        An instruction for a node and a version is one instruction, however often it is pushed.
        """
        pushed = list(messages)
        models = {id(record): record for record in (message.content[ARRAYS] for message in pushed)}
        hashes = {key: content_hash(pack(from_record(record))) for key, record in models.items()}
        instructions = [self._instruction(one, hashes[id(one.content[ARRAYS])]) for one in pushed]
        self._link.ask(Push(instructions=tuple(instructions)), Done)
        for message, instruction in zip(pushed, instructions, strict=True):
            self._asked[instruction.id] = internals.stamp(message, instruction.id)
        return [instruction.id for instruction in instructions]

    def _instruction(self, message: Message, model: str) -> Instruction:
        config = dict(message.content[CONFIG])
        node = self._names[message.metadata.dst_node_id]
        version = int(config["version"])
        return Instruction(
            id=instruction_id(self.spec.run_id, version, node),
            run_id=self.spec.run_id,
            version=version,
            node=node,
            model=model,
            trainer=str(config["trainer"]),
            config=config,
            ttl_s=message.metadata.ttl,
            seed=int(config["seed"]),
        )

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there; one that cannot be read comes as an error of its node."""
        ids = sorted(message_ids)
        replies: list[Message] = []
        while ids:
            taken = self._link.ask(Take(ids=tuple(ids)), Taken)
            replies.extend(self._reply(reply) for reply in taken.replies)
            got = {reply.instruction_id for reply in taken.replies}
            ids = [one for one in ids if one not in got] if taken.has_more else []
        return replies

    def _reply(self, taken: TakenReply) -> Message:
        asked = self._asked.get(taken.instruction_id) or internals.bare(
            taken.instruction_id, node_number(taken.node)
        )
        return internals.reply_of(asked, _answer(taken))

    def wait_for_replies(self, message_ids: Collection[str], minimum: int, timeout_s: float) -> None:
        """Return when `minimum` of these have a reply to pull, or the time is over."""
        ends = time.monotonic() + timeout_s
        wait_s = min(max(0.0, ends - time.monotonic()), _LONGEST_WAIT_S)
        self._link.ask(WaitReplies(ids=tuple(message_ids), minimum=minimum, timeout_s=wait_s), Done)


def _answer(taken: TakenReply) -> object:
    if taken.refused is not None:
        return error_of(taken.refused.code, taken.refused.reason)
    try:
        return reply_content(unpack(taken.packet), taken.num_examples, taken.metrics)
    except (PacketRefused, TypeError, ValueError) as error:  # Flower's records refuse some values themselves
        return error_of("malformed", str(error))


class DurableJournal:
    """Keeps versions in the coordinator's ledger."""

    def __init__(self, link: Link, opened: Opened) -> None:
        """Begin where the ledger says."""
        self._link = link
        self._spec = opened.spec
        bases = {number: unpack(model) for number, model in opened.models.items()}
        first = max(0, opened.version - self._spec.max_staleness)
        if not self._spec.base and first == 0:
            bases[0] = initial_parameters(self._spec)
        if opened.version not in bases:
            raise FederationError(
                f"version {opened.version} of {self._spec.run_id} is not in the content store"
            )
        self._checkpoint = Checkpoint(
            version=opened.version, bases=bases, state=opened.state, age_s=opened.age_s
        )
        if opened.version == 0 and not self._spec.base:
            self._keep(0, bases[0], b"", {}, {})

    def load(self) -> Checkpoint:
        """Return where the run stands."""
        return self._checkpoint

    def commit(
        self,
        version: int,
        arrays: Arrays,
        *,
        state: bytes,
        verdicts: Mapping[str, Verdict],
        metrics: Mapping[str, float],
    ) -> None:
        """Keep a version with its verdicts, durably."""
        self._keep(version, arrays, state, verdicts, metrics)
        oldest = version - self._spec.max_staleness
        bases = {n: base for n, base in self._checkpoint.bases.items() if n >= oldest}
        bases[version] = arrays
        self._checkpoint = Checkpoint(version=version, bases=bases, state=state, metrics=dict(metrics))

    def _keep(
        self,
        version: int,
        arrays: Arrays,
        state: bytes,
        verdicts: Mapping[str, Verdict],
        metrics: Mapping[str, float],
    ) -> None:
        request = CommitVersion(
            version=version,
            model=pack(arrays),
            state=state,
            verdicts=dict(verdicts),
            metrics=dict(metrics),
        )
        self._link.ask(request, Done)

    def refuse(self, verdicts: Mapping[str, Refused]) -> None:
        """Keep refusals, durably."""
        if verdicts:
            self._link.ask(RefuseReplies(verdicts=dict(verdicts)), Done)

    def wait_for_quorum(self, reason: str) -> float:
        """Say that the run waits, and why; return how long it may, s."""
        return self._link.ask(WaitForQuorum(reason=reason), Patience).left_s
