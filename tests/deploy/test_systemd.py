"""The systemd units are valid, tight and stubborn, as systemd's own tools judge them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
INSTALLED_PYTHON = "/opt/skerry/venv/bin/python"
#: Exposure as `systemd-analyze security` counts it (0 is none, 10 is all); its word for up to 4.0 is "OK".
HIGHEST_EXPOSURE = {"skerry-agent.service": 2.5, "skerry-coordinator.service": 2.0}

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (package systemd)"
)


@pytest.fixture(params=sorted(HIGHEST_EXPOSURE))
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit as installed, except that its interpreter exists on this machine."""
    name: str = request.param
    text = (UNITS / name).read_text().replace(INSTALLED_PYTHON, sys.executable)
    copy = tmp_path / name
    copy.write_text(text)
    return copy


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What systemd-analyze says, both streams in one."""
    return subprocess.run(
        ["systemd-analyze", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )


def test_verify_has_nothing_to_say_about_the_unit(unit: Path) -> None:
    done = analyze("verify", "--man=no", str(unit))

    assert (done.returncode, done.stdout) == (0, "")


def test_verify_notices_a_wrong_line(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtectHomes="))

    assert "ProtectHomes" in analyze("verify", "--man=no", str(unit)).stdout


def test_exposure_stays_under_the_stated_level(unit: Path) -> None:
    threshold = round(HIGHEST_EXPOSURE[unit.name] * 10)

    done = analyze("security", "--offline=true", f"--threshold={threshold}", "--no-pager", str(unit))

    assert done.returncode == 0, done.stdout


def test_exposure_of_a_loosened_unit_is_refused(unit: Path) -> None:
    loose = re.sub(r"(?m)^(?:SystemCall|Capability|Protect|Restrict).*\n", "", unit.read_text())
    unit.write_text(loose)
    threshold = round(HIGHEST_EXPOSURE[unit.name] * 10)

    done = analyze("security", "--offline=true", f"--threshold={threshold}", "--no-pager", str(unit))

    assert done.returncode != 0


@pytest.mark.parametrize(
    "line",
    [
        "Type=notify",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "KillMode=mixed",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
    ],
)
def test_the_unit_is_never_given_up_and_never_loosened(unit: Path, line: str) -> None:
    assert line in unit.read_text().splitlines()


def test_the_unit_waits_for_neither_network_nor_time(unit: Path) -> None:
    dependencies = [
        line for line in unit.read_text().splitlines() if re.match(r"(?:After|Wants|Requires|BindsTo)=", line)
    ]

    assert not [line for line in dependencies if re.search(r"network-online|time-(?:sync|set)", line)]


def test_each_unit_starts_a_module_that_exists(unit: Path) -> None:
    module = re.search(r"^ExecStart=\S+ -P -m (\w+) ", unit.read_text(), re.MULTILINE)

    assert module is not None
    assert (ROOT / module[1] / "__main__.py").is_file()


def test_the_users_of_the_units_are_made_by_sysusers(unit: Path) -> None:
    made = re.findall(r"^u (\S+)", (UNITS / "skerry.sysusers").read_text(), re.MULTILINE)
    user = re.search(r"^User=(.+)$", unit.read_text(), re.MULTILINE)

    assert user is not None
    assert user[1] in made


def test_the_drop_in_for_accelerators_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / "skerry-agent.service"
    unit.write_text((UNITS / unit.name).read_text().replace(INSTALLED_PYTHON, sys.executable))
    drop_in = tmp_path / "skerry-agent.service.d"
    drop_in.mkdir()
    shutil.copy(UNITS / "accelerators.conf", drop_in)

    done = analyze("verify", "--man=no", str(unit))

    assert (done.returncode, done.stdout) == (0, "")
