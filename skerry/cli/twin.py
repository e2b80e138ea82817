"""`skerry twin`: rehearse outages on a virtual clock with the real agent and coordinator."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skerry.cli.connect import QueuePlace, with_queue
from skerry.cli.exits import Exit
from skerry.cli.output import duration, print_fields, print_json, print_table
from skerry.cli.root import Group
from skerry.errors import SpecError

if TYPE_CHECKING:
    from twin.faithful.exhaustive_values import Checked
    from twin.faithful.fuzz import Find
    from twin.faithful.run import Progress, Report
    from twin.scenario.language import Scenario

#: Between two lines on how far a run is, where no terminal shows it in place, seconds.
LINE_EVERY_S = 30.0
#: From here on a run takes two processes unless it is told: one would take a quarter of an hour and more.
LONG_RUN_TASKS = 1_000_000

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Rehearse outages on a virtual clock, with the real agent and coordinator.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Seed = Annotated[int, typer.Option(help="Decides every draw: the same seed, the same run.")]


@app.callback()
def stop_in_order() -> None:
    """Take SIGTERM for Ctrl-C: what a run has put on the disk goes with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@app.command("list")
def list_scenarios(*, json: Json = False) -> None:
    """List the scenarios that ship.

    Example: skerry twin list
    """
    from twin.scenario.library import find, names

    found = [find(name) for name in names()]
    if json:
        print_json([{"name": one.name, "about": one.about, "shows": one.shows} for one in found])
        return
    print_table(("scenario", "what happens"), [(one.name, one.about) for one in found], empty="none")


@app.command()
def run(
    scenario: Annotated[str, typer.Argument(help="One that ships (`skerry twin list`), or a TOML file.")],
    *,
    seed: Seed = 1,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Share the nodes out over so many processes; seed and jobs decide.",
            show_default="1; 2 for a long run, where it can be shared",
        ),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Write the event log here.")] = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="On the array engine: its load, without faults and laws.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a scenario and check the laws; exits with 1 when one is broken.

    Example: skerry twin run outage-2h
    """
    from twin.faithful.run import run_scenario
    from twin.scenario.library import find

    found, progress = find(scenario), _progress()
    if fleet:
        _run_on_fleet(found, seed, as_json=json)
        return
    with ExitStack() as stack:
        write = None
        if log is not None:
            file = stack.enter_context(log.open("w", encoding="utf-8"))
            write = lambda line: print(line, file=file)  # noqa: E731 # one line of a file
        jobs = jobs or (1 if log is not None else _jobs_for(found))
        if jobs == 1:
            report = run_scenario(found, seed, log=write, progress=progress)
        elif log is not None:
            raise typer.BadParameter("an event log in one order takes one process", param_hint="--jobs")
        else:
            from twin.faithful.shards import run_in_shards

            report = run_in_shards(found, seed, jobs, progress=progress)
    if json:
        print_json(report)
    else:
        _show(report)
    if report.violations:
        raise typer.Exit(Exit.FAILED)


def _jobs_for(scenario: Scenario) -> int:
    """Two for a long run; never what this machine has, for a seed is to be the same run on all of them."""
    from twin.faithful.shards import check_can_be_shared

    nodes = sum(group.count for group in scenario.group)
    tasks_at_most = nodes * scenario.load_s * sum(load.rate_per_s for load in scenario.load)
    if tasks_at_most < LONG_RUN_TASKS:
        return 1
    try:
        check_can_be_shared(scenario)
    except SpecError:
        return 1
    return 2


@app.command()
def fuzz(
    *,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to look.")] = 60.0,
    seed: Seed = 1,
    most: Annotated[int | None, typer.Option(min=1, help="Scenarios to run at most.")] = None,
    shrink: Annotated[bool, typer.Option(help="Make a find as small as it can be.")] = True,
    json: Json = False,
) -> None:
    """Look for a scenario that breaks a law; exits with 1 when one is found, made as small as it can be.

    Example: skerry twin fuzz --seconds 600
    """
    from twin.faithful.fuzz import fuzz as search

    logging.getLogger().addHandler(logging.NullHandler())  # what simulated nodes complain of is no news here
    show = _say_nothing if json else _count()
    found = search(seconds=seconds, seed=seed, most=most, shrinks=shrink, progress=show)
    if json:
        print_json(found)
    else:
        typer.echo(f"{found.scenarios} scenarios, {found.tasks} tasks in {duration(found.seconds)}")
        if found.find is not None:
            _show_find(found.find)
    if found.find is not None:
        raise typer.Exit(Exit.FAILED)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="REPORT", help="Made by `skerry report`.")],
    *,
    json: Json = False,
) -> None:
    """Run an agent's report again and compare state hash by state hash; exits with 1 where they part.

    Example: skerry twin replay edge-7.report
    """
    from twin.faithful.replay import load_report, replay_report

    replayed = replay_report(load_report(file))
    if json:
        print_json(replayed)
    else:
        parts = replayed.divergence
        where = (
            "" if parts is None else f"{parts.segment}, event {parts.number} ({parts.event}): {parts.what}"
        )
        print_fields(
            {
                "node": f"{replayed.node}, version {replayed.version}",
                "events": f"{replayed.events} in {replayed.segments} segments",
                "state hashes": f"{replayed.fingerprints} compared",
                **({"breaks with": replayed.broke} if replayed.broke else {}),
                "parts at": where or "nowhere: every answer and every state is the same",
            }
        )
    if replayed.divergence is not None:
        raise typer.Exit(Exit.FAILED)


@app.command()
def check(
    *,
    tasks: Annotated[str, typer.Option(help="What the two tasks are: across, mixed, once, or all.")] = "all",
    depth: Annotated[int, typer.Option(min=1, help="Steps beyond each state of the undisturbed run.")] = 3,
    faults: Annotated[int, typer.Option(min=0, help="Crashes and repetitions on one path, at most.")] = 1,
    waits: Annotated[int, typer.Option(min=0, help="How often time passes on one path, at most.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="Of real time for each kind of tasks.")] = 3600.0,
    json: Json = False,
) -> None:
    """Check every interleaving of two agents, two tasks and a coordinator; exits with 1 for a broken law.

    Crashes, losses, repetitions and every order of messages, on the real cores, up to a depth.

    Example: skerry twin check --depth 4
    """
    from twin.faithful.exhaustive_run import check_tasks
    from twin.faithful.exhaustive_values import Bounds

    bounds = Bounds(depth=depth, faults=faults, waits=waits, seconds=seconds)
    found = check_tasks(tasks, bounds, progress=None if json else _depths())
    if json:
        print_json(found)
    else:
        for checked in found:
            _show_check(checked)
    if any(checked.broken for checked in found):
        raise typer.Exit(Exit.FAILED)


def _depths() -> Callable[[int, int], None] | None:
    if not sys.stderr.isatty():
        return None
    return lambda depth, states: print(f"depth {depth}: {states} states", file=sys.stderr, flush=True)


def _show_check(checked: Checked) -> None:
    print_fields(
        {
            "tasks": checked.tasks,
            "depth": f"{checked.depth} steps beyond each of {checked.stations} states",
            "bounds": f"{checked.bounds.faults} faults and {checked.bounds.waits} waits on one path",
            "states": f"{checked.states}, by {checked.transitions} transitions",
            "on the real cores": f"{checked.steps_run} steps, {checked.part_states} states of single parts",
            "followed to the end": f"{checked.fair} states",
            "time": duration(checked.wall_s),
            "broken": checked.broken or "nothing",
        }
    )
    for number, step in enumerate(checked.trace, start=1):
        typer.echo(f"{number:4}  {step}")


@app.command()
@with_queue
def rehearse(
    place: QueuePlace,
    *,
    hours: Annotated[float, typer.Option(min=0.01, help="How long the outage lasts.")] = 72.0,
    rate: Annotated[
        float | None, typer.Option(min=0.0001, help="Tasks a second, instead of what the queue shows.")
    ] = None,
    restart_after: Annotated[
        list[float] | None,
        typer.Option(help="Hours into the outage at which the agent restarts; may be repeated."),
    ] = None,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Rehearse an outage of this device, with its settings, rates and run times; nothing of it is touched.

    Exits with 1 when a law is broken, or a task would be refused.

    Example: skerry twin rehearse --hours 72
    """
    from twin.faithful.rehearse import Outage, in_words
    from twin.faithful.rehearse import rehearse as play
    from twin.faithful.rehearse_device import settings_at, take_device

    device = take_device(settings_at(place.stopped_directory(), place.config), rate_per_s=rate)
    outage = Outage(hours=hours, restart_after_h=tuple(restart_after or ()), seed=seed)
    came = play(device, outage, progress=_progress())
    if json:
        print_json(came)
    else:
        for sentence in in_words(came):
            typer.echo(sentence)
        typer.echo(f"Rehearsed in {duration(came.wall_s)}; devices and run times were emulated.")
    if came.violations or came.refused_after_h is not None:
        raise typer.Exit(Exit.FAILED)


def _run_on_fleet(scenario: Scenario, seed: int, *, as_json: bool) -> None:
    from policy.baselines.registry import DEFAULT_SCHEDULER, make_scheduler
    from twin.fleet.of_scenario import run_on_fleet

    found = run_on_fleet(scenario, seed, make_scheduler(DEFAULT_SCHEDULER))  # type: ignore[arg-type]
    if as_json:
        print_json(found)
        return
    rows = [
        (one.node, one.tasks, one.per_s, one.mean_s, one.longest_s, one.busy, one.offloaded) for one in found
    ]
    names = ("node", "tasks", "a second", "mean s", "longest s", "busy", "offloaded")
    print_table(names, [tuple(map(str, row)) for row in rows], empty="nothing arrives")


def _progress() -> Progress:
    """Show how far a run is: in place on a terminal, elsewhere by a line now and then."""
    every_s, form = (1.0, "\r\033[K{}") if sys.stderr.isatty() else (LINE_EVERY_S, "{}\n")
    begun = shown = time.monotonic()

    def show(now_s: float, end_s: float, tasks: int) -> None:
        nonlocal shown
        moment = time.monotonic()
        if moment - shown < every_s:
            return
        shown = moment
        share = min(1.0, now_s / end_s)
        left = duration((moment - begun) * (1.0 / share - 1.0))
        line = f"{share:4.0%}  {duration(now_s)} of {duration(end_s)}, {tasks} tasks, about {left} to go"
        print(form.format(line), end="", file=sys.stderr, flush=True)

    return show


def _say_nothing(done: int, spent_s: float) -> None:
    """Be quiet."""


def _count() -> Callable[[int, float], None]:
    if not sys.stderr.isatty():
        return _say_nothing

    def show(done: int, spent_s: float) -> None:
        print(f"\r{done} scenarios in {duration(spent_s)}", end="", file=sys.stderr, flush=True)

    return show


def _show_find(find: Find) -> None:
    typer.echo(f"# scenario {find.number} of seed {find.seed}; keep what follows in a file and run it:")
    typer.echo(f"# skerry twin run FILE --seed {find.seed}\n")
    typer.echo(find.scenario)
    for broken in find.broken[:10]:
        where = f"{broken.node} {broken.task_id}".strip()
        typer.echo(f"# law {broken.law} broken at {broken.at_s:.3f} s, {where}: {broken.what}")
    for line in (*find.story, *find.log):
        typer.echo(f"#   {line}")


def _show(report: Report) -> None:
    print_fields(
        {
            "scenario": f"{report.scenario}, seed {report.seed}",
            "agents": report.agents,
            "submitted": report.submitted,
            "done": report.done,
            "other ends": ", ".join(f"{n} {what}" for what, n in report.ended.items() if what != "done"),
            "lost": report.lost,
            "done twice": report.done_twice,
            "violations": report.violations,
            "time": f"{duration(report.virtual_s)} rehearsed in {duration(report.wall_s)}",
            "event log": report.log_hash[:16],
        }
    )
    for broken in report.broken[:10]:
        where = f"{broken.node} {broken.task_id}".strip()
        typer.echo(f"law {broken.law} broken at {broken.at_s:.3f} s, {where}: {broken.what}", err=True)
