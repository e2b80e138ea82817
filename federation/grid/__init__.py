"""Grids of our own: what carries a Flower server's messages, in one process or through outages."""

from __future__ import annotations

from federation.flower.environment import switch_off

switch_off()
