"""Discovery: real and emulated devices, backends that fail, and what an agent must not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devices.discovery import build_executors, discover
from devices.emulated import BOARDS, Emulation, emulation_of
from devices.reader import SysReader
from devices.registry import BACKENDS, Backend
from devices.settings import DeviceSettings
from skerry.errors import DeviceError, SettingsError
from skerry.node import Device
from skerry.settings import load_settings


def test_every_known_board_is_found_with_its_label() -> None:
    inventory = discover(DeviceSettings(emulated=tuple(BOARDS)))

    boards = [device for device in inventory.devices if device.device_class != "cpu"]
    assert len(boards) == len(BOARDS)
    for board in boards:
        assert board.emulated
        assert "emulated" in board.name
        assert "emulated" in board.device_id
        assert board.executors == ("onnx",)
        assert board.speed <= 1.0  # the result is computed here
        assert board.power_w
        assert emulation_of(board) is not None


def test_two_boards_of_one_kind_are_two_devices_with_stable_ids() -> None:
    settings = DeviceSettings(emulated=("coral-usb", "coral-usb"))

    first, second = discover(settings), discover(settings)

    ids = [device.device_id for device in first.devices]
    assert len(set(ids)) == 3
    assert ids == [device.device_id for device in second.devices]


def test_a_board_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="no board 'hailo-9'; known: coral-m2, coral-usb"):
        discover(DeviceSettings(emulated=("hailo-9",)))


def test_a_real_device_has_no_emulation() -> None:
    cpu = discover(DeviceSettings()).devices[0]

    assert emulation_of(cpu) is None
    assert not cpu.emulated


def test_an_emulated_board_takes_its_transfer_and_its_share_of_the_computation() -> None:
    model = Emulation(speed=0.5, dispatch_s=0.25, power_w=2.0)

    assert model.takes_s(1.0) == pytest.approx(2.25)


class _Broken:
    def scan(self, reader: SysReader, settings: DeviceSettings) -> tuple[Device, ...]:
        raise DeviceError("driver 4.20 does not match firmware 4.23")


def _without_driver() -> Backend:
    import no_such_driver  # type: ignore[import-not-found]

    return no_such_driver.Backend()  # type: ignore[no-any-return]


def test_a_missing_driver_and_a_failing_one_are_reasons_and_the_rest_is_found() -> None:
    backends = {"ghost": _without_driver, "broken": _Broken, **BACKENDS}

    inventory = discover(DeviceSettings(), backends=backends)

    assert "no_such_driver" in inventory.labels["unavailable-ghost"]
    assert "does not match firmware" in inventory.labels["unavailable-broken"]
    assert [device.device_class for device in inventory.devices] == ["cpu"]


def test_there_is_an_executor_for_each_use_of_each_device(tmp_path: Path) -> None:
    settings = DeviceSettings(emulated=("hailo-8l",), cpu_slots=3)
    inventory = discover(settings)

    executors = build_executors(inventory, settings, data_dir=tmp_path)

    uses = sorted((kind, executor.device.device_class) for (_, kind), executor in executors.items())
    assert uses == [("command", "cpu"), ("onnx", "cpu"), ("onnx", "npu")]
    assert all(executor.child_pid is None for executor in executors.values())
    assert inventory.devices[0].slots == 3


def test_settings_come_from_a_file_and_a_typo_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text('emulated = ["hailo-8l"]\n[children]\nnice = 10\n')

    settings = load_settings(DeviceSettings, path=file)

    assert settings.emulated == ("hailo-8l",)
    assert settings.children.nice == 10
    file.write_text("[children]\nniceness = 10\n")
    with pytest.raises(SettingsError, match=r"children\.nice"):
        load_settings(DeviceSettings, path=file)


def test_the_agents_side_imports_no_runtime() -> None:
    heavy = ("numpy", "onnxruntime", "torch", "scipy", "pydantic", "flwr", "magika", "swift_f0")
    code = (
        "import sys, devices.discovery, devices.models\n"
        "from devices.settings import DeviceSettings\n"
        "devices.discovery.discover(DeviceSettings(emulated=('hailo-8l',)))\n"
        "devices.models.tone_task_inputs(220.0); devices.models.locate_builtin_models()\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"
