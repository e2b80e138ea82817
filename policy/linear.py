"""A policy that is a weighted sum of a candidate's features, written as an ONNX file without any framework.

For first days (the negative of a rule's own cost repeats that rule), for demonstrations and for tests: a file
that every check takes, or one that a given check must not take.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from policy.features import CANDIDATE_FEATURES, SCHEMA_HASH, C, F
from policy.golden import golden_inputs
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

_FLOAT, _BOOL, _INTS, _INT = 1, 9, 7, 2
#: The last one in which a sum's axes are an attribute: no second kind of weights is needed.
_OPSET = 11


def linear_file(weights: Mapping[str, float], *, schema_hash: str = SCHEMA_HASH) -> bytes:
    """Return the ONNX file of a scorer: the sum of weight × feature, by the features' names."""
    unknown = sorted(set(weights) - set(CANDIDATE_FEATURES))
    if unknown:
        raise ValueError(f"there is no feature {', '.join(unknown)}")
    values = [float(weights.get(name, 0.0)) for name in CANDIDATE_FEATURES]
    graph = (
        _message(1, _node(["rows", "weights"], "weighed", "Mul"))
        + _message(1, _node(["weighed"], "scores", "ReduceSum", _ints("axes", [2]) + _int("keepdims", 0)))
        + _message(2, b"linear")
        + _message(5, _tensor("weights", values))
        + _message(11, _value("rows", _FLOAT, ["nodes", "candidates", F]))
        + _message(11, _value("mask", _BOOL, ["nodes", "candidates"]))
        + _message(11, _value("context", _FLOAT, ["nodes", C]))
        + _message(12, _value("scores", _FLOAT, ["nodes", "candidates"]))
    )
    opset = _message(1, b"") + _varint(2, _OPSET)
    note = _message(1, b"skerry.schema_hash") + _message(2, schema_hash.encode())
    return _varint(1, 6) + _message(8, opset) + _message(7, graph) + _message(14, note)


def linear_scores(weights: Mapping[str, float]) -> tuple[float, ...]:
    """Return the scores of the golden inputs, as the file gives them."""
    row = np.array([weights.get(name, 0.0) for name in CANDIDATE_FEATURES], dtype=np.float32)
    return tuple(float(score) for rows, _ in golden_inputs() for score in rows @ row)


def write_linear(
    path: Path,
    weights: Mapping[str, float],
    *,
    key: PrivateKey | None,
    evaluation: EvaluationSummary | None = None,
    created_wall_s: float = 0.0,
) -> PolicyManifest:
    """Write the file and its manifest beside it; key: signs it, None leaves it unsigned."""
    data = linear_file(weights)
    manifest = PolicyManifest(
        file_hash=content_hash(data),
        file_bytes=len(data),
        schema_hash=SCHEMA_HASH,
        lineage=Lineage(command="weights given by hand"),
        evaluation=evaluation or EvaluationSummary(),
        golden=tuple(score if np.isfinite(score) else 0.0 for score in linear_scores(weights)),
        created_wall_s=created_wall_s,
    )
    manifest = manifest if key is None else sign_manifest(manifest, key)
    path.write_bytes(data)
    manifest_path(path).write_bytes(encode_manifest(manifest))
    return manifest


# --- the wire format; field numbers are those of onnx.proto ----------------------------------------------


def _node(inputs: Sequence[str], output: str, operator: str, attributes: bytes = b"") -> bytes:
    named = b"".join(_message(1, name.encode()) for name in inputs)
    return named + _message(2, output.encode()) + _message(4, operator.encode()) + attributes


def _ints(name: str, values: Sequence[int]) -> bytes:
    packed = b"".join(_varint(8, value) for value in values)
    return _message(5, _message(1, name.encode()) + packed + _varint(20, _INTS))


def _int(name: str, value: int) -> bytes:
    return _message(5, _message(1, name.encode()) + _varint(3, value) + _varint(20, _INT))


def _tensor(name: str, values: Sequence[float]) -> bytes:
    raw = struct.pack(f"<{len(values)}f", *values)
    return _varint(1, len(values)) + _varint(2, _FLOAT) + _message(8, name.encode()) + _message(9, raw)


def _value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    sizes = (_varint(1, one) if isinstance(one, int) else _message(2, one.encode()) for one in shape)
    dimensions = b"".join(_message(1, size) for size in sizes)
    tensor = _varint(1, kind) + _message(2, dimensions)
    return _message(1, name.encode()) + _message(2, _message(1, tensor))


def _message(field: int, content: bytes) -> bytes:
    return _number(field << 3 | 2) + _number(len(content)) + content


def _varint(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(value)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
