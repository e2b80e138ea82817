"""What our adapter assumes of the pinned Flower, beyond what Flower promises."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import flwr.serverapp
import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from federation.flower import internals
from federation.flower.environment import SWITCHES
from federation.flower.records import Malformed, error_of, from_record, offer_of, reply_content, to_record
from federation.values import Refused

ROOT = Path(__file__).resolve().parents[2]


def pinned(package: str) -> str:
    """The version in the constraints."""
    lines = (ROOT / "constraints" / "cloud.txt").read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{package}=="))


def an_instruction(message_id: str = "id-1") -> Message:
    """An instruction to node 7."""
    content = RecordDict({"config": ConfigRecord({"a": 1})})
    return internals.instruction(content, 7, message_id, ttl_s=60.0)


def test_the_tests_run_against_the_pinned_flower() -> None:
    assert version("flwr") == pinned("flwr")


def test_a_grid_still_asks_for_what_ours_give() -> None:
    assert flwr.serverapp.Grid.__abstractmethods__ == {
        "set_run",
        "run",
        "create_message",
        "get_node_ids",
        "push_messages",
        "pull_messages",
        "send_and_receive",
    }
    names = list(inspect.signature(flwr.serverapp.Grid.send_and_receive).parameters)
    assert names == ["self", "messages", "timeout"]


def test_an_instruction_carries_the_id_it_is_given() -> None:
    message = an_instruction("f" * 32)

    assert message.metadata.message_id == "f" * 32
    assert message.metadata.dst_node_id == 7
    assert message.metadata.ttl == 60.0


def test_a_reply_names_its_instruction_and_its_node() -> None:
    reply = internals.reply_of(an_instruction(), RecordDict())
    failed = internals.reply_of(an_instruction(), Error(2, "out of memory"))

    assert reply.metadata.reply_to_message_id == "id-1"
    assert reply.metadata.src_node_id == 7
    assert failed.has_error()
    assert failed.error.reason == "out of memory"


def test_a_replys_content_can_be_replaced() -> None:
    reply = internals.reply_of(an_instruction(), RecordDict())

    reply.content = RecordDict({"metrics": MetricRecord({"loss": 1.0})})

    assert reply.content["metrics"]["loss"] == 1.0


def test_an_empty_run_and_a_context_can_be_made() -> None:
    assert internals.empty_run().run_id == 1
    assert internals.context(7, {"node": "n1"}, {"rounds": 3}).node_config == {"node": "n1"}


def test_a_switch_is_read_where_we_think() -> None:
    probe = (
        "import federation.flower, flwr.supercore.telemetry as t, flwr.supercore.constant as c, "
        "flwr.common.constant as k; print(t.FLWR_TELEMETRY_ENABLED, c.FLWR_DISABLE_UPDATE_CHECK, "
        "k.FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION)"
    )
    clean = {name: value for name, value in os.environ.items() if name not in SWITCHES}

    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=clean, cwd=ROOT
    )

    assert done.stdout.split() == [
        "0",
        "FLWR_DISABLE_UPDATE_CHECK",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION",
    ]


def test_arrays_pass_through_flowers_records_bit_by_bit() -> None:
    sent = {"w": np.array([[1.5, np.pi]], np.float32), "n": np.array([3], np.int64), "s": np.array(2.0)}

    got = from_record(to_record(sent))

    assert {key: (a.tobytes(), a.shape) for key, a in got.items()} == {
        key: (a.tobytes(), a.shape) for key, a in sent.items()
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda array: setattr(array, "shape", [1000]),
        lambda array: setattr(array, "shape", []),
        lambda array: setattr(array, "dtype", "no such type"),
        lambda array: setattr(array, "data", b"garbage!" * 16),
        lambda array: setattr(array, "data", b""),
    ],
)
def test_an_array_that_lies_about_itself_is_malformed(change: object) -> None:
    record = to_record({"w": np.ones(2, np.float32)})
    change(record["w"])  # type: ignore[operator]

    with pytest.raises(Malformed):
        from_record(record)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"metrics": MetricRecord({"num-examples": 1})}),
        RecordDict({"a": to_record({}), "b": to_record({}), "metrics": MetricRecord({"num-examples": 1})}),
        RecordDict({**reply_content({}, 1, {}), "config": ConfigRecord({"a": 1})}),
    ],
)
def test_a_reply_with_other_records_is_malformed_and_raises_nothing(content: RecordDict) -> None:
    offer = offer_of(internals.reply_of(an_instruction(), content), node="n1", version=0)

    assert offer.refused is not None
    assert offer.refused.code == "malformed"


@pytest.mark.parametrize("code", ["node_error", "malformed", "superseded", "base_version"])
def test_a_refusal_passes_through_flowers_errors_with_its_code(code: str) -> None:
    failed = internals.reply_of(an_instruction(), error_of(code, "out of memory"))

    assert offer_of(failed, node="n1", version=0).refused == Refused(code=code, reason="out of memory")


@pytest.mark.parametrize("number", [value for name, value in vars(ErrorCode).items() if name.isupper()])
def test_an_error_that_flower_makes_up_is_the_nodes_failure(number: int) -> None:
    offer = offer_of(internals.reply_of(an_instruction(), Error(number)), node="n1", version=0)

    assert offer.refused is not None
    assert offer.refused.code == "node_error"
