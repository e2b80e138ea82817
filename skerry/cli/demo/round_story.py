"""What happens in the round demo, in order: rounds, cut, kill, rollout, three bad policies. Draws nothing.

Owns the order and what is waited for. What it saw goes into a Record; whether that is as it should be is
decided in round_verdict, from the documents alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from skerry.cli.demo import round_plan as plan
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.cli.demo.round_cloud import Operator
from skerry.cli.demo.round_policies import signed_shipped, write_not_a_number, write_unsigned, write_worse
from skerry.cli.demo.round_verdict import Attempt, Record
from skerry.cli.demo.story import Say, StoryError, Times, share_of
from skerry.cli.demo.submitting import SubmissionLog, Submitter
from skerry.cli.demo.watching import Watch
from skerry.cli.demo.workload import Kind
from skerry.client import Client
from skerry.documents import PolicyStatus
from skerry.identity import PrivateKey
from skerry.policy_documents import PolicyVersionView, RolloutView
from skerry.round_documents import RoundView

_SHARES = 40  #: more work than the story can last; it is ended, not finished
_WAIT_S = 240.0
_POLL_S = 0.2

T = TypeVar("T")
Show = Callable[[RoundView | RolloutView], None]


class RoundStory:
    """One run of the story on a started fleet."""

    def __init__(
        self, fleet: Fleet, operator: Operator, key: PrivateKey, watch: Watch, say: Say, show: Show
    ) -> None:
        """key: the operator's, which the coordinator trusts.  show: is given what is being watched."""
        self._fleet, self._operator, self._key = fleet, operator, key
        self._watch, self._say, self._show = watch, say, show
        self._submitters: list[Submitter] = []
        self._directory = fleet.directory / "policies"
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._cut_at = 0.0
        self._outage_s = 0.0

    def play(self, kinds: dict[str, Kind], log: SubmissionLog) -> tuple[Record, Times]:
        """Run it.  Raises StoryError when something does not come about in time."""
        self._submit(kinds, log)
        try:
            base = self._base()
            run, before, after = self._rounds(base)
            version = self._judged(run)
            rollout = self._roll_out(version)
            bad = self._bad_policies()
            nodes = self._statuses(version.policy if rollout.state == "done" else "")
        finally:
            for submitter in self._submitters:
                submitter.stop()
        drain_s = self._drain()
        record = Record(
            base=base,
            run=run,
            before_kill=before,
            after_kill=after,
            version=version,
            rollout=rollout,
            attempts=bad,
            nodes=nodes,
        )
        return record, Times(outage_s=self._outage_s, drain_s=drain_s)

    # --- work -----------------------------------------------------------------------------------------

    def _submit(self, kinds: dict[str, Kind], log: SubmissionLog) -> None:
        self._submitters = [
            Submitter(
                name,
                self._fleet.agents[name].socket_path,
                self._share(node, kinds),
                log,
                plan.PAUSE_S[name],
            )
            for name, node in self._fleet.plans.items()
        ]
        for submitter in self._submitters:
            submitter.start()
        self._say("everything is connected; tasks are coming in at all four nodes, and go on to the end")

    def _share(self, node: NodePlan, kinds: dict[str, Kind]) -> list[Kind]:
        """Return a node's work; the canary's board loads its models first: a trial is no place for that."""
        first = [kinds[name] for name in plan.WARM_UP] if node.name == plan.CANARY else []
        return [*first, *share_of(node, kinds) * _SHARES]

    def _drain(self) -> float:
        began = time.monotonic()
        self._until(lambda: not any(s.is_alive() for s in self._submitters), "the submitters to stop")
        self._watch.sample()
        self._until(lambda: self._watch.is_drained, "the backlog to drain")
        return time.monotonic() - began

    # --- rounds ---------------------------------------------------------------------------------------

    def _base(self) -> PolicyVersionView | None:
        file = signed_shipped(self._directory, self._key)
        if file is None:
            self._say("no policy ships; the run begins with an actor that does as min-increase")
            return None
        if refused := self._operator.push(file):
            raise StoryError(f"the shipped policy is refused: {refused}")
        version = self._until(lambda: self._operator.version_in(file), "the registry")
        self._say(f"the shipped policy {version.version} is {version.state}: {version.reason}")
        return version

    def _rounds(self, base: PolicyVersionView | None) -> tuple[RoundView, RoundView, RoundView]:
        """Return the run as it ended, as it was before the coordinator was killed, and after that."""
        samples = self._watch.samples
        self._until(
            lambda: all(self._watch.samples[node].done >= plan.ARRIVALS for node in samples),
            f"{plan.ARRIVALS} tasks done at every node",
        )
        options = (*plan.RUN_OPTIONS, *(("--base", base.version) if base else ()))
        name = self._operator.start_run(*options)
        self._say(f"run {name}: {plan.ROUNDS} rounds of PPO, each node on what it recorded of its own work")
        self._until(lambda: self._seen(name).version >= 1, "the first version")
        self._say("version 1 is merged; round 2")
        self._cut(name)
        self._until(lambda: self._seen(name).version >= 2, "the second version")
        self._heal()
        late = self._until(lambda: _with_late(self._seen(name)), f"{plan.CUT_OFF}'s late reply")
        self._fleet.coordinator.kill()
        self._say(f"{plan.CUT_OFF}'s reply came late; the coordinator was killed (SIGKILL) in mid-round 3")
        self._fleet.coordinator.start()
        after = self._until(lambda: self._operator.run(name), "the coordinator")
        self._say(f"it is back, and goes on with version {after.version}")
        run = self._until(lambda: _made_policy(self._seen(name)), "the run's policy")
        return run, late, after

    def _cut(self, name: str) -> None:
        work = self._fleet.data_dir(plan.CUT_OFF) / "training"
        self._until(lambda: _asked(self._seen(name), version=1), "round 2's instruction")
        self._until(lambda: any(work.glob("*")), f"{plan.CUT_OFF} to train")
        self._fleet.cut(plan.CUT_OFF)
        self._cut_at = time.monotonic()
        self._say(
            f"{plan.CUT_OFF} is cut off while it trains; the round waits for it until its deadline "
            f"({plan.DEADLINE_S:g} s), then closes without it"
        )
        self._until(lambda: not any(work.glob("*")), f"{plan.CUT_OFF} to finish its training")

    def _heal(self) -> None:
        self._say(f"version 2 closed without {plan.CUT_OFF}; round 3, and its link comes back")
        self._fleet.heal(plan.CUT_OFF)
        self._outage_s = time.monotonic() - self._cut_at

    def _seen(self, name: str) -> RoundView:
        view = self._until(lambda: self._operator.run(name), "the coordinator")
        self._show(view)
        if view.state in ("failed", "cancelled"):
            raise StoryError(f"the run {name} {view.state}: {view.reason}")
        return view

    # --- rollout --------------------------------------------------------------------------------------

    def _judged(self, run: RoundView) -> PolicyVersionView:
        if run.policy.state != "offered":
            raise StoryError(f"the run made no policy: {run.policy.reason}")

        def judged() -> PolicyVersionView | None:
            found = self._operator.version(run.policy.policy)
            return found if found is not None and found.state != "vetting" else None

        version = self._until(judged, "the registry to evaluate the run's policy")
        self._say(f"the run's policy {version.version} is {version.state}: {version.reason}")
        return version

    def _roll_out(self, version: PolicyVersionView) -> RolloutView:
        options = [*plan.gate_options(plan.GATE), "--canary", plan.CANARY]
        if version.state == "unproven":
            self._say("it was not shown to beat the fallback: its rollout is started with --unproven")
            options.append("--unproven")
        self._say(f"{plan.CANARY} tries it first, under a gate that is short for this demo")
        name = self._operator.start_rollout(version.policy, *options)
        rollout = self._followed(name)
        self._say(f"rollout {rollout.state}: {rollout.reason}")
        return rollout

    def _followed(self, name: str) -> RolloutView:
        def ended() -> RolloutView | None:
            found = self._operator.rollout(name)
            if found is not None:
                self._show(found)
            return found if found is not None and found.has_ended else None

        return self._until(ended, "the rollout to end")

    def _bad_policies(self) -> tuple[Attempt, ...]:
        return (
            self._refused("not a number", write_not_a_number(self._directory, self._key)),
            self._refused("unsigned", write_unsigned(self._directory)),
            self._worse(write_worse(self._directory, self._key)),
        )

    def _refused(self, name: str, file: Path) -> Attempt:
        reason = self._operator.push(file)
        self._say(f"a policy that is {name}: {reason or 'taken'}")
        return Attempt(name=name, is_refused=bool(reason), reason=reason)

    def _worse(self, file: Path) -> Attempt:
        name = "worse"
        if refused := self._operator.push(file):
            return Attempt(name=name, is_refused=True, reason=refused)
        version = self._until(lambda: self._operator.version_in(file), "the registry")
        self._say(f"a policy that prefers slow devices is {version.state}: {version.reason}")
        self._say(f"it is started all the same, with --unproven, on {plan.CANARY}, to see what its tasks say")
        self._say(f"its gate does not ask {plan.SWITCHED_OFF}: that mostly ends it before it decides")
        options = (*plan.gate_options(plan.WATCHFUL_GATE), "--canary", plan.CANARY, "--unproven")
        rollout = self._followed(self._operator.start_rollout(version.policy, *options))
        self._say(f"rollout {rollout.state}: {rollout.reason}")
        return Attempt(
            name=name,
            is_refused=False,
            reason=rollout.reason,
            judged=version,
            rollout=rollout,
            switched_off=plan.SWITCHED_OFF,
        )

    def _statuses(self, policy: str) -> dict[str, PolicyStatus]:
        """Wait until every node runs the policy (again), or the fallback; return what each says of it."""

        def all_run() -> dict[str, PolicyStatus] | None:
            found = {name: _status_of(agent.socket_path) for name, agent in self._fleet.agents.items()}
            is_so = all(one.policy == policy and one.is_loaded == bool(policy) for one in found.values())
            return found if is_so else None

        return self._until(all_run, "every node to run what the fleet runs")

    # --- waiting --------------------------------------------------------------------------------------

    def _until(self, what: Callable[[], T | None], words: str) -> T:
        """Ask again and again until the answer is truthy.  Raises StoryError."""
        deadline = time.monotonic() + _WAIT_S
        while not (found := what()):
            for submitter in self._submitters:
                if submitter.error is not None:
                    raise StoryError(f"{submitter.name} failed: {submitter.error}") from submitter.error
            if time.monotonic() > deadline:
                raise StoryError(f"waited {_WAIT_S:.0f} s for {words}")
            time.sleep(_POLL_S)  # other processes work meanwhile; there is nothing to wait on
        return found


def _asked(view: RoundView, *, version: int) -> bool:
    return any(one.node == plan.CUT_OFF and one.version == version for one in view.participants)


def _with_late(view: RoundView) -> RoundView | None:
    late: Sequence[object] = [
        one for one in view.participants if one.node == plan.CUT_OFF and one.version == 1 and one.is_late
    ]
    if late:
        return view
    if view.has_ended:
        raise StoryError(f"the run ended without {plan.CUT_OFF}'s late reply")
    return None


def _made_policy(view: RoundView) -> RoundView | None:
    return view if view.has_ended and view.policy.state in ("offered", "failed") else None


def _status_of(socket: Path) -> PolicyStatus:
    with Client(socket=socket) as client:
        return client.policy()
