"""The page about the command line says what there is: every command, every exit status, every place."""

from __future__ import annotations

import re
from pathlib import Path

import click
import typer

from skerry.cli import app
from skerry.cli.exits import Exit
from skerry.endpoint import DATA_DIR, SOCKET_NAME

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()


def command_lines(group: click.Command, words: str) -> set[str]:
    if not isinstance(group, click.Group):
        return {words}
    context = click.Context(group)
    inner = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return {line for name, command in inner if command for line in command_lines(command, f"{words} {name}")}


def test_every_command_is_on_the_page_and_no_other() -> None:
    there = command_lines(typer.main.get_command(app), "skerry")

    assert set(re.findall(r"^\| `(skerry [a-z ]+)` \|", PAGE, re.MULTILINE)) == there


def test_every_exit_status_is_on_the_page_and_no_other() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == [*Exit]


def test_the_places_on_the_page_are_those_looked_at() -> None:
    assert f"{DATA_DIR}/{SOCKET_NAME}" in PAGE
    for name in ("SKERRY_SOCKET", "SKERRY_URL", "SKERRY_TOKEN", "SKERRY_COORDINATOR_URL", "XDG_RUNTIME_DIR"):
        assert name in PAGE
        source = Path(__file__).parents[2] / "skerry" / "endpoint.py"
        assert name in source.read_text()
