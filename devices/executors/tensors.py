"""Arrays in and out of a model: checks against its signature, decoding and encoding. Runs in a child only.

Owns the wording of a wrong input; knows nothing of channels or sessions.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from skerry.ids import content_hash
from skerry.task import INLINE_LIMIT_BYTES, Tensor

Array = npt.NDArray[Any]

#: ONNX's element types, as onnxruntime spells them, and ours.
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


class InputRefused(Exception):
    """The model cannot take this input, whenever it is tried."""


class InputMissing(Exception):
    """Content that the task names is not on this node."""


class OutputRefused(Exception):
    """The model's outputs cannot be handed on."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One input in a model's signature. shape: a number, or the name of a free dimension; None: any."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.dtype} [{dims}]"


def slot_of(argument: Any) -> Slot:
    """Return the signature of onnxruntime's NodeArg."""
    return Slot(
        name=str(argument.name),
        dtype=_DTYPES.get(argument.type, str(argument.type)),
        shape=tuple(argument.shape),
    )


def read_inputs(
    signature: tuple[Slot, ...], inputs: Mapping[str, Tensor], blobs: Mapping[str, str]
) -> dict[str, Array]:
    """Return the arrays for a model's inputs.

    Raises InputRefused, naming the input, what was expected and what came; InputMissing for absent content.
    """
    known = {slot.name for slot in signature}
    unknown = sorted(set(inputs) - known)
    if unknown:
        raise InputRefused(
            f"input {unknown[0]}: the model has no such input; it has {', '.join(sorted(known))}"
        )
    sizes: dict[str, int] = {}
    arrays = {}
    for slot in signature:
        tensor = inputs.get(slot.name)
        if tensor is None:
            raise InputRefused(f"input {slot.name}: missing; expected {slot}")
        _check(slot, tensor, sizes)
        arrays[slot.name] = _array(slot.name, tensor, blobs)
    return arrays


def _check(slot: Slot, tensor: Tensor, sizes: dict[str, int]) -> None:
    got = f"{tensor.dtype} [{', '.join(map(str, tensor.shape))}]"
    refusal = InputRefused(f"input {slot.name}: expected {slot}, got {got}")
    if tensor.dtype != slot.dtype or len(tensor.shape) != len(slot.shape):
        raise refusal
    for expected, size in zip(slot.shape, tensor.shape, strict=True):
        if isinstance(expected, int) and expected != size:
            raise refusal
        if isinstance(expected, str) and sizes.setdefault(expected, size) != size:
            raise InputRefused(
                f"input {slot.name}: expected {slot}, got {got}; "
                f"another input has {sizes[expected]} for {expected}"
            )


def _array(name: str, tensor: Tensor, blobs: Mapping[str, str]) -> Array:
    data = _bytes(name, tensor, blobs)
    dtype = np.dtype(tensor.dtype).newbyteorder("<")
    expected = math.prod(tensor.shape) * dtype.itemsize
    if len(data) != expected:
        shape = ", ".join(map(str, tensor.shape))
        raise InputRefused(f"input {name}: {tensor.dtype} [{shape}] is {expected} bytes, got {len(data)}")
    return np.frombuffer(data, dtype).reshape(tensor.shape).astype(dtype.newbyteorder("="), copy=False)


def _bytes(name: str, tensor: Tensor, blobs: Mapping[str, str]) -> bytes:
    if tensor.blob is None:
        try:
            return base64.b64decode(tensor.base64 or "", validate=True)
        except binascii.Error as error:
            raise InputRefused(f"input {name}: not valid base64: {error}") from error
    return read_content(tensor.blob, blobs, what=f"input {name}")


def read_content(content: str, blobs: Mapping[str, str], *, what: str) -> bytes:
    """Return content by its hash, verified.

    Raises InputMissing when it is absent or does not match its hash.
    """
    path = blobs.get(content)
    if path is None:
        raise InputMissing(f"{what} {content[:19]}… is not on this node")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputMissing(f"{what} {content[:19]}… cannot be read: {error.strerror}") from error
    if content_hash(data) != content:
        raise InputMissing(
            f"{what}: the file does not match its hash {content[:19]}…; remove it and add it again"
        )
    return data


def write_outputs(
    outputs: Mapping[str, Any], directory: Path, limit_bytes: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the outputs as JSON values, and the files they went to when they are too large to travel inline.

    In a file: raw little-endian bytes, row-major.  Raises OutputRefused above limit_bytes, or for a type
    other than numbers and truth values.
    """
    arrays = {name: _plain(name, value) for name, value in outputs.items()}
    total = sum(array.nbytes for array in arrays.values())
    if total > limit_bytes:
        raise OutputRefused(f"outputs of {total} bytes; the limit is {limit_bytes} (output_limit_bytes)")
    if total <= INLINE_LIMIT_BYTES:
        return {name: _head(array) | {"base64": _text(array)} for name, array in arrays.items()}, {}
    directory.mkdir(parents=True, mode=0o700)
    described, files = {}, {}
    for index, (name, array) in enumerate(arrays.items()):
        path = directory / f"{index}.bin"
        path.write_bytes(array.tobytes())
        described[name] = _head(array) | {"file": name, "bytes": array.nbytes}
        files[name] = str(path)
    return described, files


def _plain(name: str, value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise OutputRefused(f"output {name}: type {array.dtype} is neither a number nor a truth value")
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).reshape(array.shape)


def _head(array: Array) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def _text(array: Array) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
