"""The rules of the round ledger, once for every store: what may follow what, and what counts how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from federation.rounds.ledger import Entry, Refusal, Run, Version
from federation.rounds.tables import Tables
from federation.values import (
    FINAL_REPLY_STATES,
    FINAL_RUN_STATES,
    REPLY_TRANSITIONS,
    RUN_TRANSITIONS,
    Accepted,
    Instruction,
    Refused,
    Reply,
    ReplyState,
    RunSpec,
    RunState,
    Verdict,
)
from skerry.clock import Instant
from skerry.errors import FederationError, InvalidTransition

_WITHOUT_REPLY = (ReplyState.OPEN, ReplyState.SUPERSEDED)
_UNJUDGED = (*_WITHOUT_REPLY, ReplyState.RECEIVED, ReplyState.LATE)
#: What a node may say at most about its failure, characters.
_REASON_LIMIT = 500


class RuledLedger:
    """A RoundLedger over any tables."""

    def __init__(self, tables: Tables) -> None:
        """Own the tables."""
        self._tables = tables

    def close(self) -> None:
        """Close in order."""
        self._tables.close()

    # --- runs -------------------------------------------------------------------------------------------

    def create(self, spec: RunSpec, base: Version, wall_s: float) -> Run:
        """Write a new run with its version 0.  Raises FederationError when the id is taken."""
        with self._tables.transaction():
            if self._tables.get_run(spec.run_id) is not None:
                raise FederationError(f"there is a run {spec.run_id} already; choose another name")
            run = Run(
                spec=spec, state=RunState.CREATED, created_wall_s=wall_s, patience_left_s=spec.patience_s
            )
            self._tables.put_run(run)
            self._tables.add_version(replace(base, run_id=spec.run_id, version=0, wall_s=wall_s))
        return run

    def run(self, run_id: str) -> Run | None:
        """Return one run, or None."""
        return self._tables.get_run(run_id)

    def runs(self) -> list[Run]:
        """Return every run, newest first."""
        return self._tables.all_runs()

    def move(
        self, run_id: str, state: RunState, *, now: Instant, reason: str = "", wall_s: float = 0.0
    ) -> Run:
        """Change a run's state.  Raises InvalidTransition."""
        with self._tables.transaction():
            run = self._known(run_id)
            if state not in RUN_TRANSITIONS[run.state]:
                raise InvalidTransition(run.state, state)
            moved = replace(
                run,
                state=state,
                reason=reason,
                patience_left_s=patience_left(run, now),
                waiting_since=now if state is RunState.WAITING else None,
                ended_wall_s=wall_s if state in FINAL_RUN_STATES else 0.0,
            )
            self._tables.put_run(moved)
            if state in FINAL_RUN_STATES:
                self._close_entries(run_id, f"the run is {state}")
        return moved

    def _close_entries(self, run_id: str, reason: str) -> None:
        for entry in self._tables.entries_of(run_id, _UNJUDGED, None):
            self._put(entry, state=ReplyState.REFUSED, code="run_over", reason=reason)

    # --- versions ---------------------------------------------------------------------------------------

    def commit(self, version: Version, verdicts: Mapping[str, Verdict]) -> bool:
        """Write a version and the verdicts it rests on, as one."""
        with self._tables.transaction():
            run = self._known(version.run_id)
            if version.version == run.version and self._is_committed(version):
                return False
            if version.version != run.version + 1 or run.state in FINAL_RUN_STATES:
                raise FederationError(
                    f"version {version.version} does not follow version {run.version} of the {run.state} run "
                    f"{version.run_id}"
                )
            for instruction_id, verdict in verdicts.items():
                self._settle(instruction_id, verdict, version.version)
            self._make_late(version)
            accepted = sum(isinstance(verdict, Accepted) for verdict in verdicts.values())
            self._tables.add_version(replace(version, accepted=accepted, refused=len(verdicts) - accepted))
            self._tables.put_run(replace(run, version=version.version, patience_left_s=run.spec.patience_s))
        return True

    def versions(self, run_id: str) -> list[Version]:
        """Return the committed versions, oldest first; 0 is the base."""
        return self._tables.versions_of(run_id)

    def _is_committed(self, version: Version) -> bool:
        newest = self._tables.versions_of(version.run_id)[-1]
        return newest.version > 0 and newest.model == version.model and newest.state == version.state

    def _settle(self, instruction_id: str, verdict: Verdict, version: int) -> None:
        entry = self._tables.get_entry(instruction_id)
        if entry is None or entry.reply is None or entry.state in FINAL_REPLY_STATES:
            what = "has its verdict already" if entry and entry.reply else "has no reply to judge"
            raise FederationError(f"instruction {instruction_id} {what}")
        if isinstance(verdict, Accepted):
            self._put(
                entry,
                state=ReplyState.ACCEPTED,
                counted_in=version,
                weight=verdict.weight,
                staleness=verdict.staleness,
            )
        else:
            self._refuse(entry, verdict)

    def _make_late(self, version: Version) -> None:
        for entry in self._tables.entries_of(version.run_id, (ReplyState.RECEIVED,), None):
            if entry.instruction.version < version.version:
                self._put(entry, state=ReplyState.LATE, is_late=True)

    # --- instructions and replies -----------------------------------------------------------------------

    def push(self, instructions: Sequence[Instruction], now: Instant) -> list[Entry]:
        """Write instructions that are not there yet; return the entries of all of them, in their order."""
        with self._tables.transaction():
            for run_id in {instruction.run_id for instruction in instructions}:
                self._going_on(run_id)
            return [self._push(instruction, now) for instruction in instructions]

    def _push(self, instruction: Instruction, now: Instant) -> Entry:
        known = self._tables.get_entry(instruction.id)
        if known is not None:
            return known
        for older in self._tables.entries_of(instruction.run_id, (ReplyState.OPEN,), instruction.node):
            if older.instruction.version < instruction.version:
                self._put(older, state=ReplyState.SUPERSEDED)
        entry = Entry(instruction=instruction, state=ReplyState.OPEN, sent=now)
        self._tables.put_entry(entry)
        return entry

    def receive(self, replies: Sequence[Reply], wall_s: float) -> list[Refused | None]:
        """Store each reply that answers an instruction without one: None. Else count it and say why not."""
        with self._tables.transaction():
            return [self._receive(reply, wall_s) for reply in replies]

    def _receive(self, reply: Reply, wall_s: float) -> Refused | None:
        entry = self._tables.get_entry(reply.instruction_id)
        refused = self._obstacle(entry, reply)
        if refused is not None or entry is None:
            self._count(reply, refused)
            return refused
        run = self._known(entry.instruction.run_id)
        is_late = entry.state is ReplyState.SUPERSEDED or run.version > entry.instruction.version
        stored = self._put(
            entry,
            state=ReplyState.LATE if is_late else ReplyState.RECEIVED,
            is_late=is_late,
            reply=replace(reply, inline=b"", error=reply.error[:_REASON_LIMIT]),
            replied_wall_s=wall_s,
        )
        if reply.error:
            self._refuse(stored, _failure(reply.error[:_REASON_LIMIT]))
        elif reply.base_version != entry.instruction.version:
            self._refuse(stored, _other_version(entry.instruction.version, reply.base_version))
        else:
            self._tables.put_payload(reply.instruction_id, reply.inline)
        return None

    def _obstacle(self, entry: Entry | None, reply: Reply) -> Refused | None:
        """Return why this reply answers nothing, or None."""
        if entry is None:
            return Refused(code="unknown_instruction", reason="no such instruction was given")
        asked = entry.instruction
        if asked.node != reply.node:
            return Refused(code="foreign_node", reason=f"{asked.node} was asked, {reply.node} answered")
        if entry.reply is not None:
            return Refused(code="duplicate", reason="this instruction has its reply already")
        run = self._known(asked.run_id)
        if run.state in FINAL_RUN_STATES:
            return Refused(code="run_over", reason=f"the run is {run.state}")
        return None

    def judge(self, run_id: str, verdicts: Mapping[str, Refused]) -> None:
        """Refuse stored replies outside a commit."""
        with self._tables.transaction():
            run = self._going_on(run_id)
            for instruction_id, verdict in verdicts.items():
                self._settle(instruction_id, verdict, run.version)

    def entries(
        self,
        run_id: str,
        *,
        ids: Sequence[str] | None = None,
        states: Sequence[ReplyState] | None = None,
    ) -> list[Entry]:
        """Return entries by version and node; only those with the given ids or states when given."""
        if ids is None:
            return self._tables.entries_of(run_id, states, None)
        found = (self._tables.get_entry(one) for one in dict.fromkeys(ids))
        return sorted(self._wanted(found, run_id, states), key=_by_version_and_node)

    @staticmethod
    def _wanted(
        found: Iterable[Entry | None], run_id: str, states: Sequence[ReplyState] | None
    ) -> Iterable[Entry]:
        for entry in found:
            if entry and entry.instruction.run_id == run_id and (states is None or entry.state in states):
                yield entry

    def payload(self, instruction_id: str) -> bytes:
        """Return the inline packet of a stored reply that has no verdict yet; empty when there is none."""
        return self._tables.get_payload(instruction_id)

    def refusals(self, run_id: str) -> list[Refusal]:
        """Return what was refused, by node and code."""
        return self._tables.refusals_of(run_id)

    # --- inside -----------------------------------------------------------------------------------------

    def _put(self, entry: Entry, *, state: ReplyState, **fields: object) -> Entry:
        if state not in REPLY_TRANSITIONS[entry.state]:
            raise InvalidTransition(entry.state, state)
        after = replace(entry, state=state, **fields)
        self._tables.put_entry(after)
        if state in FINAL_REPLY_STATES:
            self._tables.put_payload(entry.instruction.id, b"")
        return after

    def _refuse(self, entry: Entry, verdict: Refused) -> None:
        self._put(entry, state=ReplyState.REFUSED, code=verdict.code, reason=verdict.reason)
        if entry.reply is not None:
            self._count(entry.reply, verdict)

    def _count(self, reply: Reply, verdict: Refused | None) -> None:
        if verdict is None:
            return
        # Ids that nobody gave out are the sender's invention: counted by node alone, or they fill the disk.
        is_known = self._tables.get_entry(reply.instruction_id) is not None
        run_id = reply.run_id if self._tables.get_run(reply.run_id) else ""
        self._tables.add_refusal(
            Refusal(
                run_id=run_id,
                node=reply.node,
                instruction_id=reply.instruction_id if is_known else "",
                code=verdict.code,
                reason=verdict.reason,
            )
        )

    def _known(self, run_id: str) -> Run:
        run = self._tables.get_run(run_id)
        if run is None:
            raise FederationError(f"there is no run {run_id}")
        return run

    def _going_on(self, run_id: str) -> Run:
        run = self._known(run_id)
        if run.state in FINAL_RUN_STATES:
            raise FederationError(f"the run {run_id} is {run.state}")
        return run


def patience_left(run: Run, now: Instant) -> float:
    """Return how long the run will still wait for nodes, powered-on seconds."""
    waited = now.since(run.waiting_since) if run.waiting_since else 0.0
    return max(0.0, run.patience_left_s - waited)


def _failure(error: str) -> Refused:
    if error == "superseded":
        return Refused(code="superseded", reason="the node had a newer instruction before it began")
    return Refused(code="node_error", reason=error)


def _other_version(asked: int, told: int) -> Refused:
    return Refused(code="base_version", reason=f"version {asked} was asked, the reply is about {told}")


def _by_version_and_node(entry: Entry) -> tuple[int, str]:
    return entry.instruction.version, entry.instruction.node
