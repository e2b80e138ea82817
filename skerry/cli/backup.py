"""`skerry backup`: copies of the queue: create, verify, restore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from skerry.backup_documents import BackupManifest, Restored, Verified
from skerry.cli.connect import ConfigOption, JsonOption, QueuePlace, with_queue
from skerry.cli.output import print_fields, print_json, size, wall
from skerry.cli.root import Group
from skerry.errors import BackupError, ServiceUnreachable, SettingsError

app = typer.Typer(
    cls=Group, help="Copies of the queue, made while the agent runs, and brought back.", no_args_is_help=True
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup: one archive.")]


@app.command()
@with_queue
def create(
    place: QueuePlace,
    file: FileArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a copy of the queue as it is now; the agent goes on meanwhile.

    The file is whole and on disk when this returns, or not there at all. Keys and contents are not in it.

    Example: skerry backup create queue-2026-11-30.zip
    """
    from edge_agent.backup import verify

    if file.exists() and not force:
        raise SettingsError(f"{file} is there already: choose another name, or --force replaces it")
    if not file.absolute().parent.is_dir():
        raise SettingsError(f"there is no directory {file.absolute().parent}")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        try:
            if place.client is None:
                raise ServiceUnreachable(f"{place.directory} was asked for")
            _download(place, part)
        except ServiceUnreachable:
            _copy(place.stopped_directory(), part)
        made = verify(part)
        _keep(part, file)
    finally:
        part.unlink(missing_ok=True)
    _print_verified(made, file, as_json=as_json)


def _copy(home: Path, part: Path) -> None:
    """Copy the queue of an agent that does not answer out of its directory."""
    import time

    from edge_agent.backup import contents_of, database_of, make_archive, node_of

    typer.echo(f"no agent answers: this is copied from {home}", err=True)
    make_archive(database_of(home), part, node=node_of(home), wall_s=time.time(), contents=contents_of(home))


def _download(place: QueuePlace, part: Path) -> None:
    assert place.client is not None  # the caller has looked
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            place.client.backup(out)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise BackupError(f"{part} cannot be written: {error.strerror}") from error


def _keep(part: Path, file: Path) -> None:
    from skerry.durable import sync

    part.replace(file)
    sync(file.absolute().parent)


@app.command()
def verify(file: FileArgument, *, as_json: JsonOption = False) -> None:
    """Read a backup from end to end, its database too, and say what it holds.

    Example: skerry backup verify queue-2026-11-30.zip
    """
    from edge_agent.backup import verify as verify_archive

    _print_verified(verify_archive(file), file, as_json=as_json)


def _print_verified(made: Verified, file: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    print_fields({"file": f"{file} ({size(made.size_bytes)})", **_manifest(made.manifest), "state": "whole"})


def _manifest(manifest: BackupManifest) -> dict[str, object]:
    held = sum(manifest.contents.values())
    return {
        "made": f"{wall(manifest.made_wall_s)} on {manifest.node}, version {manifest.made_by}",
        "queue": f"epoch {manifest.epoch}, schema {manifest.schema}, {size(manifest.size_bytes)}",
        **{f"tasks {state}": count for state, count in manifest.tasks.items()},
        "unsent": sum(manifest.outbox.values()),
        "contents named": f"{len(manifest.contents)} ({size(held)})" if manifest.contents else "",
    }


@app.command()
def restore(
    file: FileArgument,
    *,
    data_dir: Annotated[Path | None, typer.Option(help="The agent's data directory.")] = None,
    config: ConfigOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Set the queue that is there aside.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Put a backup's queue into an agent's data directory; stop the agent first.

    The restored queue begins a new epoch, so that the coordinator takes none of its messages for older ones.
    Tasks run again from where the copy was made; those that may take effect only once are ended instead.

    Example: skerry backup restore queue-2026-11-30.zip --config agent.toml --replace
    """
    from edge_agent.backup import restore as restore_archive
    from edge_agent.settings import AgentSettings
    from skerry.clock import SystemClock

    home, clock = _home(data_dir, config), SystemClock()
    is_enrolled = AgentSettings(data_dir=str(home)).is_enrolled
    done = restore_archive(
        file, home, replace=replace, now=clock.now(), wall_s=clock.wall_s, reports=is_enrolled
    )
    if as_json:
        print_json(done)
    else:
        _print_restored(done, home)


def _home(data_dir: Path | None, config: Path | None) -> Path:
    from skerry.endpoint import DATA_DIR, read_toml

    if data_dir is not None:
        return data_dir.expanduser().absolute()
    settings = config or Path("agent.toml")
    if config is None and not settings.is_file():
        raise SettingsError("say where to: --data-dir, or --config with the agent's settings file")
    return Path(read_toml(settings).get("data_dir") or DATA_DIR).expanduser().absolute()


def _print_restored(done: Restored, home: Path) -> None:
    print_fields(
        {
            "restored to": home,
            **_manifest(done.manifest),
            "new epoch": done.epoch,
            "ended, may have run": done.ended_once or "",
            "set aside": done.set_aside,
            "contents missing": len(done.missing_contents) or "",
        }
    )
    typer.echo("next: start the agent", err=True)
