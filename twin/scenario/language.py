"""A scenario as it is written (TOML), checked as a whole. Plain values; knows no world."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skerry.errors import SpecError
from skerry.ids import check_name
from skerry.task import Accelerator, Effect
from twin.scenario.expect import Expect
from twin.scenario.faults import Fault, Seconds, Share


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a scenario."""


class Group(_Table, frozen=True, kw_only=True):
    """Nodes of one kind: named NAME when there is one, NAME-1 … NAME-N otherwise."""

    name: str
    count: Annotated[int, Meta(ge=1, le=100_000)] = 1
    region: str = "north"
    site: str = ""
    devices: tuple[Literal["cpu", "gpu", "npu", "tpu"], ...] = ("cpu",)
    slots: Annotated[int, Meta(ge=1, le=64)] = 4
    queue_bytes: Annotated[int, Meta(ge=1 << 20)] = 1 << 34


class Load(_Table, frozen=True, kw_only=True):
    """Tasks submitted at each node of `on`, from begin_s for for_s seconds (0: as long as the load lasts)."""

    on: str = "all"
    rate_per_s: Annotated[float, Meta(gt=0)] = 1.0
    arrival: Literal["steady", "poisson"] = "steady"
    begin_s: Seconds = 0.0
    for_s: Seconds = 0.0
    kind: str = "task"
    runtime_s: tuple[Seconds, Seconds] = (0.2, 0.6)  #: drawn between the two
    fails: Share = 0.0  #: share of attempts that fail
    retries: Annotated[int, Meta(ge=0, le=100)] = 20
    max_runtime_s: Annotated[float, Meta(gt=0)] = 300.0
    effect: Effect = "idempotent"
    priority: Annotated[int, Meta(ge=0, le=9)] = 4
    needs: Accelerator = "any"
    pin: str = ""  #: they may run on this node only
    expires_after_s: Annotated[float, Meta(gt=0)] | None = None
    ordering_keys: Annotated[int, Meta(ge=0)] = 0  #: so many keys, in turn
    is_keyed: bool = True  #: its producer asks again under one idempotency key until it is answered
    payload_bytes: Annotated[int, Meta(ge=0, le=16_384)] = 16
    result_bytes: Annotated[int, Meta(ge=0, le=16_384)] = 0


class Round(_Table, frozen=True, kw_only=True):
    """A federated run, started at_s seconds after the load begins. Training is emulated and takes train_s."""

    name: str
    at_s: Seconds = 0.0
    on: str = "all"  #: who takes part
    strategy: Literal["synchronous", "buffered"] = "synchronous"
    rounds: Annotated[int, Meta(ge=1, le=1000)] = 3  #: versions to make
    quorum: Annotated[int, Meta(ge=1)] = 2
    deadline_s: Annotated[float, Meta(gt=0)] = 600.0
    patience_s: Annotated[float, Meta(gt=0)] = 24 * 3600.0
    max_staleness: Annotated[int, Meta(ge=0, le=1000)] = 3
    buffer: Annotated[int, Meta(ge=1)] = 2
    train_s: tuple[Seconds, Seconds] = (20.0, 60.0)  #: drawn between the two
    size: Annotated[int, Meta(ge=1, le=7000)] = 64  #: parameters of the model


class RolloutPart(_Table, frozen=True, kw_only=True):
    """A policy is offered at_s seconds after the load begins. It decides as the fallback does (emulated)."""

    version: str
    at_s: Seconds = 0.0
    canaries: tuple[str, ...] = ()  #: nodes; empty: one of those connected
    passes_at: Literal["shadow", "canary", "partial", "full"] = "shadow"  #: where a canary's gate must be
    wave_s: Annotated[float, Meta(gt=0)] = 6 * 3600.0
    silence_s: Annotated[float, Meta(gt=0)] = 600.0
    patience_s: Annotated[float, Meta(gt=0)] = 3 * 86400.0  #: how long it waits for a canary that is away


class CoordinatorPart(_Table, frozen=True, kw_only=True):
    """The coordinator's numbers."""

    lease_s: Annotated[float, Meta(ge=1)] = 900.0
    state_interval_s: Annotated[float, Meta(gt=0)] = 5.0
    reconnects_per_s: Annotated[float, Meta(gt=0)] = 200.0


class Scenario(_Table, frozen=True, kw_only=True):
    """A world, its work, and what goes wrong.

    load_s: how long tasks are submitted.  settle_s: how long after that everything must have ended.
    """

    name: str
    about: str = ""
    shows: tuple[str, ...] = ()  #: kinds of faults that people met
    load_s: Annotated[float, Meta(gt=0)]
    settle_s: Seconds = 120.0
    coordinator: CoordinatorPart = CoordinatorPart()
    group: tuple[Group, ...]
    load: tuple[Load, ...] = ()
    fault: tuple[Fault, ...] = ()
    round: tuple[Round, ...] = ()
    rollout: tuple[RolloutPart, ...] = ()
    expect: Expect = Expect()


def parse_scenario(text: str, *, source: str = "the scenario") -> Scenario:
    """Return a scenario from TOML.  Raises SpecError that names the field at fault."""
    try:
        scenario = msgspec.convert(tomllib.loads(text), type=Scenario)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{source} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise SpecError(f"{source}: {error}") from error
    return check_scenario(scenario)


def load_scenario(path: Path) -> Scenario:
    """Return the scenario in a file.  Raises SpecError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"the scenario {path} cannot be read: {error.strerror}") from error
    return parse_scenario(text, source=str(path))


def check_scenario(scenario: Scenario) -> Scenario:
    """Return the scenario when it hangs together.  Raises SpecError."""
    check_name(scenario.name, what="name")
    names = [name for group in scenario.group for name in names_of(group)]
    for name in names:
        check_name(name, what="group.name")
    if len(set(names)) != len(names):
        raise SpecError(f"two nodes have one name: {sorted(n for n in names if names.count(n) > 1)[0]}")
    named = [part.on for part in (*scenario.load, *scenario.fault, *scenario.round)]
    pins = [load.pin for load in scenario.load] + [n for one in scenario.rollout for n in one.canaries]
    for who in (
        *named,
        *(who for who in (*pins, scenario.expect.online, scenario.expect.quarantined) if who),
    ):
        if not who.startswith("some:"):
            select(scenario, who)
        elif not who[5:].isdigit() or not 1 <= int(who[5:]) <= len(names):
            raise SpecError(f"on = {who!r}: there are {len(names)} nodes; some:N takes N of them")
    return scenario


def names_of(group: Group) -> tuple[str, ...]:
    """Return the names of a group's nodes."""
    return (group.name,) if group.count == 1 else tuple(f"{group.name}-{n + 1}" for n in range(group.count))


def select(scenario: Scenario, who: str) -> tuple[str, ...]:
    """Return the nodes that `who` names.  Raises SpecError when it names none."""
    found = tuple(
        name
        for group in scenario.group
        for name in names_of(group)
        if who in ("all", group.name, name, f"region:{group.region}", f"site:{group.site}")
    )
    if not found:
        raise SpecError(
            f"on = {who!r} names no node: use all, some:N, a node, a group, region:NAME or site:NAME"
        )
    return found
