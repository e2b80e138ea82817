"""`skerry round`: start, watch and end federated runs at the coordinator, and fetch what they made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from skerry.cli.connect import JsonOption
from skerry.cli.coordinator import WhereConfig, WhereToken, WhereUrl, connection
from skerry.cli.following import changes, follow
from skerry.cli.output import print_json, print_table, wall
from skerry.cli.root import Group
from skerry.cli.round_view import line_of, print_run
from skerry.cli.round_view import picture as picture
from skerry.errors import SettingsError
from skerry.http import HttpConnection
from skerry.ids import check_name
from skerry.round_documents import RoundAsked, RoundList, RoundView

app = typer.Typer(
    cls=Group, help="Federated rounds: nodes train, the coordinator merges.", no_args_is_help=True
)

PATH = "/v1/rounds"
Name = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]
Trainer = Literal["ppo", "toy", "null"]


@app.command()
def start(
    name: Annotated[str, typer.Option(help="Its name; default: drawn.")] = "",
    trainer: Annotated[
        Trainer, typer.Option(help="ppo trains the policy; toy and null are for trials.")
    ] = "ppo",
    rounds: Annotated[int, typer.Option(min=1, help="Versions to make.")] = 3,
    quorum: Annotated[int, typer.Option(min=1, help="Accepted replies that a version needs.")] = 2,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="After this a version closes without the rest.")
    ] = 600.0,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="How long it waits for enough nodes.")
    ] = 86400.0,
    node: Annotated[list[str] | None, typer.Option(help="Only this node (again for more).")] = None,
    region: Annotated[list[str] | None, typer.Option(help="Only this region (again for more).")] = None,
    base: Annotated[str, typer.Option(metavar="POLICY", help="A registered policy to begin with.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of everything drawn.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For the trainer: ppo.updates=4")
    ] = None,
    watch_it: Annotated[bool, typer.Option("--watch", help="Watch it to its end.")] = False,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Start a federated run over the nodes that take part in training.

    Example: skerry round start --rounds 3 --quorum 2 --deadline 120 --config cloud/coordinator.toml
    """
    asked = RoundAsked(
        name=check_name(name, what="run") if name else "",
        trainer=trainer,
        rounds=rounds,
        quorum=quorum,
        deadline_s=deadline,
        patience_s=patience,
        nodes=tuple(node or ()),
        regions=tuple(region or ()),
        base=base,
        seed=seed,
        config=dict(map(_setting, set_ or ())),
    )
    with connection(config, url, token_file) as http:
        view = http.json(RoundView, "POST", PATH, body=msgspec.json.encode(asked))
        if watch_it:
            _watch(http, view.name, as_json=as_json)
        elif as_json:
            print_json(view)
        else:
            typer.echo(view.name)
            typer.echo(
                f"{len(view.eligible)} nodes may take part; `skerry round watch {view.name}`", err=True
            )


@app.command("list")
def list_(
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs, newest first.

    Example: skerry round list --config cloud/coordinator.toml
    """
    with connection(config, url, token_file) as http:
        page = http.json(RoundList, "GET", PATH)
    if as_json:
        print_json(page)
        return
    columns = ("run", "state", "version", "trainer", "quorum", "started", "ended", "reason")
    rows = [
        (one.name, one.state, f"{one.version}/{one.rounds}", one.trainer, one.quorum,
         wall(one.created_wall_s), wall(one.ended_wall_s), one.reason)
        for one in page.rounds
    ]  # fmt: skip
    print_table(columns, rows, empty=page.off or "no run was ever started")


@app.command()
def show(
    name: Name,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run: who was asked, what became of each reply, which versions there are.

    Example: skerry round show round-1f2e3d
    """
    with connection(config, url, token_file) as http:
        view = _get(http, name)
    if as_json:
        print_json(view)
    else:
        print_run(view)


@app.command()
def watch(
    name: Name,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Watch a run until it ends: a live table, or with --json one line a change. Exit status 1 if it failed.

    Example: skerry round watch round-1f2e3d
    """
    with connection(config, url, token_file) as http:
        _watch(http, name, as_json=as_json)


@app.command()
def cancel(
    name: Name,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """End a run; the versions it made stay.

    Example: skerry round cancel round-1f2e3d
    """
    _change(name, "cancel", config, url, token_file, as_json=as_json)


@app.command()
def resume(
    name: Name,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """See to it that a run that has not ended is worked on.

    Example: skerry round resume round-1f2e3d
    """
    _change(name, "resume", config, url, token_file, as_json=as_json)


@app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option(help="Where the packet of parameters goes.")],
    version: Annotated[int | None, typer.Option(min=0, help="Which version; default: the newest.")] = None,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Write a version's parameters to a file, as they travel.

    Example: skerry round export round-1f2e3d --out actor.packet
    """
    with connection(config, url, token_file) as http:
        view = _get(http, name)
        wanted = view.version if version is None else version
        models = {one.version: one.model for one in view.versions if one.model}
        if wanted not in models:
            raise SettingsError(f"run {name} has no version {wanted} to export; it has {sorted(models)}")
        _, data = http.request("GET", f"/v1/blobs/{models[wanted]}", wait_s=300.0)
    out.write_bytes(data)
    if as_json:
        print_json({"file": str(out), "version": wanted, "model": models[wanted], "bytes": len(data)})
    else:
        typer.echo(f"version {wanted} of {name}: {out}, {len(data)} bytes")


# --- inside ---------------------------------------------------------------------------------------


def _setting(text: str) -> tuple[str, bool | int | float | str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise typer.BadParameter(f"--set {text!r} is not of the form KEY=VALUE")
    try:
        read = msgspec.json.decode(value.encode())
    except msgspec.DecodeError:
        return key, value
    return key, read if isinstance(read, bool | int | float) else value


def _get(http: HttpConnection, name: str) -> RoundView:
    return http.json(RoundView, "GET", f"{PATH}/{check_name(name, what='run')}")


def _change(
    name: str, what: str, config: Path | None, url: str | None, token_file: Path | None, *, as_json: bool
) -> None:
    with connection(config, url, token_file) as http:
        view = http.json(RoundView, "POST", f"{PATH}/{check_name(name, what='run')}/{what}", body=b"")
    if as_json:
        print_json(view)
    else:
        typer.echo(f"{view.name} is {view.state}{f': {view.reason}' if view.reason else ''}")


def _views(http: HttpConnection, name: str) -> Iterator[RoundView]:
    """Yield the run now and at each change, until it has ended and its policy is made."""
    return changes(
        lambda: _get(http, name),
        has_ended=lambda view: view.has_ended and not _makes_policy(view),
        seen=lambda view: msgspec.structs.replace(view, patience_left_s=0.0),
    )


def _makes_policy(view: RoundView) -> bool:
    """Decide whether the run's last version is still to become a policy."""
    makes_one = view.state == "done" and view.trainer == "ppo" and view.version > 0
    return makes_one and view.policy.state not in ("offered", "failed")


def _watch(http: HttpConnection, name: str, *, as_json: bool) -> None:
    import sys

    is_live = sys.stdout.isatty() and not as_json
    views = _views(http, name)
    last = _live(views) if is_live else follow(views, line_of, as_json=as_json)
    if last is not None and last.state != "done":
        raise typer.Exit(1)


def _live(views: Iterator[RoundView]) -> RoundView | None:
    from rich.live import Live

    last = None
    with Live(auto_refresh=False) as live:
        for last in views:
            live.update(picture(last), refresh=True)
    return last
