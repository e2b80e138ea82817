"""Emulated boards: accelerators that are not here.

Owns their fixtures and the model of their speed and power.

A board computes the real result on the processor, through the same child as everything else, and takes the
time the model says when the board would be slower. It never claims to be faster than the computation was.
Everything it touches is labelled `emulated`.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from devices.cpu import runtime_problem
from devices.identity import device_id
from devices.reader import SysReader
from devices.settings import DeviceSettings
from skerry.errors import SettingsError
from skerry.node import Device, DeviceClass


class Emulation(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a board: what an inference takes on it, and what it draws meanwhile.

    speed: relative to one slot of the processor.  dispatch_s: transfer and launch, paid by every inference.
    """

    speed: float
    dispatch_s: float
    power_w: float

    def takes_s(self, computed_s: float) -> float:
        """Return how long the board takes for what the processor computed in computed_s."""
        return self.dispatch_s + computed_s / self.speed


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A board's fixture."""

    title: str
    device_class: DeviceClass
    memory_bytes: int
    model: Emulation
    slots: int = 1  #: vendor runtimes give a board to one process, which runs one inference at a time


#: Powers are the makers' typical figures. Speeds are set for the demonstration, not measured on the boards:
#: relative to a small processor and below what a data sheet's operations a second suggest.
BOARDS: dict[str, Board] = {
    "hailo-8l": Board(
        title="Hailo-8L M.2 module",
        device_class="npu",
        memory_bytes=1 << 30,
        model=Emulation(speed=2.0, dispatch_s=0.002, power_w=1.5),
    ),
    "rk3588-npu": Board(
        title="Rockchip RK3588 NPU",
        device_class="npu",
        slots=3,  # three cores
        memory_bytes=1 << 30,
        model=Emulation(speed=0.8, dispatch_s=0.001, power_w=2.0),
    ),
    "coral-usb": Board(
        title="Coral USB Accelerator",
        device_class="tpu",
        memory_bytes=8 << 20,
        model=Emulation(speed=1.5, dispatch_s=0.004, power_w=2.0),
    ),
    "coral-m2": Board(
        title="Coral M.2 Accelerator",
        device_class="tpu",
        memory_bytes=8 << 20,
        model=Emulation(speed=1.5, dispatch_s=0.001, power_w=2.0),
    ),
    # No maker's: a device that is clearly slower than the processor, where a bad choice can be told apart.
    "micro-npu": Board(
        title="Small NPU of a microcontroller",
        device_class="npu",
        memory_bytes=1 << 30,
        model=Emulation(speed=0.05, dispatch_s=0.01, power_w=0.5),
    ),
}


class EmulatedBackend:
    """Finds the boards that the settings name."""

    def scan(self, reader: SysReader, settings: DeviceSettings) -> tuple[Device, ...]:
        """Return a device for each named board.  Raises SettingsError for a board that is not known."""
        seen: Counter[str] = Counter()
        devices = []
        for name in settings.emulated:
            seen[name] += 1
            devices.append(_device(name, seen[name], reader))
        return tuple(devices)


def emulation_of(device: Device) -> Emulation | None:
    """Return the model of an emulated device, None for a real one."""
    if not device.emulated:
        return None
    return next(board.model for board in BOARDS.values() if _title(board) == device.name)


def _device(name: str, ordinal: int, reader: SysReader) -> Device:
    board = BOARDS.get(name)
    if board is None:
        raise SettingsError(f"devices.emulated: no board {name!r}; known: {', '.join(sorted(BOARDS))}")
    problem = runtime_problem()
    return Device(
        device_id=device_id(f"{board.device_class}-emulated", f"emulated/{name}/{ordinal}", reader),
        device_class=board.device_class,
        name=_title(board),
        executors=("onnx",),
        slots=board.slots,
        memory_bytes=board.memory_bytes,
        emulated=True,
        # The result is computed here: the emulation itself is never faster than one slot of the processor.
        speed=min(1.0, board.model.speed),
        power_w=board.model.power_w,
        usable=problem is None,
        reason=problem or "",
    )


def _title(board: Board) -> str:
    return f"{board.title} (emulated)"
