"""How a command is started: where it is found, what it sees, what limits it. Owns environment and limits.

Knows nothing of channels, and does not wait for what it starts.
"""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from devices.executors.channel import Load, Run
from devices.executors.kernel import die_with_parent, refuse_new_privileges
from skerry.task import CommandSpec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Names a task cannot set: they say who it is.
_RESERVED = "SKERRY_"


class CommandRefused(Exception):
    """The command can never run on this node."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A user to become."""

    uid: int
    gid: int


def account_for(spec: CommandSpec, name: str | None) -> Account | None:
    """Return the user a command runs as, None for the agent's own.

    Raises CommandRefused when the settings name one and the agent may not change its user, or
    does not know it.
    """
    if spec.privileged or name is None:
        return None
    if os.geteuid() != 0:
        raise CommandRefused(
            f"command_user is {name!r}, but only an agent started as root can change its user"
        )
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise CommandRefused(f"command_user {name!r} is not a user of this machine") from error
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def environment_of(run: Run, spec: CommandSpec, home: Path, load: Load) -> dict[str, str]:
    """Return what the command sees: a minimal environment, the task's own entries, and who it is.

    Raises CommandRefused for an entry that cannot be passed on.
    """
    for name, value in spec.env.items():
        if name.startswith(_RESERVED):
            raise CommandRefused(f"env.{name}: names that begin with {_RESERVED} are set by the agent")
        if not name or "=" in name or "\0" in name + value:
            raise CommandRefused(f"env.{name[:40]!r}: not a name and a value that a process can be given")
    inherited = {
        name: value for name, value in os.environ.items() if name in ("SKERRY_AGENT", "SKERRY_EXECUTOR")
    }
    witness = {"SKERRY_WITNESS": load.witness} if load.witness else {}
    place = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": str(home), "TMPDIR": str(home)}
    return {
        **place,
        **spec.env,
        **inherited,
        **witness,
        "SKERRY_TASK_ID": run.task_id,
        "SKERRY_FENCE": run.fence,
        "SKERRY_DEVICE": load.device_id,
    }


def find_program(argv: tuple[str, ...], environment: Mapping[str, str], home: Path) -> str:
    """Return the absolute path of the program.

    Raises CommandRefused, naming it and where it was looked for.
    """
    name = argv[0]
    if any("\0" in argument for argument in argv):
        raise CommandRefused("argv: an argument holds a NUL, which no process can be given")
    path = environment.get("PATH", _PATH)
    if "/" in name:
        candidate = home / name
        if not candidate.exists():
            raise CommandRefused(f"command {name!r}: there is no such file on this node")
        if candidate.is_dir() or not os.access(candidate, os.X_OK):
            raise CommandRefused(f"command {name!r} is not executable")
        return str(candidate)
    found = shutil.which(name, path=path)
    if found is None:
        raise CommandRefused(f"command {name!r} was not found on this node; looked in {path}")
    return found


def launch(
    program: str,
    run: Run,
    spec: CommandSpec,
    environment: Mapping[str, str],
    home: Path,
    account: Account | None,
) -> subprocess.Popen[bytes]:
    """Start the command in a session, and so a process group, of its own.  Raises CommandRefused."""
    stdin = _readable(spec.stdin.encode())
    try:
        return subprocess.Popen(
            spec.argv,
            executable=program,
            cwd=home,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # This process has one thread, so running Python between fork and exec cannot meet a held lock.
            preexec_fn=_before_exec(None if spec.privileged else run.memory_bytes),
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandRefused(f"command {spec.argv[0]!r} could not be started: {error}") from error
    finally:
        os.close(stdin)


def _readable(data: bytes) -> int:
    """Return a descriptor of data in memory: a command may read it or not, and nobody has to feed it."""
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _before_exec(memory_bytes: int | None) -> Callable[[], None]:
    parent = os.getpid()
    limit_bytes = memory_bytes if memory_bytes is None else _allowed(memory_bytes)

    def prepare() -> None:
        die_with_parent(parent)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit_bytes is not None:
            refuse_new_privileges()
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    return prepare


def _allowed(memory_bytes: int) -> int:
    """No process may raise the hard limit it was started with."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    return memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
