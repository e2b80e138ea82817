"""The agent's settings: names, defaults, what must hold between them. Read once, passed down."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from devices.settings import DeviceSettings
from edge_agent.core.limits import Limits
from skerry.durable import copy_of
from skerry.errors import SettingsError, SpecError
from skerry.ids import check_name
from skerry.listening import AccessSettings, TcpListener, tcp_listener
from skerry.logs import LogSettings
from skerry.settings import load_settings
from skerry.settings_example import commented_toml
from skerry.transport.settings import MqttSettings

Positive = Annotated[float, Meta(gt=0)]
Bytes = Annotated[int, Meta(ge=1 << 20)]
MIB = 1 << 20
_CORE = Limits()  # its defaults are the settings'
ENVIRONMENT_PREFIX = "SKERRY_AGENT__"
EXAMPLE_HEAD = f"""\
# Settings of a Skerry agent. Every line that is commented out shows the default.
# The environment counts more: {ENVIRONMENT_PREFIX}NODE__NAME=edge-7 sets node.name.
"""


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the settings file."""


class NodeSettings(_Table, frozen=True, kw_only=True):
    """Who this machine is. What enrolment said counts more."""

    name: str = ""  #: a-z, 0-9 and inner hyphens; empty: made from the host name
    region: str = "default"  #: tasks may be bound to a region
    site: str = ""  #: a place inside the region
    labels: dict[str, str] = {}  #: free words that rules can read


class ApiSettings(AccessSettings, frozen=True, kw_only=True):
    """Where the agent's HTTP interface listens."""

    socket: str = ""  #: Unix socket, mode 0660; empty: agent.sock in the data directory; "off": none
    tcp: str = ""  #: host:port, for example "127.0.0.1:8460"; port 0 takes a free one; empty: no TCP


class AgentMqttSettings(MqttSettings, frozen=True, kw_only=True):
    """How to reach the broker."""

    url: str = ""  #: mqtt://host:port, or mqtts://host:port for TLS; empty: the broker that enrolment named


class CoordinatorSettings(_Table, frozen=True, kw_only=True):
    """The coordinator's HTTP interface, for content and enrolment."""

    url: str = ""  #: empty: the one that enrolment named
    ca_file: str = ""  #: CA of its certificate (PEM); empty: the system's


class QueueSettings(_Table, frozen=True, kw_only=True):
    """The durable queue."""

    #: cap of the database: docs/reference/queue-limits.md says how to choose it
    max_bytes: Bytes = 1024 * MIB
    min_free_bytes: Annotated[int, Meta(ge=0)] = 64 * MIB  #: free space on the disk that is left alone
    max_log_bytes: Bytes = 64 * MIB  #: of the log beside it, while another program reads the database
    keep_ended: Annotated[int, Meta(ge=0)] = 20_000  #: ended tasks that are kept for a look
    #: "full": no power cut takes what was acknowledged; "normal": it may take the newest, and spares the disk
    synchronous: Literal["full", "normal"] = "full"


class ContentSettings(_Table, frozen=True, kw_only=True):
    """Models, inputs and large results, kept by their hash."""

    quota_bytes: Bytes = 2048 * MIB  #: what nobody needs leaves first, the longest unused before others
    keep_s: Positive = 3600.0  #: content that no task names is kept at least this long


class SchedulerSettings(_Table, frozen=True, kw_only=True):
    """Who decides which device runs a task."""

    #: one of those in docs/reference/schedulers.md
    name: str = "min-increase"
    window: Annotated[int, Meta(ge=1, le=4096)] = _CORE.window  #: ready tasks that are decided ahead


class RulesSettings(_Table, frozen=True, kw_only=True):
    """Hard rules (Rego) that rule devices out before a scheduler sees them."""

    #: They need the extra `rules`; where it is missing every task is refused, with the reason.
    enabled: bool = True
    directory: str = ""  #: *.rego and data.json; empty: the rules that ship


class TrainingSettings(_Table, frozen=True, kw_only=True):
    """Local training in federated rounds. What the node recorded stays here; only parameters leave it."""

    enabled: bool = False  #: take part, and record arrivals and run times for it
    python: str = ""  #: interpreter with the extra `train`; empty: .venv-train/bin/python beside the program
    #: Training begins while tasks use less than this share of the node's processors …
    start_below_load: Annotated[float, Meta(gt=0)] = 0.5
    patience_s: Annotated[float, Meta(ge=0)] = 1800.0  #: … or when it has waited so long for that
    time_limit_s: Positive = 1800.0  #: one training that takes longer is ended
    memory_bytes: Bytes = 2048 * MIB  #: and one that needs more
    node_config: dict[str, bool | int | float | str] = {}  #: handed to the trainer, for example partition-id


class RecorderSettings(_Table, frozen=True, kw_only=True):
    """The flight recorder: what the agent was told and decided lately, for `skerry report`."""

    max_bytes: Annotated[int, Meta(ge=0)] = 8 * MIB  #: on the disk, in all; 0: nothing is recorded


class LimitSettings(_Table, frozen=True, kw_only=True):
    """What tasks may take of this node, and the agent's patience. Durations in seconds."""

    cpu_millicores: Annotated[int, Meta(ge=1)] | None = None  #: default: all that was found
    memory_bytes: Bytes | None = None  #: default: nine tenths of what was found
    #: What running attempts get when the agent stops.
    stop_grace_s: Annotated[float, Meta(ge=0)] = _CORE.stop_grace_s
    #: A task that no device takes for this long is offered to the coordinator.
    handover_after_s: Positive = _CORE.handover_after_s
    #: Tries wait a random time up to this, doubled with each.
    retry_base_s: Positive = _CORE.retry_base_s
    retry_most_s: Positive = _CORE.retry_most_s  #: the longest such wait


class AgentSettings(_Table, frozen=True, kw_only=True):
    """All settings of one agent."""

    data_dir: str = "/var/lib/skerry-agent"  #: queue, content and the node's key; one agent owns it
    node: NodeSettings = NodeSettings()
    api: ApiSettings = ApiSettings()
    mqtt: AgentMqttSettings = AgentMqttSettings()
    coordinator: CoordinatorSettings = CoordinatorSettings()
    queue: QueueSettings = QueueSettings()
    content: ContentSettings = ContentSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    rules: RulesSettings = RulesSettings()
    devices: DeviceSettings = DeviceSettings()
    training: TrainingSettings = TrainingSettings()
    limits: LimitSettings = LimitSettings()
    recorder: RecorderSettings = RecorderSettings()
    log: LogSettings = LogSettings()

    @property
    def home(self) -> Path:
        """The data directory."""
        return Path(self.data_dir).expanduser().absolute()

    @property
    def socket_path(self) -> Path | None:
        """The Unix socket, None when there is none."""
        if self.api.socket == "off":
            return None
        return Path(self.api.socket).expanduser() if self.api.socket else self.home / "agent.sock"

    @property
    def token_path(self) -> Path:
        """The file with the token for TCP clients."""
        return self.api.token_path(self.home)

    @property
    def key_path(self) -> Path:
        """The node's private key."""
        return self.home / "identity" / "node.key"

    @property
    def enrolment_path(self) -> Path:
        """What enrolment said."""
        return self.home / "identity" / "enrolment.json"

    @property
    def is_enrolled(self) -> bool:
        """An enrolment is there, or its copy."""
        return self.enrolment_path.exists() or copy_of(self.enrolment_path).exists()

    @property
    def password_path(self) -> Path:
        """The broker's password, when enrolment gave one."""
        return self.home / "identity" / "broker-password"

    @property
    def core_limits(self) -> Limits:
        """The core's numbers."""
        return Limits(
            window=self.scheduler.window,
            stop_grace_s=self.limits.stop_grace_s,
            handover_after_s=self.limits.handover_after_s,
            retry_base_s=self.limits.retry_base_s,
            retry_most_s=self.limits.retry_most_s,
        )


def read_settings(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> AgentSettings:
    """Return the agent's settings, checked.  flags: dotted names to values.  Raises SettingsError."""
    return check_settings(
        load_settings(AgentSettings, path=path, environ=environ, prefix=ENVIRONMENT_PREFIX, flags=flags)
    )


def check_settings(settings: AgentSettings) -> AgentSettings:
    """Return settings when they make sense together; else raise SettingsError that names the key."""
    _check_names(settings.node)
    if tcp_of(settings) is None and settings.socket_path is None:
        raise SettingsError("api.socket is off and api.tcp is empty: nobody could submit a task; set one")
    url = settings.coordinator.url
    if url and not re.fullmatch(r"https?://[^\s/]+/?", url):
        raise SettingsError(f"coordinator.url = {url!r} is not of the form https://host:port")
    return settings


def _check_names(node: NodeSettings) -> None:
    for what, name in (("name", node.name), ("region", node.region), ("site", node.site)):
        if name:
            try:
                check_name(name, what=f"node.{what}")
            except SpecError as error:
                raise SettingsError(str(error)) from error


def tcp_of(settings: AgentSettings) -> TcpListener | None:
    """Return where TCP listens, None when it does not.  Raises SettingsError when it may not."""
    return tcp_listener(settings.api.tcp, settings.api, setting="api.tcp")


def default_node_name() -> str:
    """Return the host name as a node name: what cannot stand in a topic becomes a hyphen."""
    name = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().split(".")[0].lower()).strip("-")[:64].strip("-")
    return name or "node"


def example_toml(values: Mapping[str, Any] | None = None) -> str:
    """Return the commented settings file; values: dotted names to what is set rather than shown."""
    return commented_toml(AgentSettings(), EXAMPLE_HEAD, values)
