"""Options that say where a service is, given to every command that talks to one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from skerry.client import Client
from skerry.endpoint import DATA_DIR, Endpoint, find_agent, read_secret, read_toml
from skerry.errors import ServiceUnreachable

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


DataDirOption = Annotated[
    Path | None,
    typer.Option(help="Read this directory of a stopped agent.", rich_help_panel="Where"),
]


class QueuePlace:
    """Where a queue is: at an agent that may answer, or in the directory of one that does not run."""

    def __init__(self, endpoint: Endpoint | None, client: Client | None, directory: Path | None) -> None:
        """client: None when a directory was given; then nobody is asked."""
        self.client = client
        self.directory = directory
        self.config = None if endpoint is None else endpoint.config
        self._endpoint = endpoint

    def stopped_directory(self) -> Path:
        """Return the data directory to read when no agent answers.  Raises ServiceUnreachable."""
        if self.directory is not None:
            return self.directory
        if self.config is not None:
            return Path(read_toml(self.config).get("data_dir") or DATA_DIR).expanduser().absolute()
        socket = None if self._endpoint is None else self._endpoint.socket
        if socket is not None and (socket.parent / "queue.db").is_file():
            return socket.parent
        raise ServiceUnreachable(
            f"no agent answers on {self._endpoint}; --data-dir or --config leads to a stopped one's queue"
        )


def with_queue(command: Callable[Concatenate[QueuePlace, P], None]) -> Callable[..., None]:
    """Give a command the options that say where a queue is; it gets the place as its first argument."""

    @functools.wraps(command)
    def run(*args: Any, data_dir: Path | None = None, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name, None) for name in _WHERE}
        if data_dir is not None:
            config = given["config"]
            endpoint = None if config is None else Endpoint(config=config)
            command(QueuePlace(endpoint, None, data_dir.expanduser().absolute()), *args, **kwargs)
            return
        endpoint = _endpoint(**given)
        with Client.at(endpoint) as client:
            command(QueuePlace(endpoint, client, None), *args, **kwargs)

    return _with_options(run, command, {**_WHERE, "data_dir": DataDirOption})


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
        with Client.at(_endpoint(socket, url, token_file, config)) as client:
            command(client, *args, **kwargs)

    return _with_options(run, command, _WHERE)


def _endpoint(socket: Path | None, url: str | None, token_file: Path | None, config: Path | None) -> Endpoint:
    token = None if token_file is None else read_secret(token_file)
    return find_agent(socket=socket, url=url, token=token, config=config)


def _with_options(
    run: Callable[..., None], command: Callable[..., None], options: Mapping[str, Any]
) -> Callable[..., None]:
    """Show typer the command's own parameters, all but the first, and these options."""
    own = list(inspect.signature(command).parameters.values())[1:]
    where = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]
    hints = get_type_hints(command, include_extras=True)
    typed = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    # Typer reads a command's options from these two.
    run.__signature__ = inspect.Signature([*typed, *where])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*typed, *where]}
    return run
