"""Device ids and the hardware fingerprint: stable where the hardware is, different where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from devices.identity import device_id, hardware_id
from devices.reader import SysReader


def tree(root: Path, files: dict[str, str]) -> SysReader:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return SysReader(root)


def a_card(root: Path, name: str, where: str, address: str) -> None:
    """Write a network card that sits at a bus path."""
    home = root / "sys/devices" / where / "net" / name
    home.mkdir(parents=True)
    (home / "address").write_text(address)
    if "virtual" not in where:
        (home / "device").symlink_to("../..")
    links = root / "sys/class/net"
    links.mkdir(parents=True, exist_ok=True)
    (links / name).symlink_to(f"../../devices/{where}/net/{name}")


def test_a_device_id_depends_on_machine_and_path_only(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", {"etc/machine-id": "a" * 32})
    other = tree(tmp_path / "other", {"etc/machine-id": "b" * 32})

    assert device_id("cpu", "cpu", one) == device_id("cpu", "cpu", SysReader(tmp_path / "one"))
    assert device_id("cpu", "cpu", one) != device_id("cpu", "cpu", other)
    assert device_id("npu", "0001:01:00.0", one) != device_id("npu", "0002:01:00.0", one)
    assert device_id("cpu", "cpu", one).startswith("cpu-")
    assert "a" * 12 not in device_id("cpu", "cpu", one)


def test_the_firmwares_serial_number_comes_first_and_outlives_a_reinstallation(tmp_path: Path) -> None:
    serial = {"sys/class/dmi/id/product_uuid": "4C4C4544-0001"}
    before = tree(tmp_path / "before", {**serial, "etc/machine-id": "a" * 32})
    after = tree(tmp_path / "after", {**serial, "etc/machine-id": "b" * 32})

    assert hardware_id(before, "cpu") == hardware_id(after, "cpu")
    assert hardware_id(before, "cpu").startswith("firmware-")


@pytest.mark.parametrize("text", ["To Be Filled By O.E.M.", "Default string", "None", "00000000-0000"])
def test_a_serial_number_that_the_vendor_never_filled_in_is_none(tmp_path: Path, text: str) -> None:
    reader = tree(tmp_path, {"sys/class/dmi/id/product_serial": text, "etc/machine-id": "a" * 32})

    assert hardware_id(reader, "cpu").startswith("install-")


def test_addresses_of_built_in_cards_come_next_in_whatever_order_they_are_named(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    a_card(first, "eth0", "pci0000:00/0000:00:03.0", "02:00:00:00:00:01")
    a_card(first, "eth1", "pci0000:00/0000:00:04.0", "02:00:00:00:00:02")
    a_card(first, "docker0", "virtual", "02:00:00:00:00:99")
    a_card(first, "usb0", "pci0000:00/usb1/1-1", "02:00:00:00:00:98")
    a_card(second, "eth0", "pci0000:00/0000:00:04.0", "02:00:00:00:00:02")
    a_card(second, "eth1", "pci0000:00/0000:00:03.0", "02:00:00:00:00:01")

    assert hardware_id(SysReader(first), "cpu") == hardware_id(SysReader(second), "cpu")
    assert hardware_id(SysReader(first), "cpu").startswith("network-")


def test_other_hardware_has_another_fingerprint(tmp_path: Path) -> None:
    a_card(tmp_path / "one", "eth0", "pci0000:00/0000:00:03.0", "02:00:00:00:00:01")
    a_card(tmp_path / "other", "eth0", "pci0000:00/0000:00:03.0", "02:00:00:00:00:02")

    assert hardware_id(SysReader(tmp_path / "one"), "c") != hardware_id(SysReader(tmp_path / "other"), "c")
