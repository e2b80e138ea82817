"""`skerry demo`: wiring of the story, the view and the reckoning; nothing is decided here."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from skerry.cli.demo.brokers import Prefer, RunningBroker, start_broker
from skerry.cli.demo.fleet import Fleet
from skerry.cli.demo.reckoning import Answers, ask_agents, read_files
from skerry.cli.demo.story import PLANS, Times, add_models, play
from skerry.cli.demo.submitting import SubmissionLog
from skerry.cli.demo.verdict import Verdict
from skerry.cli.demo.view import View, print_table
from skerry.cli.demo.watching import Watch
from skerry.cli.demo.workload import all_kinds
from skerry.errors import SettingsError

_BROKERS = {
    "mosquitto": "mosquitto, started for this run on loopback",
    "embedded": "embedded (rumqttd), since mosquitto is not installed or was not wanted; for demos only",
}


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    rounds: Annotated[
        bool, typer.Option("--round", help="Learn: federated rounds, a rollout, three bad policies.")
    ] = False,
    broker: Annotated[Prefer, typer.Option(help="auto takes mosquitto when it is installed.")] = "auto",
    keep: Annotated[Path | None, typer.Option(help="Keep all files in this new directory.")] = None,
) -> None:
    """Run a fleet through an outage on this machine and print the reckoning.

    A broker, a coordinator and four agents in two regions, as processes of their own on loopback. Some boards
    are emulated; the inferences are real. Exit status 0 means that nothing was lost or done twice and that
    the submitters' log, the witness file, the ledger and the agents' databases agree task by task. With
    --round the fleet trains its policy meanwhile and takes it up; `make demo ARGS=--round` sets up what
    training needs.

    Example: skerry demo --broker embedded --keep /tmp/demo
    """
    began = time.monotonic()
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise SettingsError(f"{keep} is there already and not empty: --keep wants a directory of its own")
    directory = keep or Path(tempfile.mkdtemp(prefix="skerry-"))
    try:
        ran = _run(directory, broker, with_rounds=rounds)
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    ran.document["wall_s"] = round(time.monotonic() - began, 1)
    if as_json:
        print(json.dumps(ran.document, indent=2))
    else:
        _print(ran, with_rounds=rounds)
    for problem in ran.problems[:20]:
        print(f"skerry demo: {problem}", file=sys.stderr)
    raise typer.Exit(0 if ran.document["agreed"] else 1)


class _Ran(msgspec.Struct, kw_only=True):
    document: dict[str, Any]
    answers: Answers
    problems: list[str]


def _print(ran: _Ran, *, with_rounds: bool) -> None:
    print_table(sys.stdout, ran.document, ran.answers.where, ran.answers.explained)
    if with_rounds:
        from skerry.cli.demo.round_view import print_loop

        print_loop(sys.stdout, ran.document)


def _run(directory: Path, broker: Prefer, *, with_rounds: bool) -> _Ran:
    if with_rounds:
        from skerry.cli.demo.round_app import check_environment
        from skerry.cli.demo.round_plan import PLANS as plans

        check_environment()
    else:
        plans = PLANS
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = SubmissionLog(directory / "submitted.txt")
    running = start_broker(directory / "broker", prefer=broker)
    try:
        with View(sys.stderr, {plan.name: plan for plan in plans}) as view:
            view.say(f"broker: {_BROKERS[running.kind]}")
            go = _with_rounds if with_rounds else _plain
            return go(directory, running, log, view)
    finally:
        running.stop()
        log.close()


def _plain(directory: Path, running: RunningBroker, log: SubmissionLog, view: View) -> _Ran:
    witness = directory / "witness.txt"
    with Fleet(directory, running, PLANS, witness) as fleet:
        fleet.start()
        watch = Watch({name: agent.socket_path for name, agent in fleet.agents.items()})
        watch.start()
        view.follow(watch, fleet.cut_off)
        try:
            kinds = all_kinds(add_models(fleet), witness)
            times = play(fleet, kinds, log, watch, view.say)
            answers = ask_agents(fleet, log.entries, kinds)
        finally:
            watch.stop()
    view.say("everything has stopped; comparing the four records task by task")
    verdict = read_files(fleet, log.entries, witness)
    document = _document(verdict, answers, times, watch.backlog_max, running.kind)
    return _Ran(document=document, answers=answers, problems=[*verdict.problems, *answers.wrong])


def _with_rounds(directory: Path, running: RunningBroker, log: SubmissionLog, view: View) -> _Ran:
    from skerry.cli.demo.round_app import run_rounds
    from skerry.cli.demo.round_report import report_of

    found = run_rounds(directory, running, log, view)
    verdict, answers = found.verdict, found.answers
    document = _document(verdict, answers, found.times, found.backlog_max, running.kind)
    document |= report_of(found.record)
    document["agreed"] = document["agreed"] and not found.problems
    problems = [*found.problems, *verdict.problems, *answers.wrong]
    return _Ran(document=document, answers=answers, problems=problems)


def _document(
    verdict: Verdict, answers: Answers, times: Times, backlog_max: int, broker: str
) -> dict[str, Any]:
    return {
        "submitted": verdict.submitted,
        "done": verdict.done,
        "lost": verdict.lost,
        "done_twice": verdict.done_twice,
        "attempts_cut_short": verdict.attempts_cut_short,
        "backlog_max": backlog_max,
        "outage_s": round(times.outage_s, 2),
        "drain_s": round(times.drain_s, 2),
        "placement_ms": _percentiles(answers.placement_ms),
        "placed_across": answers.placed_across,
        "by_device": _by_device(answers.where),
        "broker": broker,
        "agreed": verdict.is_clean and not answers.wrong,
    }


def _percentiles(values: tuple[float, ...]) -> dict[str, float]:
    if len(values) < 2:
        return {"p50": 0.0, "p99": 0.0, "count": len(values)}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2), "count": len(values)}


def _by_device(where: dict[str, dict[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for counts in where.values():
        for place, count in counts.items():
            totals[place] = totals.get(place, 0) + count
    return dict(sorted(totals.items()))
