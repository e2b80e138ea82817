"""The command executor inside its child: one event loop, no threads.

Owns running commands and their whole end.

It dies with the agent, but not before it has killed what it started: the kernel tells it with SIGTERM, and
the channel's end tells it too. Should it be killed itself, the kernel kills the direct commands, the agent
the rest.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from devices.executors.channel import Cancel, FromChild, Heartbeat, Load, Result, Run, child_decoder, encode
from devices.executors.child import ChildChannel
from devices.executors.descendants import end_group, end_strays
from devices.executors.kernel import adopt_orphans, die_with_parent
from devices.executors.launch import CommandRefused, account_for, environment_of, find_program, launch
from devices.executors.spawned import Spawned, Tail, signal_name
from devices.reader import SysReader
from skerry.task import CommandSpec

#: Of each output stream the last bytes are kept.
TAIL_BYTES = 32 * 1024
_READ_BYTES = 1 << 16
#: How long an output may stay open after everything that could hold it was killed.
_DRAIN_S = 1.0


class Commands:
    """Runs commands for one device."""

    def __init__(self, load: Load, writer: asyncio.StreamWriter) -> None:
        """Start with nothing running."""
        self._load = load
        self._writer = writer
        self._reader = SysReader()
        self._living: dict[int, Spawned] = {}
        self._stops: dict[int, asyncio.Event] = {}
        self._homes: set[Path] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, message: FromChild) -> None:
        """Queue a message for the agent."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def beat(self) -> None:
        """Send heartbeats for ever."""
        while True:
            self.send(Heartbeat(ready=True, running=len(self._stops)))
            await asyncio.sleep(self._load.heartbeat_s)

    def handle(self, message: Run | Cancel | Load) -> None:
        """Start or stop an attempt."""
        if isinstance(message, Run):
            self._stops[message.run] = asyncio.Event()
            task = asyncio.create_task(self._attempt(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(message, Cancel) and message.run in self._stops:
            self._stops[message.run].set()

    def end_all(self) -> None:
        """Kill every command and everything it started, now."""
        for process in self._living.values():
            end_group(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + _DRAIN_S
        # With nothing spared: the direct commands are dying, whatever else is a child of ours follows.
        while end_strays("", frozenset(), self._reader) and time.monotonic() < deadline:
            time.sleep(0.005)
        for home in self._homes:
            shutil.rmtree(home, ignore_errors=True)

    async def _attempt(self, run: Run) -> None:
        begun = time.monotonic()
        try:
            result = await self._outcome(run)
        except CommandRefused as error:
            result = Result(run=run.run, status="invalid", error=str(error))
        except OSError as error:
            result = Result(run=run.run, status="failed", error=f"the command could not be run: {error}")
        except Exception as error:  # an attempt that says nothing would hold its slot until max_runtime_s
            result = Result(run=run.run, status="failed", error=f"the executor failed inside: {error!r}")
        del self._stops[run.run]
        self.send(_timed(result, time.monotonic() - begun))

    async def _outcome(self, run: Run) -> Result:
        if not isinstance(run.spec, CommandSpec):
            raise CommandRefused("this executor runs commands only")
        account = account_for(run.spec, self._load.command_user)
        home = self._private_directory(account is not None)
        try:
            if account is not None:
                os.chown(home, account.uid, account.gid)
            environment = environment_of(run, run.spec, home, self._load)
            program = find_program(run.spec.argv, environment, home)
            process = launch(program, run, run.spec, environment, home, account)
            command = self._living[process.pid] = Spawned(process)
            return await self._watch(run, run.spec, command, process)
        finally:
            shutil.rmtree(home, ignore_errors=True)
            self._homes.discard(home)

    def _private_directory(self, for_another_user: bool) -> Path:
        """The data directory is closed to other users, so theirs lies in the system's temporary directory."""
        base = Path(tempfile.gettempdir() if for_another_user else self._load.work_dir)
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        home = Path(tempfile.mkdtemp(prefix="skerry-", dir=base))
        self._homes.add(home)
        return home

    async def _watch(
        self, run: Run, spec: CommandSpec, command: Spawned, process: subprocess.Popen[bytes]
    ) -> Result:
        out, err = Tail(TAIL_BYTES), Tail(TAIL_BYTES)
        following = asyncio.gather(out.follow(process.stdout), err.follow(process.stderr))
        try:
            stopped = await self._ended(command, self._stops[run.run])
        finally:
            await self._clear(command, run.task_id)
        await asyncio.wait({following}, timeout=_DRAIN_S)
        following.cancel()
        return _result(run, spec, command.exited.result(), out, err, stopped)

    async def _ended(self, command: Spawned, stop: asyncio.Event) -> bool:
        """Wait for the command's end, or for the wish to stop it; then give it a grace to end by itself.

        Return whether it was stopped: one that had ended already is told as it ended.
        """
        stopped = asyncio.create_task(stop.wait())
        either: list[asyncio.Future[Any]] = [command.exited, stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if command.exited.done():
            return False
        end_group(command.pid, signal.SIGTERM)
        await asyncio.wait({command.exited}, timeout=self._load.kill_grace_s)
        end_group(command.pid, signal.SIGKILL)
        await command.exited
        return True

    async def _clear(self, command: Spawned, task_id: str) -> None:
        """Kill what the command left behind. An attempt has ended only when nothing of it runs."""
        end_group(command.pid, signal.SIGKILL)
        del self._living[command.pid]
        deadline = time.monotonic() + _DRAIN_S
        # Polled: the kernel tells nobody when a process is adopted.
        while (  # noqa: ASYNC110
            end_strays(task_id, frozenset(self._living), self._reader) and time.monotonic() < deadline
        ):
            await asyncio.sleep(0.005)


def _result(run: Run, spec: CommandSpec, code: int, out: Tail, err: Tail, stopped: bool) -> Result:
    values = {"exit_code": code, "stdout": out.text(), "stderr": err.text()}
    for name, tail in (("stdout", out), ("stderr", err)):
        if tail.dropped:
            values[f"{name}_dropped_bytes"] = tail.dropped
    if stopped:
        return Result(run=run.run, status="cancelled", result=values, error="stopped on request")
    if code == 0:
        return Result(run=run.run, status="succeeded", result=values)
    return Result(run=run.run, status="failed", result=values, error=_why(run, spec, code))


def _why(run: Run, spec: CommandSpec, code: int) -> str:
    name = spec.argv[0]
    if code >= 0:
        return f"command {name!r} ended with exit code {code}"
    limit = "" if spec.privileged else f" (its address space is limited to {run.memory_bytes} bytes)"
    return f"command {name!r} was killed by {signal_name(-code)}{limit}"


def _timed(result: Result, runtime_s: float) -> Result:
    return Result(
        run=result.run,
        status=result.status,
        result=result.result,
        error=result.error,
        runtime_s=runtime_s,
    )


async def _serve(channel: ChildChannel, load: Load, parent: int) -> None:
    reader, writer = await asyncio.open_connection(sock=channel.socket)
    commands = Commands(load, writer)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: _end(commands))
    die_with_parent(parent, signal.SIGTERM)  # instead of SIGKILL: there is something to end first
    beat = asyncio.create_task(commands.beat())
    decoder = child_decoder()
    while data := await reader.read(_READ_BYTES):
        for message in decoder.feed(data):
            commands.handle(message)
    beat.cancel()
    _end(commands)


def _end(commands: Commands) -> None:
    commands.end_all()
    os._exit(0)


def serve_commands(channel: ChildChannel, load: Load, parent: int) -> None:
    """Run commands until the agent closes the channel or dies."""
    adopt_orphans()
    asyncio.run(_serve(channel, load, parent))
