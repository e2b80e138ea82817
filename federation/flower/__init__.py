"""The Flower app: server, client and strategies. Runs unchanged under `flwr run` and on both of our grids.

Importing it switches off what Flower sends by itself, before any of Flower is imported.
"""

from __future__ import annotations

from federation.flower.environment import switch_off

switch_off()
