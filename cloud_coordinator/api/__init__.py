"""The coordinator's HTTP interface: one table of routes over the core thread and the content store."""

from __future__ import annotations

from cloud_coordinator.api.app import build

__all__ = ["build"]
