"""What the service decides and writes, on the ledger's thread: no event loop, no socket in here."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from federation.rounds.channel import TAKE_LIMIT_BYTES, Opened, Taken, TakenReply, TryAgain
from federation.rounds.cohort import eligible, shortage
from federation.rounds.courier import Courier, Roster
from federation.rounds.ledger import Entry, RoundLedger, Run, Version
from federation.rounds.rules import patience_left
from federation.values import (
    FINAL_RUN_STATES,
    Instruction,
    Refused,
    Reply,
    ReplyState,
    RunSpec,
    RunState,
    Verdict,
)
from federation.wire import PACKET_LIMIT_BYTES
from skerry.blobs import BlobStore
from skerry.clock import Clock
from skerry.errors import BlobError, FederationError, SkerryError

_log = logging.getLogger(__name__)
_WITH_REPLY = (ReplyState.RECEIVED, ReplyState.LATE, ReplyState.REFUSED)


class Office:
    """Ledger, contents, courier and roster together. One thread."""

    def __init__(
        self, ledger: RoundLedger, blobs: BlobStore, courier: Courier, roster: Roster, clock: Clock
    ) -> None:
        """Own the ledger."""
        self.ledger = ledger
        self.roster = roster
        self._blobs = blobs
        self._courier = courier
        self._clock = clock

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    # --- runs ----------------------------------------------------------------------------------------

    def create(self, spec: RunSpec, wall_s: float) -> Run:
        """Write a new run down; its base must be in the content store, and stays there."""
        if spec.base:
            self._read(spec.base)
            self._blobs.pin(spec.base)
        return self.ledger.create(spec, Version(run_id=spec.run_id, version=0, model=spec.base), wall_s)

    def known(self, run_id: str) -> Run:
        """Return a run.  Raises FederationError when there is none."""
        run = self.ledger.run(run_id)
        if run is None:
            raise FederationError(f"there is no run {run_id[:80]!r}; `skerry round list` shows them")
        return run

    def going_on(self, run_id: str) -> Run:
        """Return a run that is not final.  Raises FederationError."""
        run = self.known(run_id)
        if run.state in FINAL_RUN_STATES:
            raise FederationError(f"the run {run_id} is {run.state} already")
        return run

    def progress(self, run_id: str) -> int | None:
        """Return the run's newest version, or None when it is final."""
        run = self.known(run_id)
        return None if run.state in FINAL_RUN_STATES else run.version

    def end(self, run_id: str, state: RunState, reason: str, wall_s: float) -> Run:
        """Make a run final and withdraw what is still out."""
        run = self.ledger.move(run_id, state, now=self._clock.now(), reason=reason, wall_s=wall_s)
        self._courier.withdraw(run_id, reason or state.value)
        return run

    def open_run(self, run_id: str) -> Opened:
        """Return where a run stands."""
        run = self.going_on(run_id)
        versions = self.ledger.versions(run_id)[-(run.spec.max_staleness + 1) :]
        models = {v.version: self._read(v.model) for v in versions if v.model}
        return Opened(
            spec=run.spec,
            version=run.version,
            models=models,
            state=versions[-1].state,
            age_s=self._age_s(run),
        )

    def _age_s(self, run: Run) -> float:
        now = self._clock.now()
        entries = self.ledger.entries(run.spec.run_id)
        given = [e.sent for e in entries if e.instruction.version == run.version and e.sent is not None]
        return max((now.since(sent) for sent in given), default=0.0)

    # --- nodes ---------------------------------------------------------------------------------------

    def nodes(self, run_id: str, minimum: int) -> tuple[list[str], float]:
        """Return the eligible nodes and how long the run will still wait for more, 0 when they are enough."""
        run = self.going_on(run_id)
        try:
            candidates = self.roster.candidates()
        except SkerryError as error:
            raise TryAgain(f"the register cannot be read: {error}") from error
        names = eligible(candidates, run.spec.cohort)
        if len(names) >= minimum:
            self._running(run)
            return names, 0.0
        return names, self.wait(run_id, shortage(candidates, run.spec.cohort, minimum))

    def eligible_now(self, run: Run) -> tuple[str, ...]:
        """Return the eligible nodes for a report, which a register that cannot be read must not prevent."""
        try:
            return tuple(eligible(self.roster.candidates(), run.spec.cohort))
        except SkerryError as error:
            _log.warning("the register cannot be read: %s", error)
            return ()

    def wait(self, run_id: str, reason: str) -> float:
        """Say that a run waits, and why; return the rest of its patience, s."""
        run = self.going_on(run_id)
        if run.state is not RunState.WAITING or run.reason != reason:
            run = self.ledger.move(run_id, RunState.WAITING, now=self._clock.now(), reason=reason)
        return patience_left(run, self._clock.now())

    def _running(self, run: Run) -> None:
        if run.state is not RunState.RUNNING:
            self.ledger.move(run.spec.run_id, RunState.RUNNING, now=self._clock.now())

    # --- instructions and replies --------------------------------------------------------------------

    def push(self, run_id: str, instructions: Sequence[Instruction]) -> None:
        """Write instructions down and hand those without a reply to the courier."""
        run = self.going_on(run_id)
        if any(one.run_id != run_id or one.version != run.version for one in instructions):
            raise FederationError("an instruction is about another run or version")
        entries = self.ledger.push(instructions, self._clock.now())
        unanswered = [entry.instruction for entry in entries if entry.state is ReplyState.OPEN]
        try:
            self._courier.send(unanswered)
        except SkerryError as error:
            raise TryAgain(f"the instructions could not be handed over: {error}") from error

    def receive(self, replies: Sequence[Reply], wall_s: float) -> list[Refused | None]:
        """Store replies; the run that a reply names must be the run that was asked."""
        return self.ledger.receive(replies, wall_s)

    def answered(self, run_id: str, ids: Sequence[str]) -> int:
        """Return how many of these have a reply to take."""
        return sum(_is_takeable(entry) for entry in self.ledger.entries(run_id, ids=ids))

    def take(self, run_id: str, ids: Sequence[str]) -> Taken:
        """Return the replies that are there among these, up to a limit of bytes."""
        there = [entry for entry in self.ledger.entries(run_id, ids=ids) if _is_takeable(entry)]
        taken: list[TakenReply] = []
        size = 0
        for entry in there:
            reply = self._taken(entry)
            size += len(reply.packet)
            if taken and size > TAKE_LIMIT_BYTES:
                return Taken(replies=tuple(taken), has_more=True)
            taken.append(reply)
        return Taken(replies=tuple(taken))

    def _taken(self, entry: Entry) -> TakenReply:
        reply, asked = entry.reply, entry.instruction
        assert reply is not None
        bare = TakenReply(instruction_id=asked.id, node=asked.node)
        if entry.state is ReplyState.REFUSED:
            return replace(bare, refused=Refused(code=entry.code, reason=entry.reason))
        try:
            packet = self._read(reply.update) if reply.update else self.ledger.payload(asked.id)
        except (BlobError, FederationError) as error:
            reason = f"its update cannot be read: {error}"
            return replace(bare, refused=Refused(code="malformed", reason=reason))
        return replace(bare, packet=packet, num_examples=reply.num_examples, metrics=reply.metrics)

    # --- versions ------------------------------------------------------------------------------------

    def commit(
        self,
        run_id: str,
        version: int,
        model: bytes,
        state: bytes,
        verdicts: Mapping[str, Verdict],
        metrics: Mapping[str, float],
        wall_s: float,
    ) -> str:
        """Keep a version with its verdicts; return its hash. The content is safe before the row names it."""
        run = self.going_on(run_id)
        name = self._blobs.put_bytes(model)
        self._blobs.pin(name)
        if version == 0:  # the base that the trainer made; it is the same after a restart
            return name
        self.ledger.commit(
            Version(
                run_id=run_id,
                version=version,
                model=name,
                state=state,
                metrics=dict(metrics),
                wall_s=wall_s,
            ),
            self._still_open(run_id, verdicts),
        )
        self._running(run)
        return name

    def refuse(self, run_id: str, verdicts: Mapping[str, Verdict]) -> None:
        """Keep refusals although no version came of them."""
        refused = {key: v for key, v in verdicts.items() if isinstance(v, Refused)}
        still_open = self._still_open(run_id, refused)
        self.ledger.judge(run_id, {key: v for key, v in still_open.items() if isinstance(v, Refused)})

    def _still_open(self, run_id: str, verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
        """Leave out refusals of replies that were refused on arrival: their reason stands already."""
        refused = {
            entry.instruction.id
            for entry in self.ledger.entries(run_id, ids=list(verdicts))
            if entry.state is ReplyState.REFUSED
        }
        return {
            key: verdict
            for key, verdict in verdicts.items()
            if not (key in refused and isinstance(verdict, Refused))
        }

    def _read(self, name: str) -> bytes:
        size = self._blobs.size(name)
        if size > PACKET_LIMIT_BYTES:
            raise FederationError(f"{name} has {size} bytes, {PACKET_LIMIT_BYTES} are allowed")
        return self._blobs.path(name).read_bytes()


def _is_takeable(entry: Entry) -> bool:
    return entry.reply is not None and entry.state in _WITH_REPLY
