"""Options that say where a service is, given to every command that talks to one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from skerry.client import Client
from skerry.endpoint import find_agent, read_secret

P = ParamSpec("P")

SocketOption = Annotated[Path | None, typer.Option(help="The agent's Unix socket.", rich_help_panel="Where")]
UrlOption = Annotated[str | None, typer.Option(help="The agent's TCP address.", rich_help_panel="Where")]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(help="File with the token for --url (or SKERRY_TOKEN).", rich_help_panel="Where"),
]
ConfigOption = Annotated[
    Path | None, typer.Option(help="The agent's settings file, to find it by.", rich_help_panel="Where")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

_WHERE = {"socket": SocketOption, "url": UrlOption, "token_file": TokenFileOption, "config": ConfigOption}


def with_agent(command: Callable[Concatenate[Client, P], None]) -> Callable[..., None]:
    """Give a command the options that say where the agent is; it gets a client as its first argument."""

    @functools.wraps(command)
    def run(
        *args: Any,
        socket: Path | None = None,
        url: str | None = None,
        token_file: Path | None = None,
        config: Path | None = None,
        **kwargs: Any,
    ) -> None:
        token = None if token_file is None else read_secret(token_file)
        endpoint = find_agent(socket=socket, url=url, token=token, config=config)
        with Client.at(endpoint) as client:
            command(client, *args, **kwargs)

    own = list(inspect.signature(command).parameters.values())[1:]
    where = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _WHERE.items()
    ]
    hints = get_type_hints(command, include_extras=True)
    typed = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    # Typer reads a command's options from these two.
    run.__signature__ = inspect.Signature([*typed, *where])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*typed, *where]}
    return run
