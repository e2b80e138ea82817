"""The settings file that `skerry agent init` writes, and what settings must hold."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from edge_agent.settings import AgentSettings, check_settings, default_node_name, example_toml
from policy.baselines.registry import DEFAULT_SCHEDULER
from skerry.errors import SettingsError
from skerry.ids import check_name
from skerry.listening import parse_tcp
from skerry.settings import load_settings


def uncommented(text: str) -> str:
    return re.sub(r"(?m)^#(\w+ = )", r"\1", text)


def test_the_file_shows_every_setting_with_its_default() -> None:
    shown = tomllib.loads(uncommented(example_toml()))

    assert msgspec.convert(shown, type=AgentSettings, strict=False) == AgentSettings()
    assert shown.keys() == {n for n in AgentSettings.__struct_fields__}


def test_the_file_as_written_changes_nothing_but_what_was_given(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(example_toml({"data_dir": "/somewhere", "node.name": "edge-7"}))

    settings = load_settings(AgentSettings, path=file)

    assert (settings.data_dir, settings.node.name) == ("/somewhere", "edge-7")
    assert settings.queue == AgentSettings().queue


def test_every_setting_of_the_agents_own_says_what_it_means() -> None:
    lines = example_toml().splitlines()
    own = lines[: lines.index("[devices]")]
    tables = {"[mqtt]"}  # its struct is the transport's
    silent, table = [], ""
    for before, line in itertools.pairwise(own):
        table = line if line.startswith("[") else table
        is_setting = re.match(r"#?\w+ = ", line)
        if is_setting and table not in tables and not before.startswith("# "):
            silent.append(f"{table} {line}")

    assert silent == []


def test_the_default_scheduler_is_the_policy_layers() -> None:
    assert AgentSettings().scheduler.name == DEFAULT_SCHEDULER


def test_an_environment_variable_counts_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("[node]\nname = 'a'\n")

    settings = load_settings(
        AgentSettings, path=file, environ={"SKERRY_AGENT__NODE__NAME": "b"}, prefix="SKERRY_AGENT__"
    )

    assert settings.node.name == "b"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"api.tcp": "0.0.0.0:80"}, "tls_certificate"),
        ({"api.tcp": "192.168.1.5:80"}, "loopback"),
        ({"api.tcp": "no-port"}, "host:port"),
        ({"api.tcp": "127.0.0.1:70000"}, "host:port"),
        ({"api.tls_certificate": "x.pem"}, "tls_key"),
        ({"api.socket": "off"}, "api.tcp"),
        ({"node.region": "Süd"}, "node.region"),
        ({"coordinator.url": "ftp://x"}, "coordinator.url"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_by_name(flags: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(named)):
        check_settings(load_settings(AgentSettings, flags=flags))


@pytest.mark.parametrize("tcp", ["127.0.0.1:0", "localhost:8460", "[::1]:8460", "127.8.9.1:1"])
def test_loopback_addresses_need_no_certificate(tcp: str) -> None:
    assert check_settings(load_settings(AgentSettings, flags={"api.tcp": tcp})).api.tcp == tcp


def test_an_address_off_loopback_is_taken_with_a_certificate() -> None:
    flags = {"api.tcp": "0.0.0.0:8460", "api.tls_certificate": "c.pem", "api.tls_key": "k.pem"}

    assert check_settings(load_settings(AgentSettings, flags=flags)).api.tcp == "0.0.0.0:8460"


def test_an_ipv6_address_is_taken_apart() -> None:
    assert parse_tcp("[::1]:8460", "api.tcp") == ("::1", 8460)


@pytest.mark.parametrize("host", ["Pi_4.local", "---", "ÄÖ", "x" * 200, "edge-1"])
def test_any_host_name_becomes_a_node_name(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)

    assert check_name(default_node_name(), what="node")


def test_a_table_without_entries_is_the_same_as_none(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(example_toml())

    assert load_settings(AgentSettings, path=config) == AgentSettings()
