"""Skerry: an edge-cloud federated scheduling agent system (the shared kernel's public names)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skerry.client import Client

__all__ = ["Client", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the client when someone asks for it: the agent and the coordinator never do."""
    if name == "Client":
        from skerry.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
