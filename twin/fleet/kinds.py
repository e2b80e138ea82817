"""The task kinds and device classes that scenarios are drawn from: times, models, joules.

Owns the table only. Shapes follow published inference speeds of small models on boards and cards of each
class; a site draws its devices around them. A pair that cannot run is named, never hidden behind a huge time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of task. reference_s: one inference of average size on the reference GPU."""

    name: str
    reference_s: float
    model_mb: float
    input_mb: float  #: what the offload link has to carry
    share: float  #: of the arriving tasks, before a site's own mix


@dataclass(frozen=True, kw_only=True)
class DeviceClass:
    """A class of device. slowdown: run time per kind relative to the reference GPU; None: cannot run it."""

    name: str
    slowdown: tuple[float | None, ...]
    power_w: float
    load_mb_s: float
    memory_mb: float


KINDS = (
    Kind(name="small-cnn", reference_s=0.006, model_mb=15, input_mb=0.15, share=0.28),
    Kind(name="detector", reference_s=0.018, model_mb=45, input_mb=0.4, share=0.26),
    Kind(name="segmenter", reference_s=0.040, model_mb=120, input_mb=0.8, share=0.12),
    Kind(name="speech", reference_s=0.060, model_mb=200, input_mb=0.25, share=0.14),
    Kind(name="small-llm", reference_s=0.220, model_mb=1100, input_mb=0.02, share=0.06),
    Kind(name="pre-processing", reference_s=0.020, model_mb=1, input_mb=1.2, share=0.14),
)

#: In the order of policy.features.CLASSES, without offload.
DEVICE_CLASSES = (
    DeviceClass(
        name="cpu", slowdown=(5.0, 7.0, 8.0, 6.0, 7.0, 1.2), power_w=20, load_mb_s=500, memory_mb=1250
    ),
    DeviceClass(
        name="gpu", slowdown=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0), power_w=75, load_mb_s=400, memory_mb=1250
    ),
    DeviceClass(
        name="npu", slowdown=(1.0, 1.2, 1.8, 2.2, 4.0, None), power_w=7, load_mb_s=120, memory_mb=280
    ),
    DeviceClass(
        name="tpu", slowdown=(0.7, 1.0, 2.2, 2.8, None, None), power_w=5, load_mb_s=70, memory_mb=150
    ),
)

#: Offload: what runs behind the link, relative to the reference GPU, and what it costs.
REMOTE_SLOWDOWN = 0.6
REMOTE_POWER_W = 120.0
LINK_JOULE_PER_MB = 6.0
LINK_JOULE_PER_TASK = 4.0
LINK_OVERHEAD_S = 0.002
