"""What can go wrong, by kind: one struct a kind, as it stands in a scenario's `[[fault]]`. Plain values.

`on` names whom it hits: all, a node, a group of nodes, `region:NAME`, `site:NAME`, or `some:N` (drawn by the
seed).
A fault with `for_s` ends by itself; with `every_s` and `times` it comes again.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """at_s: seconds after the load begins."""

    at_s: Seconds
    on: str = "all"
    every_s: Seconds = 0.0
    times: Annotated[int, Meta(ge=1)] = 1
    spread_s: Seconds = 0.0  #: each time is moved by a draw up to this


class Cut(_Fault, frozen=True, kw_only=True, tag="cut"):
    """Connections break, and cannot be made again until it ends."""

    for_s: Seconds


class Partition(_Fault, frozen=True, kw_only=True, tag="partition"):
    """Nothing passes either way, and nobody is told: connections stay half open."""

    for_s: Seconds


class Deaf(_Fault, frozen=True, kw_only=True, tag="deaf"):
    """What is sent to them is lost; what they send arrives."""

    for_s: Seconds


class Mute(_Fault, frozen=True, kw_only=True, tag="mute"):
    """What they send is lost; what is sent to them arrives: a broker that accepts and discards."""

    for_s: Seconds


class Wire(_Fault, frozen=True, kw_only=True, tag="wire"):
    """Bad wires for everybody: delay between the two values, and shares of lost and doubled messages."""

    for_s: Seconds
    delay_s: tuple[float, float] = (0.001, 0.001)
    loss: Share = 0.0
    duplication: Share = 0.0
    reordering: bool = False
    bytes_per_s: Annotated[float, Meta(ge=0)] = 0.0


class BrokerCrash(_Fault, frozen=True, kw_only=True, tag="broker_crash"):
    """The broker dies with everything it held, and is started again."""

    down_s: Seconds = 5.0


class Throttle(_Fault, frozen=True, kw_only=True, tag="throttle"):
    """The coordinator has no room: it takes nothing and says when to come again."""

    for_s: Seconds
    retry_after_s: Seconds = 30.0


class CoordinatorKill(_Fault, frozen=True, kw_only=True, tag="coordinator_kill"):
    """The coordinator is killed, and started again on its ledger.

    in_commit: with one of the next commits on its disk, before anybody has heard of it.
    """

    down_s: Seconds = 5.0
    in_commit: bool = False


class AgentKill(_Fault, frozen=True, kw_only=True, tag="agent_kill"):
    """Agents are killed, and started again on their disks.

    in_commit: with one of the next commits on the disk, before anybody has heard of it.
    """

    down_s: Seconds = 2.0
    in_commit: bool = False


class PowerCut(_Fault, frozen=True, kw_only=True, tag="power_cut"):
    """Machines lose power: what their disks had not synced may be gone; they boot again.

    in_commit: it goes in the middle of the next commit, if there is one within ten seconds; else at once.
    wall_s: what the wall clock shows at boot, seconds since 1970; without it, it is as right as it was.
    right_after_s: how long after the boot a time server sets it right; without it, nobody does.
    """

    down_s: Seconds = 30.0
    in_commit: bool = True
    wall_s: float | None = None
    right_after_s: Seconds | None = None


class DiskFull(_Fault, frozen=True, kw_only=True, tag="disk_full"):
    """Nothing more can be written."""

    for_s: Seconds


class Damage(_Fault, frozen=True, kw_only=True, tag="damage"):
    """The queue's file is damaged while its agent is down, or under it.

    how: noise in some pages, zeros, empty, cut_short, gone, or rows_by_hand (some deleted, some rewritten).
    is_running: the agent is not killed; its check of the whole file meets the damage.  noise only.
    """

    how: Literal["noise", "zeros", "empty", "cut_short", "gone", "rows_by_hand"] = "noise"
    down_s: Seconds = 2.0
    is_running: bool = False


class SecondStart(_Fault, frozen=True, kw_only=True, tag="second_start"):
    """Somebody starts a second agent on the directory of the one that runs."""


class SlowDisk(_Fault, frozen=True, kw_only=True, tag="slow_disk"):
    """Every synced commit takes so long."""

    for_s: Seconds
    commit_s: Seconds = 0.5


class ClockStep(_Fault, frozen=True, kw_only=True, tag="clock_step"):
    """The wall clock is stepped. coordinator: the coordinator's too."""

    by_s: float
    coordinator: bool = False


class Suspend(_Fault, frozen=True, kw_only=True, tag="suspend"):
    """Machines are suspended, and wake."""

    for_s: Seconds


class Clone(_Fault, frozen=True, kw_only=True, tag="clone"):
    """A copy of the node's disk is started on another machine, beside the original."""

    for_s: Seconds


class DeviceFault(_Fault, frozen=True, kw_only=True, tag="device_fault"):
    """Every attempt ends as a fault of its device."""

    for_s: Seconds


Fault = (
    Cut
    | Partition
    | Deaf
    | Mute
    | Wire
    | BrokerCrash
    | Throttle
    | CoordinatorKill
    | AgentKill
    | PowerCut
    | DiskFull
    | Damage
    | SecondStart
    | SlowDisk
    | ClockStep
    | Suspend
    | Clone
    | DeviceFault
)


def over_s(fault: Fault) -> float:
    """Return when a fault is over for the last time, seconds after the load begins."""
    lasts_s = getattr(fault, "for_s", 0.0) + getattr(fault, "down_s", 0.0)
    return fault.at_s + (fault.times - 1) * fault.every_s + fault.spread_s + lasts_s
