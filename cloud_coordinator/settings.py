"""The coordinator's settings: one frozen struct, checked as a whole. Built once in `__main__`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cloud_coordinator.core.turn import Limits
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.rollout.settings import PolicySettings
from cloud_coordinator.rounds_settings import FederationSettings
from skerry.errors import SettingsError, SpecError
from skerry.ids import check_name
from skerry.listening import AccessSettings, TcpListener, tcp_listener
from skerry.logs import LogSettings
from skerry.settings import load_settings
from skerry.settings_example import commented_toml
from skerry.transport.settings import MqttSettings, parse_address

GIB = 1 << 30
_CORE = Limits()  # its defaults are the settings'
ENVIRONMENT_PREFIX = "SKERRY_COORDINATOR__"
EXAMPLE_HEAD = f"""\
# Settings of a Skerry coordinator. Every line that is commented out shows the default.
# The environment counts more: {ENVIRONMENT_PREFIX}API__LISTEN=127.0.0.1:9000 sets api.listen.
"""


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the settings file."""


class ApiSettings(AccessSettings, frozen=True, kw_only=True):
    """Where the HTTP interface listens, beside the Unix socket coordinator.sock in the data directory."""

    #: host:port; port 0 takes a free one; empty: no TCP. Off loopback it needs a certificate and its key.
    listen: str = "127.0.0.1:8470"
    hosts: tuple[str, ...] = ()  #: names that a Host header may carry, beside localhost and IP addresses


class AdvertiseSettings(_Table, frozen=True, kw_only=True):
    """What nodes are told when they enrol. Empty: the broker as reached from here, the TCP address above."""

    mqtt_url: str = ""
    http_url: str = ""
    broker_username: str = ""  #: user and password that nodes show to the broker
    broker_password_file: str = ""


class PlacementTable(PlacementSettings, frozen=True, kw_only=True):
    """How tasks are placed across the fleet."""

    #: Requests that come within so many milliseconds are planned together.
    batch_ms: Annotated[float, Meta(ge=0, le=10_000)] = _CORE.batch_ms
    #: Seconds a placement stays valid when its node is not heard; then the task may be placed elsewhere.
    lease_s: Annotated[float, Meta(ge=1, le=30 * 86400)] = _CORE.lease_s
    #: A task that nobody can take is planned again after so many seconds, and when a node changes.
    retry_s: Annotated[float, Meta(gt=0, le=3600)] = _CORE.retry_s


class NodesTable(_Table, frozen=True, kw_only=True):
    """What is asked of nodes."""

    #: How often a node reports its state; three missed reports make it stale.
    state_interval_s: Annotated[float, Meta(gt=0, le=3600)] = _CORE.state_interval_s
    #: A larger fleet is told to spread its return, so that no more nodes come back in one second.
    reconnects_per_s: Annotated[float, Meta(gt=0)] = _CORE.reconnects_per_s
    token_valid_s: Annotated[float, Meta(gt=0)] = 86400.0  #: how long an enrolment token can be used
    enrol_per_minute: Annotated[int, Meta(ge=1)] = 120  #: enrolments above this rate are asked to come later


class LedgerTable(_Table, frozen=True, kw_only=True):
    """The durable state."""

    keep_ended: Annotated[int, Meta(ge=0)] = _CORE.keep_ended  #: ended tasks that are kept for a look


class ContentTable(_Table, frozen=True, kw_only=True):
    """Models, inputs and large results, kept by their hash."""

    quota_bytes: Annotated[int, Meta(ge=1 << 20)] = 10 * GIB
    keep_s: Annotated[float, Meta(gt=0)] = 86400.0  #: content that no task names is kept at least this long


class RulesTable(_Table, frozen=True, kw_only=True):
    """Hard rules (Rego) that rule nodes out before they are scored."""

    enabled: bool = True  #: needs the extra `rules`; where it is missing no task is placed, with the reason
    directory: str = ""  #: *.rego and data.json; empty: the rules that ship


class PolicyTable(PolicySettings, frozen=True, kw_only=True):
    """Learned policies: who may bring one, and what it must show before a node tries it."""


class FederationTable(FederationSettings, frozen=True, kw_only=True):
    """Federated rounds; their workers are processes of the training environment (the extra `federation`)."""


class CoordinatorSettings(_Table, frozen=True, kw_only=True):
    """All settings of one coordinator."""

    data_dir: str = "/var/lib/skerry-coordinator"  #: ledger, content and key; one coordinator owns it
    fleet: str = "fleet"  #: the fleet's name, a part of every topic: a-z, 0-9 and inner hyphens
    api: ApiSettings = ApiSettings()
    mqtt: MqttSettings = MqttSettings()
    advertise: AdvertiseSettings = AdvertiseSettings()
    placement: PlacementTable = PlacementTable()
    nodes: NodesTable = NodesTable()
    ledger: LedgerTable = LedgerTable()
    content: ContentTable = ContentTable()
    rules: RulesTable = RulesTable()
    policies: PolicyTable = PolicyTable()
    federation: FederationTable = FederationTable()
    log: LogSettings = LogSettings()

    @property
    def data_path(self) -> Path:
        """The data directory."""
        return Path(self.data_dir).expanduser()

    @property
    def socket_path(self) -> Path:
        """The Unix socket of the HTTP interface."""
        return self.data_path / "coordinator.sock"

    @property
    def token_path(self) -> Path:
        """The file with the token for TCP clients."""
        return self.api.token_path(self.data_path)

    @property
    def key_path(self) -> Path:
        """The coordinator's own key."""
        return self.data_path / "coordinator.pem"

    @property
    def limits(self) -> Limits:
        """The core's numbers."""
        return Limits(
            batch_ms=self.placement.batch_ms,
            lease_s=self.placement.lease_s,
            retry_s=self.placement.retry_s,
            state_interval_s=self.nodes.state_interval_s,
            reconnects_per_s=self.nodes.reconnects_per_s,
            keep_ended=self.ledger.keep_ended,
        )


def read_settings(path: Path | None, environ: Mapping[str, str]) -> CoordinatorSettings:
    """Return the coordinator's settings, checked.  Raises SettingsError."""
    return check_settings(
        load_settings(CoordinatorSettings, path=path, environ=environ, prefix=ENVIRONMENT_PREFIX)
    )


def check_settings(settings: CoordinatorSettings) -> CoordinatorSettings:
    """Return the settings when everything that spans them holds.  Raises SettingsError that names the key."""
    try:
        check_name(settings.fleet, what="fleet")
    except SpecError as error:
        raise SettingsError(str(error)) from error
    parse_address(settings.mqtt.url)
    if settings.advertise.mqtt_url:
        parse_address(settings.advertise.mqtt_url)
    listener = tcp_of(settings)
    if listener is not None and not settings.advertise.http_url and not _can_be_dialled(listener.host):
        raise SettingsError(
            f"api.listen = {settings.api.listen!r} is no address to give to nodes: set advertise.http_url"
        )
    return settings


def tcp_of(settings: CoordinatorSettings) -> TcpListener | None:
    """Return where TCP listens, None when it does not.  Raises SettingsError when it may not."""
    return tcp_listener(settings.api.listen, settings.api, setting="api.listen")


def _can_be_dialled(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return True


def example_toml(values: Mapping[str, Any] | None = None) -> str:
    """Return the commented settings file; values: dotted names to what is set rather than shown."""
    return commented_toml(CoordinatorSettings(), EXAMPLE_HEAD, values)
