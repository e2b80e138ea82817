"""How good a place is, 0 to 100, higher is better. One function a concern; the settings weigh them.

Must not know of filters: only places that can have the task are scored.
"""

from __future__ import annotations

from cloud_coordinator.placement.request import PlacementRequest
from cloud_coordinator.placement.settings import PlacementSettings
from skerry.node import NodeRecord

#: Data of this size halve what a place away from them is worth, bytes: some seconds on a slow link.
HALVING_BYTES = 16 * 1024 * 1024
#: What another region is worth for a task without data, and another site of the same region.
ELSEWHERE, SAME_REGION = 60.0, 90.0


def completion(expected_s: float, fastest_s: float) -> float:
    """Score the expected completion in proportion to the fastest place's."""
    return 100.0 if expected_s <= fastest_s else 100.0 * fastest_s / expected_s


def locality(request: PlacementRequest, record: NodeRecord) -> float:
    """Score the nearness to the task's data: full at home, less in another region, the less the more data."""
    if record.region == request.data_region:
        return 100.0 if record.site == request.home_site else SAME_REGION
    return ELSEWHERE * HALVING_BYTES / (HALVING_BYTES + request.task.data.size_bytes)


def spread(free_share: float) -> float:
    """Score the share of a device's places that is free."""
    return 100.0 * free_share


def combined(settings: PlacementSettings, completion: float, locality: float, spread: float) -> float:
    """Return the weighted mean; 0 when every weight is 0, and the names decide."""
    weights = settings.weight_completion + settings.weight_locality + settings.weight_spread
    if weights == 0.0:
        return 0.0
    weighted = (
        settings.weight_completion * completion
        + settings.weight_locality * locality
        + settings.weight_spread * spread
    )
    return weighted / weights
