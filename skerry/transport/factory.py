"""Which adapter a setting names: one line an adapter; what is not asked for is not imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from skerry.transport.mqtt import MqttTransport
from skerry.transport.port import Will
from skerry.transport.settings import MqttSettings


def make_transport(
    settings: MqttSettings, *, client_id: str, will: Callable[[], Will] | None = None
) -> MqttTransport:
    """Return the transport that settings.adapter names.  Raises SettingsError for a malformed address."""
    if settings.adapter == "paho-quickack":
        client_class = import_module("skerry.cli.demo.quickack").QuickAckClient
        return MqttTransport(settings, client_id=client_id, will=will, client_class=client_class)
    return MqttTransport(settings, client_id=client_id, will=will)
