"""One world over several processes: nodes shared out over workers, network and coordinator in the first one.

Conservative: nothing gets from one process into another in less than LOOKAHEAD_S, so all may go on for that
long without asking; a worker whose nodes are all cut off may go on until the scenario's next moment. Owns
these windows; what passes is shards_wire's. The same scenario, seed and number of workers give the same run.
"""

from __future__ import annotations

import hashlib
import heapq
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from math import inf, nextafter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from skerry.errors import SpecError
from twin.faithful.chance import seeded_secrets
from twin.faithful.run import LOOK_EVERY_S, Progress, Report, report_of
from twin.faithful.shards_wire import LOOKAHEAD_S, Exchange, Parcel
from twin.faithful.shards_worker import Come, Go, Held, Order, ShareStage, Trim, serve
from twin.faithful.staging import FLEET, LOAD_BEGINS_S
from twin.scenario.expect import Expect
from twin.scenario.faults import Clone
from twin.scenario.language import Scenario, names_of

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

#: Workers that nobody can reach are looked at again after this, seconds: how far they are is to be seen.
LONGEST_WINDOW_S = 900.0


def run_in_shards(
    scenario: Scenario,
    seed: int,
    jobs: int,
    *,
    progress: Progress | None = None,
    home: Path | None = None,
) -> Report:
    """Run a scenario with its nodes shared out over so many workers.

    home: see run_scenario.  Raises SpecError for a scenario that only one process can judge.
    """
    check_can_be_shared(scenario)
    begun = time.perf_counter()
    names = [name for group in scenario.group for name in names_of(group)]
    shares = [tuple(names[first::jobs]) for first in range(min(jobs, len(names)))]
    with tempfile.TemporaryDirectory(prefix="skerry-twin-", dir=home) as folder:
        first = _First(scenario, seed, Path(folder), shares, progress)
        try:
            held = first.run()
            return _sum(first, held, time.perf_counter() - begun)
        finally:
            first.close()


def check_can_be_shared(scenario: Scenario) -> None:
    """Raise SpecError when what a scenario asks for can only be seen by one process that has everything."""
    if scenario.expect != Expect():
        raise SpecError(f"{scenario.name} has expectations, which one process must measure: leave out --jobs")
    if scenario.round or scenario.rollout:
        raise SpecError(f"{scenario.name} has rounds or rollouts, which take one process: leave out --jobs")
    if any(isinstance(fault, Clone) for fault in scenario.fault):
        raise SpecError(f"{scenario.name} copies a node's disk, which takes one process: leave out --jobs")


class _Worker:
    """One worker as the first process sees it."""

    def __init__(
        self, share: tuple[str, ...], scenario: Scenario, seed: int, home: Path, number: int
    ) -> None:
        self.share = share
        self.client_ids = {f"{FLEET}-{name}" for name in share}
        self.next_s = 0.0
        self.submitted = 0
        self.inbox: list[Parcel] = []
        self.until_s = 0.0  #: everything before it has happened there
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        order = msgspec.json.encode(
            Order(
                scenario=scenario, seed=seed, home=str(home), parent=os.getpid(), share=share, number=number
            )
        )
        self._process: SpawnProcess = context.Process(target=serve, args=(theirs, order), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pipe(self) -> Connection:
        """What leads there."""
        return self._pipe

    def go(self, until_s: float) -> bool:
        """Let it go on to just before a moment; False when it has nothing to do by then."""
        if not self.inbox and self.next_s >= until_s:
            self.until_s = max(self.until_s, until_s)
            return False
        self.until_s = until_s
        inbox, self.inbox = self.inbox, []
        self._pipe.send(Go(until_s, inbox))
        return True

    def come(self) -> Come:
        """Wait until it is there.  Raises WorldBroken as the worker did."""
        answer = self._receive()
        assert isinstance(answer, Come)
        self.next_s, self.submitted = answer.next_s, answer.submitted
        return answer

    def finish(self, end_s: float) -> Held:
        """Have it look at its end and return what it saw."""
        self._pipe.send(end_s)
        answer = self._receive()
        assert isinstance(answer, Held)
        return answer

    def _receive(self) -> object:
        answer = self._pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """End it, whatever it does."""
        self._pipe.close()
        self._process.terminate()
        self._process.join()


class _First:
    """The first process: network, coordinator, and who may go on until when."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        home: Path,
        shares: Sequence[tuple[str, ...]],
        progress: Progress | None,
    ) -> None:
        self.stage = ShareStage(scenario, seed, home / "first", ())
        self.world = self.stage.world
        self.exchange = Exchange(self.world.network)
        self.digest = hashlib.sha256()
        self.stage.log = lambda line: self.digest.update(line.encode() + b"\n")
        self._progress, self._shown_s = progress, 0.0
        self._trims: list[Trim] = []
        self.workers = [
            _Worker(share, scenario, seed, home / f"worker-{number}", number)
            for number, share in enumerate(shares)
        ]
        self.end_s = LOAD_BEGINS_S + scenario.load_s + scenario.settle_s

    def run(self) -> list[Held]:
        """Run to the end; returns what the workers saw."""
        with seeded_secrets(self.world.rng("secrets")):
            self.world.timeline = []
            self.stage.open()
            while (at_s := self._next_s()) < self.end_s:
                self._window(at_s)
            self.world.run(self.end_s)
            held = [worker.finish(self.end_s) for worker in self.workers]
            for one in held:
                self._trims += one.trims
            self._check_trims()
            return held

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.close()
        self.stage.close()

    def _next_s(self) -> float:
        parcels = (parcel.at_s for worker in self.workers for parcel in worker.inbox)
        return min(self.world.next_s(), *(worker.next_s for worker in self.workers), *parcels)

    def _window(self, at_s: float) -> None:
        """Let everybody go on from `at_s` for as long as nobody can be reached by another."""
        until_s = [self._may_go_until(worker, at_s) for worker in self.workers]
        going = [worker for worker, until in zip(self.workers, until_s, strict=True) if worker.go(until)]
        for worker in going:
            came = worker.come()
            self.exchange.take(came.parcels)
            self._trims += came.trims
        self.world.run(nextafter(min(until_s), 0.0))
        self._hand_out()
        self._check_trims()
        if self._progress is not None and self.world.now_s() >= self._shown_s + LOOK_EVERY_S:
            self._shown_s = self.world.now_s()
            self._progress(self._shown_s, self.end_s, sum(worker.submitted for worker in self.workers))

    def _may_go_until(self, worker: _Worker, at_s: float) -> float:
        """Nobody sends to nodes that are all cut off before the scenario's next moment."""
        until_s = max(at_s + LOOKAHEAD_S, worker.until_s)
        network = self.world.network
        if all(network.is_cut_off(client_id) for client_id in worker.client_ids):
            until_s = max(until_s, min(self._next_moment(), at_s + LONGEST_WINDOW_S))
        return min(until_s, nextafter(self.end_s, inf))

    def _next_moment(self) -> float:
        timeline = self.world.timeline
        assert timeline is not None  # it was begun with the run
        while timeline and timeline[0] <= self.world.now_s():
            heapq.heappop(timeline)
        return timeline[0] if timeline else inf

    def _hand_out(self) -> None:
        parcels, self.exchange.out = self.exchange.out, []
        for parcel in parcels:
            for worker in self.workers:
                if parcel.client_id in worker.client_ids:
                    worker.inbox.append(parcel)

    def _check_trims(self) -> None:
        """Law 2, of what workers have trimmed: the ledger is here, and never holds less than it did."""
        ledger = self.stage.cloud.ledger
        if ledger is None or self.stage.cloud.runtime is None:
            return  # it is looked at when the coordinator runs again
        trims, self._trims = self._trims, []
        for node, epoch, lane, upto in trims:
            held = ledger.mark(node, epoch, lane).upto
            if upto > held:
                what = f"{lane} was trimmed up to {upto}, the ledger holds {held}"
                self.stage.witness.violated(2, node, what)


def _sum(first: _First, held: Sequence[Held], wall_s: float) -> Report:
    """Add up what everybody saw."""
    own = report_of(first.stage, 0, "", wall_s)
    ended: dict[str, int] = {}
    for one in held:
        for state, count in one.report.ended.items():
            ended[state] = ended.get(state, 0) + count
    reports = [own, *(one.report for one in held)]
    figures = {name: max(r.figures.get(name, 0.0) for r in reports) for name in own.figures}
    hashes = "".join([first.digest.hexdigest(), *(one.report.log_hash for one in held)])
    return msgspec.structs.replace(
        own,
        submitted=sum(r.submitted for r in reports),
        done=sum(r.done for r in reports),
        ended=dict(sorted(ended.items())),
        lost=sum(r.lost for r in reports),
        done_twice=sum(r.done_twice for r in reports),
        violations=sum(r.violations for r in reports),
        broken=tuple(b for r in reports for b in r.broken),
        refusals=sum(r.refusals for r in reports),
        figures=figures,
        log_hash=hashlib.sha256(hashes.encode()).hexdigest(),
    )
