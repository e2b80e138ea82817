# pyright: reportMissingImports=false
"""The loop that makes versions: ask, wait, judge, merge, keep. Begins wherever the journal says it stopped.

Knows no transport and no disk: the grid carries, the journal keeps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from flwr.app import Message
from flwr.serverapp import Grid

from federation.flower.journal import Checkpoint, Journal
from federation.flower.records import from_record, to_record
from federation.flower.strategies.guarded import Guarded
from federation.flower.strategies.mean import WeightedMean
from federation.grid.base import await_nodes, await_replies
from federation.values import Accepted, Refused, RunSpec, Scalar, Verdict
from skerry.errors import RoundFailed


class Versions:
    """One run of one strategy over one grid."""

    def __init__(
        self,
        grid: Grid,
        strategy: Guarded,
        journal: Journal,
        spec: RunSpec,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Drive `strategy`, whose inner strategy is one of ours."""
        assert isinstance(strategy.inner, WeightedMean)
        self._inner: WeightedMean = strategy.inner
        self._grid = grid
        self._strategy = strategy
        self._journal = journal
        self._spec = spec
        self._now = monotonic_s
        self._pulled: dict[str, Message] = {}

    def run(self) -> Checkpoint:
        """Make every version that is not there yet.  Raises RoundFailed, saying what was missing."""
        at = self._journal.load()
        self._strategy.decode(at.state)
        while at.version < self._spec.rounds:
            self._make_next(at)
            at = self._journal.load()
        return at

    def _make_next(self, at: Checkpoint) -> None:
        self._strategy.begin(at.version, at.bases)
        fresh = self._ask(at)
        deadline = self._now() + max(0.0, self._spec.deadline_s - at.age_s)
        self._collect(fresh, deadline)
        replies = list(self._pulled.values())
        self._pulled.clear()
        arrays, metrics = self._strategy.aggregate_train(at.version + 1, replies)
        verdicts = self._strategy.verdicts
        accepted = sum(isinstance(verdict, Accepted) for verdict in verdicts.values())
        if arrays is None or accepted < self._spec.quorum:
            self._journal.refuse({k: v for k, v in verdicts.items() if isinstance(v, Refused)})
            raise RoundFailed(_shortage(at.version + 1, accepted, self._spec.quorum, verdicts.values()))
        self._journal.commit(
            at.version + 1,
            from_record(arrays),
            state=self._strategy.encode(),
            verdicts=verdicts,
            metrics={name: float(str(value)) for name, value in (metrics or {}).items()},
        )

    def _ask(self, at: Checkpoint) -> set[str]:
        """Give out the instructions of this version; return their ids."""
        nodes = await_nodes(self._grid, self._spec.quorum, self._spec.patience_s)
        if len(nodes) < self._spec.quorum:
            raise RoundFailed(
                f"{len(nodes)} nodes are eligible, {self._spec.quorum} are needed; patience is over"
            )
        chosen = self._inner.choose(sorted(nodes), self._strategy.busy())
        self._inner.begin(at.arrays)
        config = instruction_config(self._spec, at.version)
        messages = self._inner.instructions(chosen, to_record(at.arrays), config)
        # A version that was asked for before a restart is asked for again: the grid knows its instructions.
        ids = list(self._grid.push_messages(messages))
        for message_id, node in zip(ids, chosen, strict=True):
            self._strategy.remember(message_id, node)
        return set(ids)

    def _collect(self, fresh: set[str], deadline: float) -> None:
        """Pull replies until what the strategy wants is here, or after the deadline a quorum."""
        if self._wait(fresh, deadline, self._inner.wanted()):
            return
        if self._count_usable() < self._spec.quorum:
            patience_s = self._journal.wait_for_quorum(self._why_waiting())
            self._wait(fresh, self._now() + patience_s, self._spec.quorum)

    def _wait(self, fresh: set[str], ends: float, wanted: int | None) -> bool:
        """Return True when enough usable replies are here or none can come; False when time is over.

        wanted: how many usable ones; None: an answer from each of `fresh`, a quorum of them usable.
        """
        while True:
            self._pull()
            waiting_for = fresh - self._pulled.keys() if wanted is None else set[str]()
            needed = max(wanted or 0, self._spec.quorum)
            if not waiting_for and self._is_usable(needed):
                return True
            open_ids = waiting_for or self._open_ids()
            left = ends - self._now()
            if not open_ids:
                return True
            if left <= 0:
                return False
            minimum = len(waiting_for) or max(1, needed - len(self._pulled))
            await_replies(self._grid, open_ids, min(minimum, len(open_ids)), left)

    def _open_ids(self) -> set[str]:
        return self._strategy.memory.asked.keys() - self._pulled.keys()

    def _pull(self) -> None:
        for message in self._grid.pull_messages(self._open_ids()):
            self._pulled[message.metadata.reply_to_message_id] = message

    def _is_usable(self, needed: int) -> bool:
        return len(self._pulled) >= needed and self._count_usable() >= needed

    def _count_usable(self) -> int:
        judged = self._strategy.judge(self._pulled.values())
        return sum(isinstance(verdict, Accepted) for _, _, verdict in judged)

    def _why_waiting(self) -> str:
        usable, quorum = self._count_usable(), self._spec.quorum
        return f"{usable} usable replies came before the deadline, {quorum} are needed"


def instruction_config(spec: RunSpec, version: int) -> dict[str, Scalar]:
    """Return what every node of a version is told: the run's own settings and which version this is."""
    return {
        **spec.config,
        "trainer": spec.trainer,
        "run": spec.run_id,
        "version": version,
        "seed": spec.seed,
    }


def _shortage(version: int, accepted: int, quorum: int, verdicts: Iterable[Verdict]) -> str:
    refused = Counter(verdict.code for verdict in verdicts if isinstance(verdict, Refused))
    why = "".join(f", {count} refused ({code})" for code, count in sorted(refused.items()))
    return f"version {version} has {accepted} usable replies, {quorum} are needed{why}"
