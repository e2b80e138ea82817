"""A policy file is admitted after every check or refused with its reason; what it decides is explained."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from policy.actor import FILE_LIMIT_BYTES, SCHEMA_KEY, Actor, Refused, admit, load_actor
from policy.features import CANDIDATE_FEATURES, SCHEMA_HASH, C, F
from policy.golden import GOLDEN_SIZES, golden_inputs
from policy.port import DeviceView, Offer
from policy.testing import a_device, a_model_task
from skerry.errors import PolicyError
from skerry.identity import PrivateKey
from skerry.ids import content_hash
from skerry.policy_manifest import (
    EvaluationSummary,
    Lineage,
    PolicyManifest,
    encode_manifest,
    manifest_path,
    sign_manifest,
)

KEY = PrivateKey.generate()
FLOAT, INT64, BOOL = 1, 7, 9
COLUMN = CANDIDATE_FEATURES.index("margin")


def number(field: int, value: int) -> bytes:
    """A protobuf field that holds a number."""
    return varint(field << 3) + varint(value)


def words(field: int, value: bytes | str) -> bytes:
    """A protobuf field that holds bytes, a text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """A number in base 128."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def tensor(name: str, values: Any, extra: bytes = b"") -> bytes:
    """An initializer."""
    array = np.asarray(values)
    kind = FLOAT if array.dtype == np.float32 else INT64
    dims = b"".join(number(1, size) for size in array.shape)
    return words(5, dims + number(2, kind) + words(8, name) + words(9, array.tobytes()) + extra)


def node(operator: str, inputs: Sequence[str], output: str, attributes: bytes = b"") -> bytes:
    """One operator."""
    return words(
        1, b"".join(words(1, one) for one in inputs) + words(2, output) + words(4, operator) + attributes
    )


def axis(value: int) -> bytes:
    """The attribute `axis`."""
    return words(5, words(1, "axis") + number(3, value) + number(20, 2))


def value(field: int, name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    """An input (11) or output (12) of the graph."""
    dims = b"".join(words(1, words(2, size) if isinstance(size, str) else number(1, size)) for size in shape)
    return words(field, words(1, name) + words(2, words(1, number(1, kind) + words(2, dims))))


def model(
    nodes: bytes,
    initializers: bytes = b"",
    *,
    width: int = F,
    schema: str = SCHEMA_HASH,
    output: Sequence[str | int] = ("nodes", "candidates"),
) -> bytes:
    """A model file with a scorer's inputs and output."""
    graph = nodes + words(2, "g") + initializers
    graph += value(11, "rows", FLOAT, ("nodes", "candidates", width))
    graph += value(11, "mask", BOOL, ("nodes", "candidates"))
    graph += value(11, "context", FLOAT, ("nodes", C))
    graph += value(12, "scores", FLOAT, output)
    metadata = words(14, words(1, SCHEMA_KEY) + words(2, schema))
    return number(1, 8) + words(7, graph) + words(8, number(2, 17)) + metadata


def margins(*more: bytes, factor: float = 1.0, **changes: Any) -> bytes:
    """A scorer: factor × the margin to the deadline."""
    nodes = node("Gather", ["rows", "column"], "margin", axis(2)) + node(
        "Mul", ["margin", "factor"], "scores"
    )
    weights = tensor("column", np.array(COLUMN)) + tensor("factor", np.array([factor], dtype=np.float32))
    return model(nodes + b"".join(more), weights, **changes)


def golden(factor: float = 1.0) -> tuple[float, ...]:
    """What that scorer says of the golden inputs."""
    return tuple(float(score) for rows, _ in golden_inputs() for score in factor * rows[:, COLUMN])


def papers(data: bytes, scores: tuple[float, ...] | None = None) -> PolicyManifest:
    """The file's manifest, not signed."""
    return PolicyManifest(
        file_hash=content_hash(data),
        file_bytes=len(data),
        schema_hash=SCHEMA_HASH,
        lineage=Lineage(seed=1),
        evaluation=EvaluationSummary(),
        golden=golden() if scores is None else scores,
    )


def refused(data: bytes, manifest: PolicyManifest | None = None, **limits: Any) -> Refused:
    """What is said of a file that must not pass."""
    found = admit(data, papers(data) if manifest is None else manifest, **limits)
    assert isinstance(found, Refused)
    return found


@pytest.fixture
def placed(tmp_path: Path) -> Callable[[bytes, PolicyManifest], Path]:
    """Puts a file and its manifest into a directory."""

    def place(data: bytes, manifest: PolicyManifest) -> Path:
        path = tmp_path / "policy.onnx"
        path.write_bytes(data)
        manifest_path(path).write_bytes(encode_manifest(manifest))
        return path

    return place


def test_a_signed_sound_file_is_admitted(placed: Callable[..., Path]) -> None:
    data = margins()
    path = placed(data, sign_manifest(papers(data), KEY))

    actor = load_actor(path, trusted_keys=[KEY.public_hex])

    assert isinstance(actor, Actor)
    assert actor.name == f"policy:{content_hash(data).removeprefix('sha256:')[:12]}"


def test_a_file_without_a_signature_is_refused_unless_its_hash_is_pinned(placed: Callable[..., Path]) -> None:
    data = margins()
    path = placed(data, papers(data))

    found = load_actor(path, trusted_keys=[KEY.public_hex])

    assert found == Refused(code="signature", reason="the manifest is not signed")
    assert isinstance(load_actor(path, pinned=[content_hash(data)]), Actor)


def test_a_strangers_signature_does_not_count(placed: Callable[..., Path]) -> None:
    data = margins()
    path = placed(data, sign_manifest(papers(data), PrivateKey.generate()))

    found = load_actor(path, trusted_keys=[KEY.public_hex])

    assert isinstance(found, Refused)
    assert found.code == "signature"
    assert "not trusted here" in found.reason


def test_a_manifest_changed_after_it_was_signed_is_refused(placed: Callable[..., Path]) -> None:
    data = margins()
    signed = sign_manifest(papers(data), KEY)
    path = placed(data, replace(signed, lineage=Lineage(seed=2)))

    found = load_actor(path, trusted_keys=[KEY.public_hex])

    assert isinstance(found, Refused)
    assert "changed after it was signed" in found.reason


def test_a_file_changed_after_it_was_described_is_refused(placed: Callable[..., Path]) -> None:
    signed = sign_manifest(papers(margins()), KEY)
    path = placed(margins(factor=-1.0), signed)

    found = load_actor(path, trusted_keys=[KEY.public_hex])

    assert found == Refused(code="hash", reason="the file is not the one that the manifest describes")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no manifest"),
        (b"{}", "not a policy's manifest"),
        (b"\xff\x00", "not a policy's manifest"),
    ],
)
def test_a_file_without_a_readable_manifest_is_refused(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(margins())
    if content is not None:
        manifest_path(path).write_bytes(content)

    found = load_actor(path, trusted_keys=[KEY.public_hex])

    assert isinstance(found, Refused)
    assert found.code == "manifest"
    assert reason in found.reason


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    signed = sign_manifest(papers(margins()), KEY)

    found = load_actor(tmp_path / "none.onnx", signed, trusted_keys=[KEY.public_hex])

    assert isinstance(found, Refused)
    assert found.code == "file"


def test_a_policy_of_other_features_is_refused_by_its_manifest_and_by_its_file() -> None:
    data, other = margins(), margins(schema="0" * 64)

    assert refused(data, replace(papers(data), schema_hash="0" * 64)).code == "schema"
    assert refused(other).reason.startswith("it reads features 000000000000")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers_are_refused(value: float) -> None:
    found = refused(margins(factor=value))

    assert found == Refused(code="weights", reason="weights factor are not all numbers")


def test_weights_in_another_file_are_refused() -> None:
    weights = tensor(
        "far", np.zeros(1, dtype=np.float32), words(13, words(1, "location") + words(2, "/etc/x"))
    )

    assert (
        refused(model(node("Identity", ["far"], "scores"), weights)).reason
        == "its weights lie in another file"
    )


@pytest.mark.parametrize("operator", ["Loop", "RandomNormalLike", "NonZero"])
def test_operators_that_may_not_end_or_repeat_themselves_are_refused(operator: str) -> None:
    found = refused(margins(node(operator, ["margin"], "more")))

    assert found.code == "operators"
    assert operator in found.reason


def test_a_graph_inside_a_graph_is_refused() -> None:
    nested = words(5, words(1, "then_branch") + words(6, words(2, "inner")) + number(20, 5))

    assert refused(margins(node("Identity", ["margin"], "more", nested))).code == "operators"


@pytest.mark.parametrize("data", [b"", b"not a model at all", margins()[:-200], b"\x00" * 5000])
def test_bytes_that_are_no_model_are_refused(data: bytes) -> None:
    assert refused(data).code in ("format", "schema")


def test_a_model_the_runtime_cannot_read_is_refused() -> None:
    found = refused(model(node("Mul", ["rows", "nowhere"], "scores")))

    assert found.code == "format"
    assert "the runtime does not take it" in found.reason


def test_a_file_without_bounds_is_refused() -> None:
    data = margins() + words(14, words(1, "padding") + words(2, "x" * FILE_LIMIT_BYTES))

    assert refused(data).code == "size"


def test_other_inputs_are_refused() -> None:
    found = refused(margins(width=F + 1))

    assert found.code == "shape"
    assert f"'candidates', {F + 1}]" in found.reason


def test_scores_of_another_shape_are_refused() -> None:
    nodes = node("Gather", ["context", "column"], "scores", axis(1))

    assert refused(model(nodes, tensor("column", np.array([0, 1])), output=("nodes", 2))).code == "scores"


def test_scores_that_are_no_numbers_are_refused() -> None:
    nodes = (
        node("Gather", ["rows", "column"], "margin", axis(2))
        + node("Sub", ["margin", "big"], "negative")
        + node("Sqrt", ["negative"], "scores")
    )
    data = model(nodes, tensor("column", np.array(COLUMN)) + tensor("big", np.array([9e9], dtype=np.float32)))

    assert refused(data).reason.endswith("gave a score that is not a number")


def test_scores_other_than_where_it_was_made_are_refused() -> None:
    data = margins()

    assert refused(data, papers(data, golden(1.1))).code == "golden"
    assert refused(data, papers(data, golden()[:-1])).code == "golden"


def test_a_slow_policy_is_refused() -> None:
    found = refused(margins(), slowest_s=1e-9)

    assert found.code == "slow"
    assert found.reason.startswith("30 candidates take ")


def an_actor(data: bytes | None = None) -> Actor:
    """An admitted one."""
    data = margins() if data is None else data
    found = admit(data, papers(data))
    assert isinstance(found, Actor)
    return found


def test_the_highest_score_is_chosen_and_explained() -> None:
    task = a_model_task(deadline_s=1.0)
    slow = DeviceView(device=a_device("cpu", "c"), offer=Offer(energy_j=0.1))
    fast = DeviceView(device=a_device("gpu", "g"), offer=Offer(energy_j=50.0))

    choice = an_actor().choose(task, [slow, fast], [0.8, 0.1])

    assert choice.index == 1
    assert choice.scores == pytest.approx((100 * math.exp(0.2 - 0.9), 100.0), rel=1e-5)
    assert choice.expected_s == pytest.approx((0.8, 0.1))
    assert choice.reason == ("gpu g: score 0.90, cost +1.0100; min-increase would take cpu c, cost +0.0820")


def test_the_rules_agreement_and_a_lack_of_choice_are_said() -> None:
    task = a_model_task(deadline_s=1.0)
    views = [DeviceView(device=a_device("npu", name)) for name in ("b", "a")]

    assert an_actor().choose(task, views, [0.5, 0.2]).reason.endswith("min-increase agrees")
    assert an_actor().choose(task, views[:1], [0.5]).reason.endswith("the only device allowed")


def test_equal_scores_go_to_the_first_device_by_id() -> None:
    views = [DeviceView(device=a_device("npu", name)) for name in ("c", "a", "b")]

    assert an_actor().choose(a_model_task(deadline_s=1.0), views, [0.5] * 3).index == 1


def test_a_score_that_is_no_number_raises_when_it_comes_late() -> None:
    with pytest.raises(PolicyError, match="not a number"):
        an_actor().score(np.full((2, F), np.nan, dtype=np.float32), np.zeros(C, dtype=np.float32))


def test_every_golden_decision_has_its_size() -> None:
    assert tuple(len(rows) for rows, _ in golden_inputs()) == GOLDEN_SIZES
    assert all(np.isfinite(rows).all() and rows.dtype == np.float32 for rows, _ in golden_inputs())


def test_the_module_alone_does_not_load_the_runtime() -> None:
    code = "import sys, policy.actor; sys.exit('onnxruntime' in sys.modules or 'torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
