"""A private broker on a loopback port: mosquitto where there is one, else the embedded default.

Owns the broker's process and files. The embedded broker is for the demo: it has no topic ACL, and a session
is gone once its connection breaks; signatures and our own acknowledgements do not need either.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Literal

from skerry.errors import SettingsError, TransportError
from skerry.transport.settings import MqttSettings

Kind = Literal["mosquitto", "embedded"]
Prefer = Literal["auto", "mosquitto", "embedded"]

HOST = "127.0.0.1"
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
MAX_PAYLOAD_BYTES = 1024 * 1024
_SEARCH = (os.defpath, "/usr/local/sbin", "/usr/sbin", "/sbin")
#: The child of the embedded broker; it ends when its standard input closes, so it cannot outlive its parent.
_EMBEDDED = """\
import sys; sys.path[:] = [p for p in sys.path if p not in ("", ".")]
from iotcore._serve import main; main()
"""


class RunningBroker:
    """A broker that runs as a child process; stop it before its directory goes."""

    def __init__(self, kind: Kind, directory: Path, port: int, command: list[str]) -> None:
        """Start it and wait until it listens.  Raises TransportError with what it said when it does not."""
        self.kind: Kind = kind
        self.host = HOST
        self.port = port
        self._command = command
        self._log = directory / "broker.log"
        self._process = self._launch()

    @property
    def pid(self) -> int:
        """Process id of the broker that runs now."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Its address, as MqttSettings takes it."""
        return f"mqtt://{self.host}:{self.port}"

    @property
    def settings(self) -> MqttSettings:
        """Settings for a client of this broker, with the adapter that suits it."""
        adapter: Literal["paho", "paho-quickack"] = "paho" if self.kind == "mosquitto" else "paho-quickack"
        return MqttSettings(url=self.url, adapter=adapter)

    @property
    def is_running(self) -> bool:
        """The process lives."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it in order; a broker that does not go in time is killed. Idempotent."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Kill it without warning, as a power cut would."""
        if self.is_running:
            self._process.kill()
        self._reap()

    def restart(self) -> None:
        """Start it again on the same port, stopping it first when it runs."""
        self.stop()
        self._process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            if _listens(self.port):
                return process
            time.sleep(0.02)  # there is no other sign of a broker that is ready
        process.kill()
        _reap(process)
        said = self._log.read_text(errors="replace")[-500:].strip()
        raise TransportError(f"the {self.kind} broker did not start on port {self.port}: {said}")

    def _reap(self) -> None:
        _reap(self._process)


def start_broker(directory: Path, *, prefer: Prefer = "auto", port: int | None = None) -> RunningBroker:
    """Start a private broker with its files in directory, on a free loopback port unless one is given.

    prefer: auto takes mosquitto when it is installed.  Raises SettingsError when the wanted one is not
    installed, TransportError when it does not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    chosen = port or free_port()
    program = find_mosquitto()
    if prefer == "mosquitto" and program is None:
        raise SettingsError("mosquitto is not installed; on Debian: apt-get install mosquitto")
    if program is not None and prefer != "embedded":
        return RunningBroker("mosquitto", directory, chosen, _mosquitto(program, directory, chosen))
    if find_spec("iotcore") is None:
        raise SettingsError("no broker: install mosquitto, or the extra `demo` for the embedded one")
    return RunningBroker("embedded", directory, chosen, _embedded(directory, chosen))


def find_mosquitto() -> str | None:
    """Return the path of mosquitto; the system folders are searched too, where Debian puts it."""
    return shutil.which("mosquitto", path=os.pathsep.join((os.environ.get("PATH", ""), *_SEARCH)))


def free_port() -> int:
    """Return a loopback port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _mosquitto(program: str, directory: Path, port: int) -> list[str]:
    # Nothing is kept on disk: what may not be lost is never left with a broker.
    path = directory / "mosquitto.conf"
    path.write_text(
        f"listener {port} {HOST}\n"
        "allow_anonymous true\n"
        "set_tcp_nodelay true\n"
        "persistence false\n"
        f"max_packet_size {MAX_PAYLOAD_BYTES}\n"
    )
    return [program, "-c", str(path)]


def _embedded(directory: Path, port: int) -> list[str]:
    path = directory / "rumqttd.toml"
    path.write_text(
        f"""\
id = 0

[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 200
max_segment_size = 8388608
max_segment_count = 4

[v5.1]
name = "loopback"
listen = "{HOST}:{port}"
next_connection_delay_ms = 1

[v5.1.connections]
connection_timeout_ms = 10000
max_payload_size = {MAX_PAYLOAD_BYTES}
max_inflight_count = 100
dynamic_filters = true
"""
    )
    return [sys.executable, "-c", _EMBEDDED, f'{{"config_path": "{path}"}}']


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=0.2):
            return True
    except OSError:
        return False


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait(STOP_TIMEOUT_S)
    pipe: IO[bytes] | None = process.stdin
    if pipe is not None:
        pipe.close()
