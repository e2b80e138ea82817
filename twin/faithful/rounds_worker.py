"""A run's worker, emulated: it makes versions as the real one does, without Flower and without a process.

The border to the training environment, which cannot exist on a virtual clock; labelled `emulated`. It asks
the real session, judges by the real rules of admission and keeps nothing of its own: it may end whenever.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from federation.admission import AdmissionPolicy, Asked, Offer, difference, judge_all
from federation.rounds.channel import (
    Answer,
    AskNodes,
    CommitVersion,
    Done,
    Failed,
    Finish,
    Nodes,
    Open,
    Opened,
    Patience,
    Push,
    RefuseReplies,
    Request,
    Take,
    Taken,
    TakenReply,
    WaitForQuorum,
    WaitReplies,
)
from federation.rounds.session import Session
from federation.trainers.null import NullTrainer
from federation.values import Accepted, Instruction, Refused, RunSpec, RunState, Verdict, instruction_id
from federation.wire import Arrays, PacketRefused, content_hash, pack, unpack
from skerry.errors import FederationError

_A = TypeVar("_A", bound=Answer)


class _Memory(msgspec.Struct, kw_only=True):
    """What a version's state holds. norms: of accepted updates.

    asked: instruction without a verdict → node and version.
    """

    norms: list[float] = []
    asked: dict[str, tuple[str, int]] = {}


class EmulatedWorker:
    """Serves one run. `run` returns when the run is final."""

    def __init__(self, session: Session, run_id: str) -> None:
        """session: answers it."""
        self._session, self._run_id = session, run_id

    async def run(self) -> None:
        """Make every version that is not there yet."""
        try:
            opened = await self.ask(Open(run_id=self._run_id), Opened)
            state, reason = await _Run(self, opened).versions()
        except FederationError as error:
            state, reason = RunState.FAILED, str(error)
        await self.ask(Finish(state=state, reason=reason[:500]), Done)

    async def ask(self, request: Request, kind: type[_A]) -> _A:
        """Return the answer.  Raises FederationError when there will be none."""
        while True:
            answer = await self._session.answer(request)
            if isinstance(answer, kind):
                return answer
            if not isinstance(answer, Failed) or not answer.is_passing:
                raise FederationError(getattr(answer, "reason", f"it said {type(answer).__name__}"))
            await asyncio.sleep(1.0)

    def now_s(self) -> float:
        """Return virtual seconds."""
        return asyncio.get_running_loop().time()


class _Run:
    """What a worker knows while it runs."""

    def __init__(self, worker: EmulatedWorker, opened: Opened) -> None:
        self._ask, self._now_s = worker.ask, worker.now_s
        self._spec: RunSpec = opened.spec
        self._version, self._age_s = opened.version, opened.age_s
        self._bases: dict[int, Arrays] = {number: unpack(body) for number, body in opened.models.items()}
        self._memory = msgspec.msgpack.decode(opened.state, type=_Memory) if opened.state else _Memory()
        self._model = ""
        self._taken: dict[str, TakenReply] = {}

    async def versions(self) -> tuple[RunState, str]:
        """Return how the run ends."""
        if not self._bases:
            self._bases[0] = NullTrainer().initial(self._spec.config, self._spec.seed)
            await self._keep(0, {}, {})
        while self._version < self._spec.rounds:
            if reason := await self._next():
                return RunState.FAILED, reason
        return RunState.DONE, ""

    async def _next(self) -> str:
        """Make the next version; returns why it cannot be made."""
        spec = self._spec
        nodes = await self._ask(AskNodes(minimum=spec.quorum), Nodes)
        if len(nodes.names) < spec.quorum:
            return f"{len(nodes.names)} nodes are eligible, {spec.quorum} are needed; patience is over"
        fresh = await self._push(self._chosen(nodes.names))
        await self._collect(fresh, self._now_s() + max(0.0, spec.deadline_s - self._age_s))
        self._age_s = 0.0
        offers = [_offer(reply, self._memory.asked) for reply in self._taken.values()]
        verdicts = self._judge(offers)
        accepted = [(o, v) for o in offers if isinstance(v := verdicts[o.instruction_id], Accepted)]
        self._taken.clear()
        for one in verdicts:
            self._memory.asked.pop(one, None)
        if len(accepted) < spec.quorum:
            refused: dict[str, Verdict] = {key: v for key, v in verdicts.items() if isinstance(v, Refused)}
            await self._ask(RefuseReplies(verdicts=refused), Done)
            return f"version {self._version + 1} had {len(accepted)} usable replies of {spec.quorum}"
        self._merge(accepted)
        await self._keep(self._version, verdicts, {})
        return ""

    def _chosen(self, names: Sequence[str]) -> list[str]:
        """Everybody who is eligible; `buffered` leaves those at work alone."""
        oldest = self._version - self._spec.max_staleness
        at_work = {node for node, version in self._memory.asked.values() if version >= oldest}
        is_buffered = self._spec.strategy == "buffered"
        return sorted(name for name in names if not (is_buffered and name in at_work))

    async def _push(self, nodes: Sequence[str]) -> list[str]:
        spec, version = self._spec, self._version
        asked = tuple(
            Instruction(
                id=instruction_id(spec.run_id, version, node),
                run_id=spec.run_id,
                version=version,
                node=node,
                model=content_hash(pack(self._bases[version])),
                trainer=spec.trainer,
                config={**spec.config, "run": spec.run_id, "version": version, "seed": spec.seed},
                ttl_s=spec.ttl_s,
                seed=spec.seed,
            )
            for node in nodes
        )
        await self._ask(Push(instructions=asked), Done)
        for one in asked:
            self._memory.asked.setdefault(one.id, (one.node, version))
        return [one.id for one in asked]

    async def _collect(self, fresh: Sequence[str], ends_s: float) -> None:
        """Wait for what the strategy wants; after the deadline, with patience, for a quorum."""
        wanted = self._spec.buffer if self._spec.strategy == "buffered" else None
        if await self._wait(fresh, ends_s, wanted) or self._usable() >= self._spec.quorum:
            return
        patience = await self._ask(WaitForQuorum(reason="too few usable replies"), Patience)
        await self._wait(fresh, self._now_s() + patience.left_s, self._spec.quorum)

    async def _wait(self, fresh: Sequence[str], ends_s: float, wanted: int | None) -> bool:
        while True:
            await self._take()
            missing = [one for one in fresh if one not in self._taken] if wanted is None else []
            needed = max(wanted or 0, self._spec.quorum)
            if not missing and self._usable() >= needed:
                return True
            open_ids = missing or [one for one in self._memory.asked if one not in self._taken]
            left_s = ends_s - self._now_s()
            if not open_ids or left_s <= 0:
                return not open_ids
            await self._ask(WaitReplies(ids=tuple(open_ids), minimum=1, timeout_s=left_s), Done)

    async def _take(self) -> None:
        ids = tuple(sorted(one for one in self._memory.asked if one not in self._taken))
        if ids:
            taken = await self._ask(Take(ids=ids), Taken)
            self._taken.update({reply.instruction_id: reply for reply in taken.replies})

    def _usable(self) -> int:
        offers = [_offer(reply, self._memory.asked) for reply in self._taken.values()]
        return sum(isinstance(verdict, Accepted) for verdict in self._judge(offers).values())

    def _judge(self, offers: Sequence[Offer]) -> dict[str, Verdict]:
        verdicts = judge_all(
            offers,
            asked={one: Asked(node=node, version=v) for one, (node, v) in self._memory.asked.items()},
            bases=self._bases,
            version=self._version,
            norms=self._memory.norms,
            policy=AdmissionPolicy(
                max_staleness=self._spec.max_staleness, max_examples=self._spec.max_examples
            ),
        )
        return {offer.instruction_id: verdict for offer, verdict in zip(offers, verdicts, strict=True)}

    def _merge(self, accepted: Sequence[tuple[Offer, Accepted]]) -> None:
        """Newest version plus the weighted mean of the updates, each from the version that it began from."""
        newest = self._bases[self._version]
        total = math.fsum(verdict.weight for _, verdict in accepted)
        sums = {key: np.zeros(array.shape, np.float64) for key, array in newest.items()}
        for offer, verdict in accepted:
            for key, update in difference(offer.arrays, self._bases[offer.base_version]).items():
                sums[key] += verdict.weight / total * verdict.scale * update
        made = {key: (newest[key].astype(np.float64) + sums[key]).astype(newest[key].dtype) for key in newest}
        norms = sorted(verdict.norm * verdict.scale for _, verdict in accepted)
        self._memory.norms = [*self._memory.norms, *norms][-AdmissionPolicy().norms_kept :]
        self._version += 1
        oldest = self._version - self._spec.max_staleness
        self._bases = {number: base for number, base in self._bases.items() if number >= oldest}
        self._bases[self._version] = made

    async def _keep(
        self, version: int, verdicts: Mapping[str, Verdict], metrics: Mapping[str, float]
    ) -> None:
        request = CommitVersion(
            version=version,
            model=pack(self._bases[version]),
            state=msgspec.msgpack.encode(self._memory),
            verdicts=dict(verdicts),
            metrics=dict(metrics),
        )
        await self._ask(request, Done)


def _offer(reply: TakenReply, asked: Mapping[str, tuple[str, int]]) -> Offer:
    node, version = asked.get(reply.instruction_id, ("", -1))
    bare = Offer(instruction_id=reply.instruction_id, node=reply.node or node, base_version=version)
    if reply.refused is not None:
        return msgspec.structs.replace(bare, refused=reply.refused)
    try:
        arrays = unpack(reply.packet)
    except PacketRefused as error:
        return msgspec.structs.replace(bare, refused=Refused(code="malformed", reason=str(error)))
    return msgspec.structs.replace(
        bare, num_examples=reply.num_examples, arrays=arrays, metrics=dict(reply.metrics)
    )
