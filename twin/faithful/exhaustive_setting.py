"""Where the exhaustive check begins: two agents that are welcome, a coordinator that knows them, two tasks.

Owns the parts' names and places, and the kinds of tasks that can be checked.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from skerry.errors import SpecError
from skerry.identity import Enrolment, PrivateKey
from skerry.node import Device, DeviceClass, NodeRecord
from skerry.task import CommandSpec, Resources, TaskSpec
from skerry.topics import UP, parse
from twin.faithful.exhaustive_agent import AgentPart
from twin.faithful.exhaustive_cloud import CloudPart

FLEET = "check"
AGENTS = (0, 1)
CLOUD = 2
#: How far the clock goes at a wait: everything that was sent and not answered is due again, seconds.
WAIT_S = 31.0
NAMES = ("a", "b", "coordinator")

Needs = Literal["cpu", "gpu"]
Effect = Literal["idempotent", "at_most_once"]
#: What the two tasks are. Both are submitted at `a`, which has a processor; `b` has an accelerator.
TASKS: dict[str, tuple[tuple[Needs, Effect], ...]] = {
    "across": (("gpu", "idempotent"), ("gpu", "idempotent")),
    "mixed": (("cpu", "idempotent"), ("gpu", "idempotent")),
    "once": (("gpu", "at_most_once"), ("gpu", "idempotent")),
}


@dataclass
class Setting:
    """A beginning. presence: what the broker retains of each agent: topic and payload."""

    name: str
    tasks: tuple[TaskSpec, ...]
    parts: tuple[AgentPart, AgentPart, CloudPart]
    presence: list[tuple[str, bytes]]

    def place_of(self, topic: str) -> int:
        """Return the place of the part that hears what is said on a topic."""
        where = parse(topic)
        return CLOUD if where.leaf in UP else NAMES.index(where.node)


def make_setting(name: str) -> Setting:
    """Bring the parts together.  Raises SpecError for tasks that there are not."""
    if name not in TASKS:
        raise SpecError(f"there are no tasks {name!r}; known: {', '.join(TASKS)}", field="tasks")
    cloud_key, keys = _key("coordinator"), {name: _key(name) for name in NAMES[:2]}
    records = tuple(
        NodeRecord(name=name, fleet=FLEET, region="r", public_key=key.public_hex)
        for name, key in keys.items()
    )
    setting = Setting(
        name,
        tuple(_task(needs, effect) for needs, effect in TASKS[name]),
        (
            AgentPart(_enrolment("a", cloud_key), keys["a"], _device("cpu")),
            AgentPart(_enrolment("b", cloud_key), keys["b"], _device("gpu")),
            CloudPart(FLEET, cloud_key, records),
        ),
        [],
    )
    _come_together(setting)
    return setting


def _come_together(setting: Setting) -> None:
    """Deliver everything in order until nothing is said any more."""
    for place in AGENTS:
        setting.parts[place].settle()  # type: ignore[union-attr] # the first two are agents
    said = True
    while said:
        heard = [word for part in setting.parts for word in part.outlet.said]
        for part in setting.parts:
            part.outlet.said.clear()
        for topic, payload, is_retained in heard:
            if is_retained:
                setting.presence.append((topic, payload))
            part = setting.parts[setting.place_of(topic)]
            part.hear(topic, payload)
            if isinstance(part, AgentPart):
                part.settle()
        said = bool(heard)


def _task(needs: Needs, effect: Effect) -> TaskSpec:
    return TaskSpec(
        spec=CommandSpec(argv=("true",)),
        kind="check",
        resources=Resources(
            cpu_millicores=100, memory_bytes=1 << 24, accelerator="none" if needs == "cpu" else "gpu"
        ),
        effect=effect,
        max_runtime_s=86_400.0,
    )


def _device(kind: DeviceClass) -> Device:
    return Device(
        device_id=f"{kind}-0",
        device_class=kind,
        name=f"emulated {kind}",
        executors=("command",),
        emulated=True,
    )


def _enrolment(name: str, cloud_key: PrivateKey) -> Enrolment:
    return Enrolment(
        fleet=FLEET,
        node=name,
        region="r",
        coordinator_url="",
        coordinator_public_key=cloud_key.public_hex,
        broker_url="mqtt://emulated",
    )


def _key(name: str) -> PrivateKey:
    seeded = hashlib.sha256(f"exhaustive check {name}".encode()).digest()
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(seeded))
