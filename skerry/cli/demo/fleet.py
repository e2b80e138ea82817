"""A fleet of real processes in one directory: coordinator, agents, and the cables between them.

Owns starting, enrolling, cutting off, killing and stopping; knows nothing of tasks. Every process is stopped
by its own id, whatever happens.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from skerry.cli.demo.brokers import RunningBroker, free_port
from skerry.cli.demo.process import ServiceProcess, run_skerry
from skerry.cli.demo.proxy import BlackHoleProxy


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. boards: emulated boards by name.  is_cuttable: it reaches the cloud through proxies.

    settings: dotted names of the agent's settings, beside what the fleet sets itself.
    """

    name: str
    region: str
    boards: tuple[str, ...] = ()
    is_cuttable: bool = False
    settings: dict[str, object] = {}


class Fleet:
    """Broker, coordinator and agents. Use as a context manager: leaving it stops everything."""

    def __init__(
        self,
        directory: Path,
        broker: RunningBroker,
        plans: tuple[NodePlan, ...],
        witness: Path,
        *,
        coordinator: Mapping[str, object] | None = None,
    ) -> None:
        """Lay out the directory; nothing runs yet.  coordinator: more settings, by dotted names."""
        self.directory = directory
        self.broker = broker
        self.plans = {plan.name: plan for plan in plans}
        #: nodes without a network now
        self.cut_off: set[str] = set()
        self._witness = witness
        self._coordinator_settings = coordinator or {}
        self._cables: dict[str, tuple[BlackHoleProxy, BlackHoleProxy]] = {}
        self._http_port = free_port()
        self.agents: dict[str, ServiceProcess] = {}
        self.coordinator = self._coordinator_process()

    def __enter__(self) -> Fleet:
        """Return the fleet, nothing started."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop every process and cable."""
        for cable in self._cables.values():
            for proxy in cable:
                proxy.heal()
        try:
            self.stop()
        finally:
            for cable in self._cables.values():
                for proxy in cable:
                    proxy.close()

    def start(self) -> None:
        """Start the coordinator, enrol every agent with a token of its own, start the agents."""
        self.coordinator.start()
        for plan in self.plans.values():
            self._enrol(plan)
        for agent in self.agents.values():
            agent.start()

    def stop(self) -> None:
        """Stop agents, then the coordinator, in order."""
        with contextlib.ExitStack() as stack:  # every one is stopped, even when one refuses to
            stack.callback(self.coordinator.stop)
            for agent in self.agents.values():
                stack.callback(agent.stop)

    def cut(self, name: str) -> None:
        """Cut one node's cables, broker and content alike."""
        self.cut_off.add(name)
        for proxy in self._cables[name]:
            proxy.cut()

    def heal(self, name: str) -> None:
        """Plug them in again."""
        self.cut_off.discard(name)
        for proxy in self._cables[name]:
            proxy.heal()

    def data_dir(self, name: str) -> Path:
        """Return the data directory of an agent, or of `coordinator`."""
        return self.directory / name

    def _coordinator_process(self) -> ServiceProcess:
        home = self._make_home("coordinator")
        config = _write(
            home / "coordinator.toml",
            {
                "data_dir": str(home),
                "fleet": "demo",
                "api.listen": f"127.0.0.1:{self._http_port}",
                "mqtt.url": self.broker.url,
                "mqtt.adapter": self.broker.settings.adapter,
                "advertise.mqtt_url": self.broker.url,
                "advertise.http_url": f"http://127.0.0.1:{self._http_port}",
                **self._coordinator_settings,
            },
        )
        return ServiceProcess(
            "coordinator", "cloud_coordinator", config, home / "coordinator.sock", home / "coordinator.log"
        )

    def _enrol(self, plan: NodePlan) -> None:
        home = self._make_home(plan.name)
        mqtt_port, http_port = self._ports_for(plan)
        config = _write(
            home / "agent.toml",
            {
                "data_dir": str(home),
                "mqtt.url": f"mqtt://127.0.0.1:{mqtt_port}",
                "mqtt.adapter": self.broker.settings.adapter,
                "coordinator.url": f"http://127.0.0.1:{http_port}",
                "devices.witness": str(self._witness),
                "devices.emulated": list(plan.boards),
                **plan.settings,
            },
        )
        token = run_skerry(
            "coordinator", "token", "--config", str(self.directory / "coordinator/coordinator.toml")
        )
        run_skerry(
            *("enrol", "--config", str(config), "--coordinator", f"http://127.0.0.1:{http_port}"),
            *("--token", token.strip(), "--node", plan.name, "--region", plan.region),
        )
        self.agents[plan.name] = ServiceProcess(
            plan.name, "edge_agent", config, home / "agent.sock", home / "agent.log"
        )

    def _ports_for(self, plan: NodePlan) -> tuple[int, int]:
        if not plan.is_cuttable:
            return self.broker.port, self._http_port
        self._cables[plan.name] = (BlackHoleProxy(self.broker.port), BlackHoleProxy(self._http_port))
        return self._cables[plan.name][0].port, self._cables[plan.name][1].port

    def _make_home(self, name: str) -> Path:
        home = self.directory / name
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return home


def _write(path: Path, values: Mapping[str, object]) -> Path:
    lines = (
        f"{key} = {json.dumps(value)}\n" for key, value in values.items()
    )  # dotted keys, JSON: valid TOML
    path.write_text("".join(lines), encoding="utf-8")
    os.chmod(path, 0o600)
    return path
