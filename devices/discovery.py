"""Discovery: what this node has, and an executor for each use of it.

Owns the wiring of backends and executors.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

from devices.cpu import read_capacity
from devices.emulated import emulation_of
from devices.executors.channel import Load
from devices.executors.orphans import agent_marker
from devices.executors.process import ProcessExecutor
from devices.identity import hardware_id
from devices.reader import SysReader
from devices.registry import BACKENDS, Backend
from devices.settings import DeviceSettings
from skerry.clock import Clock, SystemClock
from skerry.errors import DeviceError
from skerry.node import Device, Inventory

_log = logging.getLogger(__name__)


def discover(
    settings: DeviceSettings,
    reader: SysReader | None = None,
    backends: Mapping[str, Callable[[], Backend]] = BACKENDS,
) -> Inventory:
    """Return what this node has.

    A backend that cannot be loaded or that fails is left out; label `unavailable-<backend>` holds the reason.
    Raises SettingsError when the settings name a board that does not exist.
    """
    reader = reader or SysReader()
    capacity = read_capacity(reader)
    labels = {"numa-nodes": str(capacity.numa_nodes)}
    devices: list[Device] = []
    for name, factory in backends.items():
        try:
            devices.extend(factory().scan(reader, settings))
        except (ImportError, OSError, DeviceError) as error:
            labels[f"unavailable-{name}"] = str(error)
            _log.warning("%s: unavailable, %s", name, error)
    return Inventory(
        devices=tuple(devices),
        cpu_millicores=capacity.millicores,
        memory_bytes=capacity.memory_bytes,
        machine=platform.machine(),
        hardware_id=hardware_id(reader, capacity.model),
        labels=labels,
    )


def build_executors(
    inventory: Inventory,
    settings: DeviceSettings,
    *,
    data_dir: Path,
    clock: Clock | None = None,
) -> dict[tuple[str, str], ProcessExecutor]:
    """Return an executor for each (device id, executor name). Nothing is started before the first attempt.

    data_dir: the agent's; outputs go to `outputs/`, private directories of commands to `work/` below it.
    Call `end_orphans(data_dir)` first, once the data directory is locked.
    """
    return {
        (device.device_id, kind): ProcessExecutor(
            device,
            _load(device, kind, settings, data_dir),
            settings.children,
            marker=agent_marker(data_dir),
            clock=clock or SystemClock(),
        )
        for device in inventory.devices
        for kind in device.executors
    }


def _load(device: Device, kind: str, settings: DeviceSettings, data_dir: Path) -> Load:
    children, home = settings.children, data_dir.absolute()
    return Load(
        kind=kind,
        device_id=device.device_id,
        slots=device.slots,
        threads=children.threads,
        sessions=children.sessions,
        nice=children.nice,
        heartbeat_s=children.heartbeat_s,
        kill_grace_s=children.kill_grace_s,
        output_limit_bytes=children.output_limit_bytes,
        output_dir=str(home / "outputs"),
        work_dir=str(home / "work"),
        witness=str(Path(settings.witness).absolute()) if settings.witness else None,
        command_user=settings.command_user,
        emulation=emulation_of(device),
    )
