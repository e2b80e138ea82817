"""What happens in the demo, in order: work, outage, kill, the link's return, the drain. Draws nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from devices.models import locate_builtin_models
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.cli.demo.submitting import SubmissionLog, Submitter
from skerry.cli.demo.watching import Watch
from skerry.cli.demo.workload import Kind
from skerry.client import Client
from skerry.errors import SkerryError

PLANS = (
    NodePlan(name="quay-1", region="north"),
    NodePlan(name="quay-2", region="north", boards=("hailo-8l",), is_cuttable=True),
    NodePlan(name="reef-1", region="south", boards=("coral-usb",)),
    NodePlan(name="reef-2", region="south", is_cuttable=True),
)
CUT_OFF = ("quay-2", "reef-2")
KILLED = "reef-1"
#: One node's share, repeated: 8 inferences and 2 commands; `far` ones can only run in the other region.
_PATTERN = (
    "pitch",
    "file-type",
    "pitch",
    "count",
    "pitch",
    "far-board",
    "file-type",
    "pitch",
    "far",
    "pitch",
)
_FAR = {"north": ("pitch-on-tpu", "count-in-south"), "south": ("pitch-on-npu", "count-in-north")}
_TASKS_A_NODE = 100
_PAUSE_S = 0.2
_DRAIN_TIMEOUT_S = 180.0
_POLL_S = 0.05

Say = Callable[[str], None]


class StoryError(SkerryError):
    """The demo's fleet did not come through."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long the outage and the drain after it took."""

    outage_s: float
    drain_s: float


def share_of(plan: NodePlan, kinds: dict[str, Kind]) -> list[Kind]:
    """Return the tasks that one node is asked to do, in order."""
    board, command = _FAR[plan.region]
    names = {"far-board": board, "far": command}
    return [kinds[names.get(n, n)] for n in _PATTERN * (_TASKS_A_NODE // len(_PATTERN))]


def play(fleet: Fleet, kinds: dict[str, Kind], log: SubmissionLog, watch: Watch, say: Say) -> Times:
    """Run the whole story on a started fleet.  Raises StoryError when the backlog does not drain in time."""
    submitters = [
        Submitter(plan.name, fleet.agents[plan.name].socket_path, share_of(plan, kinds), log, _PAUSE_S)
        for plan in fleet.plans.values()
    ]
    for submitter in submitters:
        submitter.start()
    try:
        outage_s = _outage(fleet, log, submitters, say)
        healed = time.monotonic()
        _wait(lambda: not any(s.is_alive() for s in submitters), submitters, "the submitters to finish")
        _wait(lambda: watch.is_drained, submitters, "the backlog to drain")
    finally:
        for submitter in submitters:
            submitter.stop()
    drain_s = time.monotonic() - healed
    say(f"the backlog is gone {drain_s:.1f} s after the link came back")
    return Times(outage_s=outage_s, drain_s=drain_s)


def add_models(fleet: Fleet) -> dict[str, str]:
    """Give both models to every agent, as `skerry models add` does; return name → content hash."""
    found = locate_builtin_models()
    if missing := {"swift-f0", "magika"} - found.keys():
        raise StoryError(f"the demo's models are missing ({', '.join(missing)}): pip install -e '.[demo]'")
    hashes: dict[str, str] = {}
    for agent in fleet.agents.values():
        with Client(socket=agent.socket_path) as client:
            hashes = {name: client.add_model(path) for name, path in found.items()}
    return hashes


def _outage(fleet: Fleet, log: SubmissionLog, submitters: list[Submitter], say: Say) -> float:
    total = _TASKS_A_NODE * len(fleet.plans)

    def until(part: float) -> None:
        _wait(
            lambda: len(log.entries) >= part * total, submitters, f"{part:.0%} of the tasks to be submitted"
        )

    say("everything is connected; tasks are coming in at all four nodes")
    until(0.2)
    for name in CUT_OFF:
        fleet.cut(name)
    cut_at = time.monotonic()
    say(f"{' and '.join(CUT_OFF)} are cut off; they go on taking and finishing local work")
    until(0.5)
    _wait(lambda: _is_working(fleet, KILLED), submitters, f"{KILLED} to be in mid-work")
    fleet.agents[KILLED].kill()
    say(f"{KILLED} was killed (SIGKILL) in mid-work")
    until(0.6)
    fleet.agents[KILLED].start()
    say(f"{KILLED} is back, and takes up what it had begun")
    until(0.9)
    for name in CUT_OFF:
        fleet.heal(name)
    outage_s = time.monotonic() - cut_at
    say(f"the link is back after {outage_s:.1f} s")
    return outage_s


def _is_working(fleet: Fleet, name: str) -> bool:
    with Client(socket=fleet.agents[name].socket_path) as client:
        return any(load.running for load in client.node().load.values())


def _wait(condition: Callable[[], bool], submitters: list[Submitter], what: str) -> None:
    deadline = time.monotonic() + _DRAIN_TIMEOUT_S
    while not condition():
        for submitter in submitters:
            if submitter.error is not None:
                raise StoryError(f"{submitter.name} failed: {submitter.error}") from submitter.error
        if time.monotonic() > deadline:
            raise StoryError(f"waited {_DRAIN_TIMEOUT_S:.0f} s for {what}")
        time.sleep(_POLL_S)  # other processes work meanwhile; there is nothing to wait on
