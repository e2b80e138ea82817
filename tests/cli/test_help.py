"""Every command has help with an example that it would accept; nothing heavy is imported for help."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer

from skerry.cli import app
from skerry.cli.root import LATE, ORDER

ROOT = typer.main.get_command(app)
HEAVY = ("aiohttp", "apsw", "numpy", "onnxruntime", "paho", "prometheus_client", "cryptography", "psutil")


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that lead to it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


assert isinstance(ROOT, click.Group)
COMMANDS = dict(commands(ROOT))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_what_it_does(skerry: Any, words: tuple[str, ...]) -> None:
    result = skerry(*words, "--help")

    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_the_command_takes(words: tuple[str, ...]) -> None:
    examples = re.findall(
        r"(?:Example:|^)\s*skerry ((?:.|\n(?!\n))*)", COMMANDS[words].help or "", re.MULTILINE
    )
    assert examples, "no example"

    for example in examples:
        given = shlex.split(" ".join(example.split()))
        assert tuple(given[: len(words)]) == words
        # Parsing refuses unknown options, missing arguments and values of the wrong type.
        COMMANDS[words].make_context(words[-1], given[len(words) :])


def test_the_root_lists_every_command_in_order() -> None:
    assert isinstance(ROOT, click.Group)
    assert tuple(ROOT.list_commands(click.Context(ROOT))) == ORDER


def test_nothing_heavy_is_imported_for_help() -> None:
    code = (
        "import sys\nfrom skerry.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print('\\n'.join(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    loaded = set(shown.splitlines())
    own = {
        "edge_agent",
        "cloud_coordinator",
        "task_queue",
        "devices",
        "policy",
        *(m for m, _ in LATE.values()),
    }
    assert "skerry.cli" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in HEAVY}
    assert not loaded & own


def test_without_words_the_help_is_shown(skerry: Any) -> None:
    assert "Commands" in skerry().output


def test_an_unknown_command_is_refused_with_the_nearest(skerry: Any) -> None:
    assert "Did you mean 'tasks'?" in (outer := skerry("tsks")).output
    assert "Did you mean 'cancel'?" in (inner := skerry("tasks", "cancle")).output
    assert (outer.exit_code, inner.exit_code) == (2, 2)


def test_the_version_is_printed_in_both_ways(skerry: Any) -> None:
    assert skerry("--version").output == skerry("version").output
    assert '"skerry"' in skerry("version", "--json").output
