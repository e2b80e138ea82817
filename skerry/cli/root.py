"""The root of the command line: one line on standard error for a user's mistake, and the demo loaded late.

A command's heavy imports stand inside its function, so that `skerry --help` stays fast.
"""

from __future__ import annotations

import difflib
import importlib
import os
from typing import Any

import click
import typer
from typer.core import TyperGroup

from skerry.cli.exits import Exit, exit_of
from skerry.errors import SettingsError, SkerryError

#: Command → (module whose function of that name is the command, line for the root's help).
LATE = {
    "demo": (
        "skerry.cli.demo.app",
        "Run a fleet through an outage on this machine and print the reckoning.",
    )
}

#: How the root's help lists the commands: first what a newcomer needs.
ORDER = (
    *("demo", "agent", "coordinator", "enrol", "submit", "tasks", "dead", "recurring", "explain"),
    *("devices", "queue", "backup", "models", "policy", "round", "rollout"),
    *("twin", "report", "nodes", "version"),
)


class Group(TyperGroup):
    """A group that answers an unknown command with the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first word."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise click.UsageError(f"There is no command '{name}'.{hint}", ctx)


class Root(Group):
    """Turns SkerryError into a line and an exit code; mounts the late commands."""

    _is_in_help = False

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SkerryError as error:
            if os.environ.get("SKERRY_TRACEBACK"):
                raise
            click.echo(f"skerry: {error}", err=True)
            ctx.exit(exit_of(error))
        except UnicodeEncodeError as error:  # a word whose bytes are no text has come as lone surrogates
            click.echo(f"skerry: {error.object[:80]!r} is not text in UTF-8", err=True)
            ctx.exit(Exit.USAGE)
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the root's help without loading any late command."""
        self._is_in_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_in_help = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands in the order of ORDER, the late ones among them."""
        names = {*super().list_commands(ctx), *LATE}
        return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; a late one is loaded, unless only its line of help is wanted."""
        if cmd_name in LATE and cmd_name not in self.commands:
            if self._is_in_help:
                return click.Command(cmd_name, help=LATE[cmd_name][1])
            self.commands[cmd_name] = _load(cmd_name)
        return super().get_command(ctx, cmd_name)


def _load(name: str) -> click.Command:
    try:
        module = importlib.import_module(LATE[name][0])
    except ImportError as error:
        raise SettingsError(
            f"skerry {name} needs packages that are not installed ({error.name or error}): "
            "in the checkout, pip install -e '.[edge,rules,demo]'"
        ) from error
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    app.command(name)(vars(module)[name])
    return typer.main.get_command(app)
