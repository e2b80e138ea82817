"""What Flower would do by itself and we do not want: telemetry, its update check, installing packages.

Flower reads these when it is imported. Importing the package `federation.flower` sets them before that.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

SWITCHES: dict[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def switch_off(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set every switch, whatever it was before: child processes inherit them."""
    environ.update(SWITCHES)
