"""`skerry coordinator`: its settings, running it, enrolment tokens; `skerry enrol`, `skerry nodes`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from skerry.cli.connect import JsonOption
from skerry.cli.files import become, make_private, write_settings
from skerry.cli.output import duration, print_fields, print_json, print_table
from skerry.cli.root import Group
from skerry.endpoint import Endpoint, find_coordinator, read_secret
from skerry.fleet_documents import NodeList, TokenMade
from skerry.http import HttpConnection
from skerry.ids import check_name
from skerry.node import NodeRecord

app = typer.Typer(cls=Group, help="Run a fleet's coordinator on this machine.", no_args_is_help=True)

NODES_PATH = "/v1/nodes"
TOKENS_PATH = "/v1/tokens"

WhereConfig = Annotated[
    Path | None,
    typer.Option("--config", help="The coordinator's settings file, to find it by.", rich_help_panel="Where"),
]
WhereUrl = Annotated[
    str | None, typer.Option("--url", help="The coordinator's TCP address.", rich_help_panel="Where")
]
WhereToken = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the API token for --url.", rich_help_panel="Where"),
]


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where settings and data go.")] = Path(
        "coordinator"
    ),
    *,
    fleet: Annotated[str | None, typer.Option(help="The fleet's name.")] = None,
    mqtt: Annotated[str | None, typer.Option(metavar="URL", help="The broker.")] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where HTTP listens.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write the settings file anew.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented settings file DIR/coordinator.toml and make DIR/data.

    Example: skerry coordinator init cloud --mqtt mqtt://127.0.0.1:1883
    """
    from cloud_coordinator.settings import CoordinatorSettings, check_settings, example_toml
    from skerry.settings import load_settings

    home = directory.expanduser().absolute()
    config, data = home / "coordinator.toml", home / "data"
    asked = {"data_dir": str(data), "fleet": fleet, "api.listen": listen, "mqtt.url": mqtt}
    given = {name: value for name, value in asked.items() if value is not None}
    check_settings(load_settings(CoordinatorSettings, flags=given))
    write_settings(config, example_toml(given), force=force)
    make_private(data)
    if as_json:
        print_json({"config": str(config), "data_dir": str(data)})
        return
    typer.echo(f"wrote {config}")
    typer.echo(f"next: skerry coordinator run --config {config}", err=True)


@app.command()
def run(
    config: Annotated[Path, typer.Option(help="The settings file.")] = Path("coordinator.toml"),
) -> None:
    """Run the coordinator in the foreground until SIGTERM or Ctrl-C.

    Example: skerry coordinator run --config cloud/coordinator.toml
    """
    become("cloud_coordinator", config.expanduser())


@app.command()
def token(
    node: Annotated[str, typer.Option(help="Only this node may use it.")] = "",
    region: Annotated[str, typer.Option(help="Only a node of this region may use it.")] = "",
    valid_s: Annotated[
        float | None, typer.Option("--valid", metavar="SECONDS", min=1, help="How long it can be used.")
    ] = None,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Print a token with which one node can enrol, once. The coordinator must run.

    Example: skerry coordinator token --config cloud/coordinator.toml
    """
    asked = {"node": node, "region": region, "valid_s": valid_s}
    with connection(config, url, token_file) as http:
        issued = http.json(TokenMade, "POST", TOKENS_PATH, body=msgspec.json.encode(asked))
    if as_json:
        print_json(issued)
        return
    typer.echo(issued.token)
    typer.echo(f"works once, within {duration(issued.valid_s)}", err=True)


def nodes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this node, in full.")] = None,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Put NAME out of the fleet: its key counts for nothing any more.")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="End NAME's quarantine: hear it on the machine it was known on.")
    ] = False,
    moved: Annotated[
        bool,
        typer.Option("--moved", help="With --release: NAME is on another machine now, its own from here on."),
    ] = False,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """List the fleet's nodes as the coordinator knows them: region, status, devices, work.

    Example: skerry nodes --config cloud/coordinator.toml
    """
    if (revoke or release) and (name is None or (revoke and release)):
        raise typer.BadParameter("--revoke and --release take the NAME of one node, and exclude each other")
    if moved and not release:
        raise typer.BadParameter("--moved goes with --release")
    with connection(config, url, token_file) as http:
        if name is None:
            _print_nodes(http.json(NodeList, "GET", NODES_PATH), as_json=as_json)
        else:
            _print_node(_one(http, name, revoke=revoke, release=release, moved=moved), as_json=as_json)


def _one(http: HttpConnection, name: str, *, revoke: bool, release: bool, moved: bool) -> NodeRecord:
    path = f"{NODES_PATH}/{check_name(name, what='node')}"
    if release:
        return http.json(NodeRecord, "POST", f"{path}/release{'?moved=true' if moved else ''}", body=b"")
    return http.json(NodeRecord, "DELETE" if revoke else "GET", path)


def _print_nodes(page: NodeList, *, as_json: bool) -> None:
    if as_json:
        print_json(page)
        return
    columns = ("node", "region", "site", "status", "seen", "devices", "running", "queued", "version")
    rows = [_row(node) for node in page.nodes]
    print_table(columns, rows, empty="no node is enrolled; `skerry coordinator token` prints a token for one")


def _print_node(node: NodeRecord, *, as_json: bool) -> None:
    if as_json:
        print_json(node)
        return
    names = ("node", "region", "site", "status", "seen", "devices", "running", "queued", "version")
    key = node.public_key or "none: it may not speak"
    print_fields({**dict(zip(names, _row(node), strict=True)), "session": node.session, "key": key})


def _row(node: NodeRecord) -> tuple[object, ...]:
    seen = time.time() - node.last_seen_wall_s
    found = node.inventory.devices if node.inventory else ()
    devices = [f"{d.device_class}{' (emulated)' if d.emulated else ''}" for d in found if d.usable]
    return (
        node.name,
        node.region,
        node.site,
        node.status,
        f"{duration(max(0.0, round(seen)))} ago" if node.last_seen_wall_s else "never",
        ", ".join(devices),
        node.running,
        node.queued,
        node.version,
    )


def enrol(
    config: Annotated[Path, typer.Option(help="The agent's settings file.")],
    coordinator: Annotated[str, typer.Option(metavar="URL", help="The coordinator's address.")],
    token: Annotated[str, typer.Option(help="The one-use token; - reads it from standard input.")],
    *,
    node: Annotated[str, typer.Option(help="The node's name; default: from the settings.")] = "",
    region: Annotated[str, typer.Option(help="The node's region; default: from the settings.")] = "",
    site: Annotated[str, typer.Option(help="The node's site; default: from the settings.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make this machine's agent a node of a fleet: its key is made here. Stop the agent first.

    Example: skerry enrol --config agent.toml --coordinator https://cloud.example:8470 --token $TOKEN
    """
    import os
    import sys

    from edge_agent import enrol as enrolling
    from edge_agent.settings import read_settings

    settings = read_settings(config, os.environ)
    given = sys.stdin.readline().strip() if token == "-" else token
    told = enrolling.enrol(settings, coordinator, given, node=node, region=region, site=site)
    if as_json:
        print_json({"node": told.node, "fleet": told.fleet, "coordinator_url": told.coordinator_url})
    else:
        typer.echo(f"enrolled as {told.node} in fleet {told.fleet}")


def connection(config: Path | None, url: str | None, token_file: Path | None = None) -> HttpConnection:
    """Return a connection to the coordinator that the options name.  Raises SettingsError."""
    token = None if token_file is None else read_secret(token_file)
    endpoint: Endpoint = find_coordinator(config=config, url=url, token=token)
    return HttpConnection(
        endpoint,
        service="coordinator",
        start_hint=f"skerry coordinator run --config {endpoint.config or 'coordinator.toml'}",
    )
