"""The command line: `skerry …`. It may import any part of the project, but only when a command needs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from skerry.cli import (
    agent,
    backup,
    coordinator,
    dead,
    explain,
    node,
    policy,
    policy_push,
    policy_sign,
    policy_status,
    queue,
    recurring,
    report,
    rollout,
    submit,
    tasks,
    twin,
)
from skerry.cli import round as rounds
from skerry.cli.connect import JsonOption
from skerry.cli.root import Root

app = typer.Typer(
    cls=Root,
    name="skerry",
    help="Edge-cloud federated scheduling: task queues that go on through long outages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(value: bool) -> None:
    if value:
        version()
        raise typer.Exit


@app.callback()
def root(
    show: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Edge-cloud federated scheduling: task queues that go on through long outages.

    Exit status: 0 done; 1 the task failed; 2 wrong words, settings or document; 3 not found;
    4 no service answers; 5 refused by the service; 6 not ended in the given time.
    """


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Print the versions of Skerry, Python and this machine.

    Example: skerry version --json
    """
    import platform

    from skerry import __version__
    from skerry.cli.output import print_json

    if as_json:
        found = {"skerry": __version__, "python": platform.python_version(), "machine": platform.machine()}
        print_json(found)
    else:
        typer.echo(f"skerry {__version__} (Python {platform.python_version()}, {platform.machine()})")


app.add_typer(agent.app, name="agent")
app.add_typer(coordinator.app, name="coordinator")
app.command("enrol")(coordinator.enrol)
app.command("nodes")(coordinator.nodes)
app.command("submit")(submit.submit)
app.add_typer(tasks.app, name="tasks")
app.add_typer(dead.app, name="dead")
app.add_typer(recurring.app, name="recurring")
app.command("explain")(explain.explain)
app.command("devices")(node.devices)
app.add_typer(queue.app, name="queue")
app.add_typer(backup.app, name="backup")
app.add_typer(node.models, name="models")
policy.app.command("status")(policy_status.status)
policy.app.command("push")(policy_push.push)
policy.app.command("sign")(policy_sign.sign)
app.add_typer(policy.app, name="policy")
app.add_typer(rounds.app, name="round")
app.add_typer(rollout.app, name="rollout")
app.command("report")(report.report)
app.add_typer(twin.app, name="twin")


def main() -> None:
    """Run the command line; the process ends with the command's exit code."""
    sys.exit(app())
