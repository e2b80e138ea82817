"""`skerry agent`: make its settings, run it; and `skerry enrol`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skerry.cli.connect import JsonOption
from skerry.cli.files import become, make_private, write_settings
from skerry.cli.output import print_json
from skerry.cli.root import Group

app = typer.Typer(cls=Group, help="Run an agent on this machine.", no_args_is_help=True)

DirectoryArgument = Annotated[Path, typer.Argument(metavar="[DIR]", help="Where settings and data go.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Write the settings file anew.")]


@app.command()
def init(
    directory: DirectoryArgument = Path("agent"),
    *,
    name: Annotated[str | None, typer.Option(help="The node's name; default: from the host name.")] = None,
    region: Annotated[str | None, typer.Option(help="The node's region.")] = None,
    site: Annotated[str | None, typer.Option(help="The node's site.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented settings file DIR/agent.toml and make DIR/data.

    Example: skerry agent init ~/skerry --region north
    """
    from edge_agent.settings import AgentSettings, check_settings, default_node_name, example_toml
    from skerry.settings import load_settings

    home = directory.expanduser().absolute()
    config = home / "agent.toml"
    given = {
        "data_dir": str(home / "data"),
        "node.name": name or default_node_name(),
        **({"node.region": region} if region else {}),
        **({"node.site": site} if site else {}),
    }
    check_settings(load_settings(AgentSettings, flags=given))
    write_settings(config, example_toml(given), force=force)
    make_private(home / "data")
    if as_json:
        print_json({"config": str(config), "data_dir": str(home / "data")})
        return
    typer.echo(f"wrote {config}")
    typer.echo(f"next: skerry agent run --config {config}", err=True)


@app.command()
def run(
    config: Annotated[Path, typer.Option(help="The settings file.")] = Path("agent.toml"),
) -> None:
    """Run the agent in the foreground until SIGTERM or Ctrl-C.

    Example: skerry agent run --config ~/skerry/agent.toml
    """
    become("edge_agent", config.expanduser())
