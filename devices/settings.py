"""Settings of a node's devices, as they stand in the agent's settings file. Owns names and defaults only."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1, le=1024)]


class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How executor children are run and watched. Durations in seconds."""

    #: How long a child may take to load its runtime; onnxruntime takes several seconds on a small board.
    start_timeout_s: Positive = 60.0
    heartbeat_s: Positive = 1.0
    #: A child silent for this long is ended and counted as a fault of its device.
    heartbeat_timeout_s: Positive = 15.0
    #: How long an attempt may take to stop when asked, before it is killed.
    kill_grace_s: Positive = 2.0
    #: The first wait after a fault; it doubles with each further one, up to the limit.
    backoff_s: Positive = 0.5
    backoff_limit_s: Positive = 300.0
    nice: Annotated[int, Meta(ge=0, le=19)] = 5
    #: Threads inside one inference. More than one is slower when every slot is busy.
    threads: Count = 1
    #: Models a child keeps loaded; the one used longest ago makes room.
    sessions: Count = 4
    #: Results above this are refused, all outputs of an attempt together.
    output_limit_bytes: Annotated[int, Meta(ge=1024)] = 64 * 1024 * 1024
    #: The program that becomes a child; what follows is its arguments.
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "devices.executors.child")


class DeviceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a node."""

    #: Attempts that may run on the processor at once; default: its whole cores.
    cpu_slots: Count | None = None
    #: Boards to emulate, by name (see docs/reference/devices.md); a name may stand more than once.
    emulated: tuple[str, ...] = ()
    #: User for commands that are not privileged; default: the agent's own. Only an agent started as root
    #: can change it.
    command_user: str | None = None
    #: A file to which each finished inference appends a line; commands find it in $SKERRY_WITNESS.
    witness: str | None = None
    children: ChildSettings = ChildSettings()
