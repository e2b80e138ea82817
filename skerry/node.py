"""Nodes and their devices as the whole fleet sees them. Pure values; the register lives elsewhere."""

from __future__ import annotations

from typing import Literal

import msgspec

from skerry.decoding import Number

DeviceClass = Literal["cpu", "gpu", "npu", "tpu"]


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An accelerator, or the CPU, that can run tasks."""

    device_id: str  #: stable across reboots, unique on its node, for example cpu-0f3a91c2
    device_class: DeviceClass
    name: str  #: for people: the model of the board or processor
    executors: tuple[str, ...]  #: which executors it has: onnx, command
    slots: Number = 1  #: attempts that may run on it at once
    memory_bytes: Number = 0
    cpu_millicores: Number = 0  #: of a CPU: what the agent may use, cgroup limits counted
    emulated: bool = False  #: a board's fixture with a model of its speed; computes the real result
    #: Relative speed for models, 1.0 = one CPU slot of this node; used until a measurement exists.
    speed: float = 1.0
    power_w: float | None = None
    usable: bool = True
    reason: str = ""  #: why it is not usable


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has."""

    devices: tuple[Device, ...]
    cpu_millicores: Number
    memory_bytes: Number
    machine: str = ""  #: processor architecture
    hardware_id: str = (
        ""  #: fingerprint of the hardware, `<source>-<digest>`; another under a known key is a clone
    )
    labels: dict[str, str] = {}
    can_train: bool = False  #: its operator lets it take part in federated rounds, and it has what that needs


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node in the coordinator's register."""

    name: str
    fleet: str
    region: str
    site: str = ""
    parent: str | None = None  #: the coordinator above it when coordinators nest
    public_key: str = ""  #: ed25519, 64 hex digits
    inventory: Inventory | None = None
    boot_id: str = ""
    session: int = 0
    store_epoch: str = ""  #: of the node's queue: another one means that its queue was lost or restored
    status: Literal["enrolled", "online", "stale", "lost", "quarantined"] = "enrolled"
    version: str = ""
    last_seen_wall_s: float = 0.0
    running: int = 0
    queued: int = 0
