"""One long-running service as a child process: started until ready, killed or stopped by its own id."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from skerry.errors import SkerryError

_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 20.0


class FleetError(SkerryError):
    """A process of the fleet did not do what it should."""


class ServiceProcess:
    """One long-running process with its log file; readiness is asked over its Unix socket."""

    def __init__(self, name: str, module: str, config: Path, socket_path: Path, log: Path) -> None:
        """Describe it; nothing runs yet."""
        self.name = name
        self.socket_path = socket_path
        self._command = [sys.executable, "-m", module, "--config", str(config)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id while it runs.  Raises FleetError otherwise."""
        if self._process is None:
            raise FleetError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not is_live(self.socket_path):
            if self._process.poll() is not None:
                raise FleetError(
                    f"{self.name} ended with status {self._process.returncode}:\n{self._last_words()}"
                )
            if time.monotonic() > deadline:
                raise FleetError(
                    f"{self.name} was not ready after {_READY_TIMEOUT_S:.0f} s:\n{self._last_words()}"
                )
            time.sleep(0.05)  # polling another process: nothing here could be waited on

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when it does not end in time (which is a failure)."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise FleetError(
                f"{self.name} did not stop within {_STOP_TIMEOUT_S:.0f} s of {how.name}"
            ) from error

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
        return "(no log)"


def is_live(socket_path: Path) -> bool:
    """Ask /healthz over a Unix socket; False when nothing answers."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(1.0)
            link.connect(str(socket_path))
            link.sendall(request)
            return link.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


def run_skerry(*arguments: str) -> str:
    """Run one `skerry` command and return what it printed.  Raises FleetError with its message."""
    done = subprocess.run(
        [sys.executable, "-m", "skerry.cli", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise FleetError(
            f"skerry {' '.join(arguments[:2])} failed: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout
