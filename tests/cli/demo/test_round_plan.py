"""The round demo's settings are ones that its parts take, and its policies are what they are said to be."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cloud_coordinator.settings import CoordinatorSettings
from edge_agent.settings import AgentSettings
from federation.ppo.trainer import local_settings
from policy.actor import Actor, Refused, load_actor
from policy.gate.settings import GateSettings
from policy.shipped import SHIPPED_HASHES
from skerry.cli.demo import round_plan as plan
from skerry.cli.demo.round_policies import (
    signed_shipped,
    write_not_a_number,
    write_unsigned,
    write_worse,
)
from skerry.identity import PrivateKey
from skerry.policy_manifest import decode_manifest, manifest_path, verify_manifest
from skerry.settings import load_settings

KEY = PrivateKey.generate()


@pytest.mark.parametrize("gate", [plan.GATE, plan.WATCHFUL_GATE])
def test_a_gate_takes_every_setting(gate: dict[str, float]) -> None:
    words = plan.gate_options(gate)
    told = dict(word.split("=") for word in words if word != "--gate")

    taken = msgspec.convert({name: float(value) for name, value in told.items()}, GateSettings, strict=False)

    assert {name: getattr(taken, name) for name in gate} == gate


def test_only_the_gate_of_the_worse_policy_has_its_check_of_plausible_choices_switched_off() -> None:
    usual = GateSettings()

    assert "implausible_cost" not in plan.GATE
    assert plan.WATCHFUL_GATE["implausible_cost"] > 100 * usual.implausible_cost
    assert "plausible" in plan.SWITCHED_OFF


def test_coordinator_and_agents_take_their_settings() -> None:
    told = plan.coordinator_settings(KEY.public_hex)
    assert load_settings(CoordinatorSettings, flags=told).policies.signers == (KEY.public_hex,)
    for node in plan.PLANS:
        assert load_settings(AgentSettings, flags=node.settings).training.enabled


def test_the_trainer_takes_what_the_run_sets() -> None:
    options = plan.RUN_OPTIONS
    told = dict(options[i + 1].split("=") for i, word in enumerate(options) if word == "--set")

    assert local_settings(told).tasks <= plan.ARRIVALS


def admitted(path: Path) -> Actor | Refused:
    return load_actor(path, decode_manifest(manifest_path(path).read_bytes()), trusted_keys=(KEY.public_hex,))


def test_one_policy_is_refused_for_its_weights_and_one_for_its_signature(tmp_path: Path) -> None:
    broken, unsigned = admitted(write_not_a_number(tmp_path, KEY)), admitted(write_unsigned(tmp_path))

    assert isinstance(broken, Refused)
    assert broken.code == "weights"
    assert isinstance(unsigned, Refused)
    assert "not signed" in unsigned.reason


def test_the_worse_policy_is_in_good_order(tmp_path: Path) -> None:
    assert not isinstance(admitted(write_worse(tmp_path, KEY)), Refused)


def test_the_shipped_policy_gets_papers_that_the_operator_signed(tmp_path: Path) -> None:
    file = signed_shipped(tmp_path, KEY)

    assert file is not None
    papers = decode_manifest(manifest_path(file).read_bytes())
    assert papers.file_hash in SHIPPED_HASHES
    assert verify_manifest(papers, (KEY.public_hex,)) == ""
