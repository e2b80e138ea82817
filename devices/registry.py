"""The backends: one line each. Imports happen in the factories, so that a missing driver is only a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from devices.reader import SysReader
from devices.settings import DeviceSettings
from skerry.node import Device


class Backend(Protocol):
    """Finds the devices of one kind by reading files; opens no device and imports no vendor library."""

    def scan(self, reader: SysReader, settings: DeviceSettings) -> tuple[Device, ...]:
        """Return the devices found.  Raises DeviceError with a reason when the kind cannot be looked for."""
        ...


def _cpu() -> Backend:
    from devices.cpu import CpuBackend

    return CpuBackend()


def _emulated() -> Backend:
    from devices.emulated import EmulatedBackend

    return EmulatedBackend()


BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "emulated": _emulated}
