"""What the agent on this machine has: `skerry devices`, `skerry models add`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skerry.cli.connect import JsonOption, with_agent
from skerry.cli.output import duration, print_json, print_table
from skerry.cli.root import Group
from skerry.client import Client
from skerry.documents import DeviceLoad
from skerry.node import Device

models = typer.Typer(cls=Group, help="Models that tasks name by their hash.", no_args_is_help=True)


@with_agent
def devices(client: Client, *, as_json: JsonOption = False) -> None:
    """List the devices of this machine with their load.

    Example: skerry devices
    """
    report = client.node()
    if as_json:
        print_json({"devices": report.inventory.devices, "load": report.load})
        return
    columns = ("id", "class", "name", "executors", "slots", "running", "queued", "backlog", "state")
    rows = [_device_row(device, report.load.get(device.device_id)) for device in report.inventory.devices]
    print_table(columns, rows, empty="no devices")


def _device_row(device: Device, load: DeviceLoad | None) -> tuple[object, ...]:
    now = load or DeviceLoad()
    state = "usable" if device.usable else f"not usable: {device.reason}"
    return (
        device.device_id,
        device.device_class,
        device.name,  # an emulated board says so in its name
        ",".join(device.executors),
        device.slots,
        now.running,
        now.queued,
        duration(now.backlog_s),
        state,
    )


@models.command("add")
@with_agent
def add(
    client: Client,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The model, for example an .onnx file.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Store a model at the agent and print its hash: what a task names as spec.model.

    Example: skerry models add swift-f0.onnx
    """
    name = client.add_model(file)
    if as_json:
        print_json({"hash": name, "size_bytes": file.stat().st_size})
    else:
        typer.echo(name)
