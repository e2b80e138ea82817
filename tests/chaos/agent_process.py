"""One agent as a real process on a folder, for tests that kill it, stop it, or move its clocks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from skerry.client import Client
from skerry.endpoint import Endpoint
from skerry.task import CommandSpec, Resources, TaskSpec

PATIENCE_S = 60.0
_SETTINGS = """\
data_dir = "{data}"
[api]
socket = "{socket}"
[rules]
enabled = false
[limits]
retry_base_s = 0.05
retry_most_s = 0.2
stop_grace_s = 0.2
[devices.children]
kill_grace_s = 0.2
{more}
"""


class AgentProcess:
    """An agent of this folder; it is ended by its id."""

    def __init__(self, folder: Path, *, more: str = "") -> None:
        """Write the settings.  more: further lines of TOML."""
        self.folder, self.data = folder, folder / "data"
        self.log = folder / "agent.log"
        self._socket, self._config = folder / "agent.sock", folder / "agent.toml"
        self._config.write_text(_SETTINGS.format(data=self.data, socket=self._socket, more=more))
        self._clients: list[Client] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, prefix: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Client:
        """Start it and wait until it answers.  prefix: a command that it is started under."""
        command = [*prefix, sys.executable, "-P", "-m", "edge_agent", "--config", str(self._config)]
        self._socket.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env={**os.environ, **(environ or {})}, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, "the agent does not come up"
            time.sleep(0.01)  # the process starts in its own time; polled with a deadline
        self._clients.append(Client.at(Endpoint(socket=self._socket)))
        return self._clients[-1]

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0

    @property
    def running(self) -> psutil.Process:
        """The agent's process, below a command that it was started under."""
        assert self.process is not None
        family = [
            psutil.Process(self.process.pid),
            *psutil.Process(self.process.pid).children(recursive=True),
        ]
        return next(each for each in family if "edge_agent" in each.cmdline())

    def kill(self) -> None:
        """Kill it with all that it had started; a second call does nothing."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self.process is None:
            return
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        for child in family:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.wait()
        psutil.wait_procs(family, timeout=PATIENCE_S)
        self.process = None


def command(*argv: str, **fields: object) -> TaskSpec:
    """Return a task that runs a command."""
    resources = Resources(cpu_millicores=100, memory_bytes=1 << 26)
    return TaskSpec(spec=CommandSpec(argv=argv), resources=resources, **fields)  # type: ignore[arg-type]
