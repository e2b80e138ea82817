"""`skerry report`: what an agent was told and decided lately, packed for whoever shall look into it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skerry.cli.connect import JsonOption, QueuePlace, with_queue
from skerry.cli.output import print_fields, print_json, size
from skerry.errors import SettingsError


@with_queue
def report(
    place: QueuePlace,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The report: one archive.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Pack the flight recorder of an agent, running or not, into one file.

    Commands, inputs, results, keys and labels are left out; `skerry twin replay` runs it again.
    What a running agent did in the last minute may not be in it yet.

    Example: skerry report edge-7.report
    """
    from edge_agent.backup import node_of
    from edge_agent.flight_report import About, pack_report
    from skerry import __version__
    from skerry.durable import write_whole

    if file.exists() and not force:
        raise SettingsError(f"{file} is there already: choose another name, or --force replaces it")
    home = place.stopped_directory()
    data = pack_report(home / "flight", About(node=node_of(home), version=__version__))
    try:
        write_whole(file.absolute(), data)
    except OSError as error:
        raise SettingsError(f"{file} cannot be written: {error.strerror}") from error
    if as_json:
        print_json({"file": str(file), "size_bytes": len(data)})
    else:
        print_fields({"file": f"{file} ({size(len(data))})", "run again with": f"skerry twin replay {file}"})
