"""The reader answers with a value or a reason, whatever it meets."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from devices.reader import READ_LIMIT_BYTES, SysReader


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sys").mkdir()
    return tmp_path


def test_text_is_stripped_of_what_kernels_append(root: Path) -> None:
    (root / "sys/model").write_bytes(b"Board Rev 1.0\0\n")

    assert SysReader(root).text("/sys/model").value == "Board Rev 1.0"


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "empty"), (b"\n\0", "empty"), (b"bogus", "'bogus' is not a number")]
)
def test_what_is_no_number_is_a_reason(root: Path, content: bytes, reason: str) -> None:
    (root / "sys/temp").write_bytes(content)

    reading = SysReader(root).integer("/sys/temp")

    assert reading.value is None
    assert reason in reading.reason
    assert "/sys/temp" in reading.reason


@pytest.mark.parametrize(("text", "value"), [("-89700\n", -89700), ("0x1e60", 0x1E60), ("0", 0)])
def test_numbers_are_read_as_they_stand(root: Path, text: str, value: int) -> None:
    (root / "sys/temp").write_text(text)

    assert SysReader(root).integer("/sys/temp").value == value


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.ENODATA, errno.EBUSY, errno.EACCES])
def test_a_failing_sensor_is_a_reason_and_never_a_default(root: Path, number: int) -> None:
    (root / "sys/temp").write_text("45000")

    reading = SysReader(root, faults={"/sys/temp": number}).integer("/sys/temp")

    assert reading.value is None
    assert reading.reason.startswith("/sys/temp: ")


def test_what_is_absent_or_a_directory_is_a_reason(root: Path) -> None:
    reader = SysReader(root)

    assert reader.text("/sys/none").reason == "/sys/none: not present"
    assert reader.text("/sys").value is None
    assert reader.names("/sys/none").value is None
    assert reader.target("/sys/none").value is None
    assert reader.names("/sys/none").or_else(()) == ()


def test_names_are_sorted_and_links_are_read_as_written(root: Path) -> None:
    for name in ("b", "a"):
        (root / "sys" / name).touch()
    (root / "sys/link").symlink_to("../devices/pci0000:00")

    assert SysReader(root).names("/sys").value == ("a", "b", "link")
    assert SysReader(root).target("/sys/link").value == "../devices/pci0000:00"
    assert SysReader(root).exists("/sys/link")


def test_a_file_without_end_is_cut(root: Path) -> None:
    os.symlink("/dev/zero", root / "sys/zero")

    assert SysReader(root).data("/sys/zero").value == bytes(READ_LIMIT_BYTES)


def test_the_real_machine_is_readable() -> None:
    assert SysReader().text("/proc/self/status").or_else("").startswith("Name:")
