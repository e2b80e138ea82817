"""Skerry: an edge-cloud federated scheduling agent system (the shared kernel's public names)."""

from __future__ import annotations

__version__ = "0.1.0"
