"""What an ONNX file holds, read from its bytes without running it: its operators, weights and metadata.

Owns the few fields of the format that a check before loading needs. A model that may loop, points to other
files, or carries weights that are not numbers is known here, before a runtime sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Numbers of the protobuf fields that are read (onnx.proto, IR version 3 and later).
_MODEL_GRAPH, _MODEL_METADATA = 7, 14
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_TENSOR = 6, 11, 5
_TENSOR_TYPE, _TENSOR_FLOATS, _TENSOR_NAME, _TENSOR_RAW, _TENSOR_EXTERNAL = 2, 4, 8, 9, 13
_FLOAT32 = 1


class MalformedOnnx(ValueError):
    """The bytes are not an ONNX model."""


@dataclass(frozen=True)
class OnnxFile:
    """What was found. weights: float arrays by name, flat."""

    operators: frozenset[str]
    weights: dict[str, NDArray[np.float32]]
    metadata: dict[str, str]
    has_external_data: bool
    has_subgraphs: bool


def read_onnx(data: bytes) -> OnnxFile:
    """Return what the model holds.  Raises MalformedOnnx."""
    try:
        return _read(data)
    except (IndexError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise MalformedOnnx(f"not an ONNX model: {error}") from error


def _read(data: bytes) -> OnnxFile:
    graphs, metadata = [], {}
    for field, value in _fields(data):
        if field == _MODEL_GRAPH:
            graphs.append(_bytes(value))
        elif field == _MODEL_METADATA:
            pair = {number: _bytes(part).decode() for number, part in _fields(_bytes(value))}
            metadata[pair.get(1, "")] = pair.get(2, "")
    if len(graphs) != 1:
        raise ValueError("it holds no graph")
    operators: set[str] = set()
    tensors: list[dict[int, list[bytes | int]]] = []
    has_subgraphs = False
    for field, value in _fields(graphs[0]):
        if field == _GRAPH_NODE:
            operator, inner, nested = _node(_bytes(value))
            operators.add(operator)
            tensors += inner
            has_subgraphs |= nested
        elif field == _GRAPH_INITIALIZER:
            tensors.append(_grouped(_bytes(value)))
    weights = dict(filter(None, (_weights(i, tensor) for i, tensor in enumerate(tensors))))
    external = any(_TENSOR_EXTERNAL in tensor for tensor in tensors)
    return OnnxFile(frozenset(operators), weights, metadata, external, has_subgraphs)


def _node(data: bytes) -> tuple[str, list[dict[int, list[bytes | int]]], bool]:
    parts = _grouped(data)
    operator = "".join(_bytes(value).decode() for value in parts.get(_NODE_OPERATOR, []))
    domain = "".join(_bytes(value).decode() for value in parts.get(_NODE_DOMAIN, []))
    attributes = [_grouped(_bytes(value)) for value in parts.get(_NODE_ATTRIBUTE, [])]
    tensors = [_grouped(_bytes(t)) for one in attributes for t in one.get(_ATTRIBUTE_TENSOR, [])]
    nested = any(_ATTRIBUTE_GRAPH in one or _ATTRIBUTE_GRAPHS in one for one in attributes)
    return f"{domain}::{operator}" if domain else operator, tensors, nested


def _weights(number: int, tensor: dict[int, list[bytes | int]]) -> tuple[str, NDArray[np.float32]] | None:
    if tensor.get(_TENSOR_TYPE) != [_FLOAT32]:
        return None
    name = "".join(_bytes(value).decode() for value in tensor.get(_TENSOR_NAME, [])) or f"#{number}"
    raw = b"".join(_bytes(v) for key in (_TENSOR_RAW, _TENSOR_FLOATS) for v in tensor.get(key, []))
    return name, np.frombuffer(raw, dtype="<f4")


def _grouped(data: bytes) -> dict[int, list[bytes | int]]:
    found: dict[int, list[bytes | int]] = {}
    for field, value in _fields(data):
        found.setdefault(field, []).append(value)
    return found


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where a message should")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield (field number, value) of one protobuf message; groups are not part of ONNX."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("it is cut short")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")
