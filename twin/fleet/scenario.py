"""One episode drawn from a seed: a site's devices, and the stream of tasks that arrives there.

Owns the distributions. Every number comes from a Philox generator keyed by (seed, episode), so an episode is
the same alone, in any batch and in any process. Times in seconds, energy in joules, memory in megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy.device_plan import LOADING_POWER
from policy.features import CLASSES
from policy.objective import PRIORITY_WEIGHTS
from twin.fleet.kinds import (
    DEVICE_CLASSES,
    KINDS,
    LINK_JOULE_PER_MB,
    LINK_JOULE_PER_TASK,
    LINK_OVERHEAD_S,
    REMOTE_POWER_W,
    REMOTE_SLOWDOWN,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
OFFLOAD = CLASSES.index("offload")

#: The priorities that arrive, how often, and their deadline in reference times.
PRIORITIES = (2, 5, 8)
PRIORITY_SHARES = (0.4, 0.4, 0.2)
DEADLINE_FACTORS = (15.0, 6.0, 3.0)
#: Throughput of a site whose tasks go where they run well, relative to devices that each take the whole mix.
SPECIALISED = 2.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What episodes are drawn from. Loads are shares of what the site's own devices can do."""

    devices: tuple[int, int] = (8, 8)  #: fewest and most, the link among them
    tasks: int = 160
    has_link: bool = True
    calm_load: tuple[float, float] = (0.4, 0.6)
    burst_load: tuple[float, float] = (1.4, 2.0)
    calm_s: float = 4.0  #: mean length of a calm spell on a site of 8 devices
    burst_s: float = 1.5
    load_factor: float = 1.0
    noise: float = 0.12  #: log-normal sigma of real run times around the expected ones
    deadline_offset_s: tuple[float, float] = (0.03, 0.09)
    cold: bool = False  #: start with no model loaded


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One drawn episode: arrays per device, per device and kind [devices, kinds], and per task."""

    device_class: Ints
    unit_s: Floats  #: [devices, kinds] expected run time at size 1; 0 where unsupported
    supported: NDArray[np.bool_]  #: [devices, kinds]
    tail_s: Floats  #: [devices, kinds] from leaving the device to being complete
    unit_j: Floats  #: [devices, kinds] joules at size 1
    load_s: Floats  #: [devices, kinds]
    load_j: Floats  #: [devices, kinds]
    memory_mb: Floats  #: [devices]
    resident: Ints  #: [devices] bits of the models loaded at the start
    arrival_s: Floats
    kind: Ints
    size: Floats
    priority: Ints
    weight: Floats
    deadline_s: Floats  #: from arrival
    noise: Floats  #: real / expected run time; no scheduler sees it


def draw(scenario: Scenario, seed: int, episode: int) -> Episode:
    """Return the episode with this number under this seed."""
    rng = np.random.Generator(np.random.Philox(key=[seed, episode]))
    site = _site(scenario, rng)
    mix = np.array([k.share for k in KINDS]) * rng.gamma(3.0, size=len(KINDS))
    mix /= mix.sum()
    return Episode(**site, **_stream(scenario, rng, mix, _capacity(site, mix)))


def _site(scenario: Scenario, rng: np.random.Generator) -> dict[str, Any]:
    low, high = scenario.devices
    count = int(rng.integers(low, high + 1))
    local = max(count - scenario.has_link, 1)
    classes = rng.choice(len(DEVICE_CLASSES), size=local, p=(0.3, 0.2, 0.3, 0.2))
    classes[0] = 0  # a node has a CPU, and with it something for every kind
    speed = rng.lognormal(0.0, 0.3, size=local)
    rows = [_device(int(c), float(v), rng) for c, v in zip(classes, speed, strict=True)]
    if scenario.has_link:
        rows.append(_link(rng))
    site = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    site["resident"] = np.zeros(len(rows), dtype=np.int64) if scenario.cold else _warm(site, rng)
    site["resident"][site["device_class"] == OFFLOAD] = (1 << len(KINDS)) - 1
    return site


def _device(index: int, speed: float, rng: np.random.Generator) -> dict[str, Any]:
    kind = DEVICE_CLASSES[index]
    pair = rng.lognormal(0.0, 0.15, size=len(KINDS))
    memory = kind.memory_mb * float(rng.choice((1.0, 1.0, 2.0)))
    models = np.array([k.model_mb for k in KINDS])
    supported = np.array([s is not None for s in kind.slowdown]) & (models <= memory)
    slow = np.array([s or 0.0 for s in kind.slowdown])
    unit_s = np.where(supported, np.array([k.reference_s for k in KINDS]) * slow * pair / speed, 0.0)
    load_s = np.where(supported, models / kind.load_mb_s, 0.0)
    power_w = kind.power_w * float(rng.lognormal(0.0, 0.15))
    return {
        "device_class": index,
        "unit_s": unit_s,
        "supported": supported,
        "tail_s": np.zeros(len(KINDS)),
        "unit_j": power_w * unit_s,
        "load_s": load_s,
        "load_j": power_w * LOADING_POWER * load_s,
        "memory_mb": memory,
    }


def _link(rng: np.random.Generator) -> dict[str, Any]:
    mb_s = float(rng.lognormal(np.log(6.0), 0.4))
    rtt_s = float(rng.lognormal(np.log(0.05), 0.4))
    inputs = np.array([k.input_mb for k in KINDS])
    remote_s = np.array([k.reference_s for k in KINDS]) * REMOTE_SLOWDOWN
    energy = LINK_JOULE_PER_TASK + LINK_JOULE_PER_MB * inputs + REMOTE_POWER_W * remote_s
    none = np.zeros(len(KINDS))
    return {
        "device_class": OFFLOAD,
        "unit_s": LINK_OVERHEAD_S + inputs / mb_s,
        "supported": np.ones(len(KINDS), dtype=bool),
        "tail_s": rtt_s + remote_s,
        "unit_j": energy,
        "load_s": none,
        "load_j": none,
        "memory_mb": 1e9,
    }


def _warm(site: dict[str, Any], rng: np.random.Generator) -> Ints:
    """Load models in random order as far as memory goes, about half of what would fit."""
    resident = np.zeros(len(site["memory_mb"]), dtype=np.int64)
    for d in range(len(resident)):
        left = float(site["memory_mb"][d]) * 0.6
        for k in rng.permutation(len(KINDS)):
            if site["supported"][d, k] and KINDS[k].model_mb <= left and rng.random() < 0.6:
                resident[d] |= 1 << int(k)
                left -= KINDS[k].model_mb
    return resident


def _capacity(site: dict[str, Any], mix: Floats) -> float:
    """Tasks per second that the site's own devices can do when each kind goes where it runs well."""
    local = site["device_class"] != OFFLOAD
    supported, unit_s = site["supported"][local], site["unit_s"][local]
    share = (mix * supported).sum(axis=1)
    mean_s = (mix * np.asarray(unit_s, dtype=np.float64)).sum(axis=1) / np.maximum(share, 1e-9)
    rates = np.where(share > 0, share / np.maximum(mean_s, 1e-9), 0.0)
    return SPECIALISED * float(rates.sum())


def _stream(scenario: Scenario, rng: np.random.Generator, mix: Floats, capacity: float) -> dict[str, Any]:
    n = scenario.tasks
    kind = rng.choice(len(KINDS), size=n, p=mix)
    level = rng.choice(len(PRIORITIES), size=n, p=PRIORITY_SHARES)
    size = rng.lognormal(-0.06, 0.35, size=n)
    reference_s = np.array([k.reference_s for k in KINDS])[kind] * size
    offset_s = rng.uniform(*scenario.deadline_offset_s, size=n)
    priority = np.array(PRIORITIES)[level]
    return {
        "arrival_s": _arrivals(scenario, rng, capacity * scenario.load_factor),
        "kind": kind.astype(np.int64),
        "size": size,
        "priority": priority.astype(np.int64),
        "weight": np.array(PRIORITY_WEIGHTS)[priority],
        "deadline_s": np.array(DEADLINE_FACTORS)[level] * reference_s + offset_s,
        "noise": rng.lognormal(-0.5 * scenario.noise**2, scenario.noise, size=n),
    }


def _arrivals(scenario: Scenario, rng: np.random.Generator, capacity: float) -> Floats:
    """Arrivals of a two-state process: calm and burst, each with its own rate for the whole episode."""
    rates = (
        capacity * rng.uniform(*scenario.calm_load),
        capacity * rng.uniform(*scenario.burst_load),
    )
    # Spells shrink with the site's rate, so that an episode of fixed length sees several on any site.
    spell = scenario.tasks / capacity / 8.0
    lengths = (spell * scenario.calm_s / 2.0, spell * scenario.burst_s / 2.0)
    gaps, draws = rng.exponential(size=scenario.tasks), rng.exponential(size=64 + scenario.tasks)
    bursting = bool(rng.random() < 0.3)
    now, spell_end, used = 0.0, lengths[bursting] * draws[0], 1
    arrivals = np.empty(scenario.tasks)
    for i, gap in enumerate(gaps):
        left = float(gap)
        while now + left / rates[bursting] > spell_end:
            left -= (spell_end - now) * rates[bursting]
            now, bursting = spell_end, not bursting
            spell_end = now + lengths[bursting] * draws[used % len(draws)]
            used += 1
        now += left / rates[bursting]
        arrivals[i] = now
    return arrivals
