"""`skerry demo --round`: wiring of its story, view and verdict; nothing is decided here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from skerry.cli.demo import round_plan as plan
from skerry.cli.demo.brokers import RunningBroker
from skerry.cli.demo.fleet import Fleet
from skerry.cli.demo.reckoning import Answers, ask_agents, read_files
from skerry.cli.demo.round_cloud import Operator
from skerry.cli.demo.round_story import RoundStory
from skerry.cli.demo.round_verdict import Record, problems_of
from skerry.cli.demo.round_view import picture_of
from skerry.cli.demo.story import StoryError, Times, add_models
from skerry.cli.demo.submitting import SubmissionLog
from skerry.cli.demo.verdict import Verdict
from skerry.cli.demo.view import View
from skerry.cli.demo.watching import Watch
from skerry.cli.demo.workload import all_kinds
from skerry.identity import PrivateKey


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run of the demo found."""

    record: Record
    verdict: Verdict
    answers: Answers
    times: Times
    backlog_max: int
    problems: tuple[str, ...]  #: of the loop, beside those of verdict and answers


def check_environment() -> None:
    """Raise StoryError when there is no training environment."""
    from federation.interpreter import find_interpreter

    python, reason = find_interpreter("")
    if python is None:
        raise StoryError(f"rounds need Flower and torch: {reason}; `make demo ARGS=--round` sets it up")


def run_rounds(directory: Path, broker: RunningBroker, log: SubmissionLog, view: View) -> Outcome:
    """Run the story in a directory.  Raises SkerryError when it cannot be gone through."""
    witness = directory / "witness.txt"
    key = PrivateKey.generate()
    settings = plan.coordinator_settings(key.public_hex)
    with Fleet(directory, broker, plan.PLANS, witness, coordinator=settings) as fleet:
        fleet.start()
        watch = Watch({name: agent.socket_path for name, agent in fleet.agents.items()})
        watch.start()
        view.follow(watch, fleet.cut_off)
        operator = Operator(fleet.data_dir("coordinator") / "coordinator.toml")
        try:
            kinds = all_kinds(add_models(fleet), witness, deadline_s=plan.TASK_DEADLINE_S)
            story = RoundStory(
                fleet, operator, key, watch, view.say, lambda seen: view.show(picture_of(seen))
            )
            record, times = story.play(kinds, log)
            answers = ask_agents(fleet, log.entries, kinds)
        finally:
            operator.close()
            watch.stop()
    view.say("everything has stopped; comparing the four records task by task")
    return Outcome(
        record=record,
        verdict=read_files(fleet, log.entries, witness),
        answers=answers,
        times=times,
        backlog_max=watch.backlog_max,
        problems=problems_of(record, cut_off=plan.CUT_OFF, canary=plan.CANARY),
    )
