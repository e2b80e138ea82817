"""Both services say to systemd what their units wait for: ready, alive, stopping."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Each service with the fewest settings that let it start on this machine, without a broker.
SETTINGS = {
    "edge_agent": 'data_dir = "{data}"\n[mqtt]\nurl = "mqtt://127.0.0.1:9"\n',
    "cloud_coordinator": 'data_dir = "{data}"\n[api]\nlisten = "127.0.0.1:0"\n[mqtt]\nurl = "mqtt://127.0.0.1:9"\n',
}
WATCHDOG_USEC = 1_000_000
TIMEOUT_S = 30.0

pytestmark = pytest.mark.chaos


class Manager:
    """A service manager's end of the sd_notify protocol."""

    def __init__(self, path: Path) -> None:
        """Listen at `path`."""
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.bind(str(path))

    def wait_for(self, line: str) -> None:
        """Read until a datagram has this line; fail after the time-out."""
        while line not in self._socket.recv(4096).decode().splitlines():
            pass

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A manager that services find in NOTIFY_SOCKET."""
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


@pytest.mark.parametrize("module", sorted(SETTINGS))
def test_a_service_says_ready_alive_and_stopping(module: str, manager: Manager, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(SETTINGS[module].format(data=tmp_path / "data"))
    told = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": str(WATCHDOG_USEC)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, "--config", str(config)],
        env={**os.environ, **told},
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        manager.wait_for("READY=1")
        manager.wait_for("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1")

        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
