"""Parameters as bytes: one versioned packet of named arrays. Owns form and limits; knows no Flower.

A packet is MessagePack: a version and, in order, (key, dtype, shape, raw little-endian bytes) of each array.
No pickle, no code. Every limit is checked before an array is made; an array is a read-only view of the
packet.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from skerry.errors import FederationError

PACKET_VERSION = 1
#: Of one model; a policy weighs some tens of kilobytes.
PACKET_LIMIT_BYTES = 64 * 1024 * 1024
ARRAYS_LIMIT = 1024
DIMENSIONS_LIMIT = 8
KEY_LIMIT = 200  # characters

#: What may travel, as NumPy writes it. All little-endian: the bytes mean the same on every node.
DTYPES = frozenset({"<f2", "<f4", "<f8", "<i4", "<i8", "|i1", "|u1", "|b1"})

Arrays = dict[str, NDArray[np.generic]]


class PacketRefused(FederationError):
    """The packet of parameters is not valid."""


class _Array(msgspec.Struct, frozen=True, array_like=True):
    key: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Packet(msgspec.Struct, frozen=True, array_like=True):
    version: int
    arrays: list[_Array]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Packet)


def pack(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Return the packet of these arrays, in their order: equal arrays give equal bytes.

    Raises PacketRefused for a type that may not travel.
    """
    return _ENCODER.encode(_Packet(PACKET_VERSION, [_packed(key, array) for key, array in arrays.items()]))


def unpack(data: bytes, *, limit_bytes: int = PACKET_LIMIT_BYTES) -> Arrays:
    """Return the arrays of a packet, read-only.  Raises PacketRefused, saying what is wrong with it."""
    if len(data) > limit_bytes:
        raise PacketRefused(f"the packet has {len(data)} bytes, {limit_bytes} are allowed")
    try:
        packet = _DECODER.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
        raise PacketRefused(f"not a packet of parameters: {error}") from error
    if packet.version != PACKET_VERSION:
        raise PacketRefused(
            f"the packet has version {packet.version}, this program knows {PACKET_VERSION}: "
            "bring the older side up to date"
        )
    if len(packet.arrays) > ARRAYS_LIMIT:
        raise PacketRefused(f"the packet has {len(packet.arrays)} arrays, {ARRAYS_LIMIT} are allowed")
    arrays = {array.key: _unpacked(array) for array in packet.arrays}
    if len(arrays) != len(packet.arrays):
        raise PacketRefused("the packet names one array twice")
    return arrays


def content_hash(data: bytes) -> str:
    """Return the name under which a content store holds these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _packed(key: str, array: NDArray[np.generic]) -> _Array:
    little = np.asarray(array, order="C")
    if little.dtype.byteorder == ">":
        little = little.astype(little.dtype.newbyteorder("<"))
    if little.dtype.str not in DTYPES:
        raise PacketRefused(f"array {key[:KEY_LIMIT]} is of type {array.dtype}, which may not travel")
    return _Array(key, little.dtype.str, little.shape, little.tobytes())


def _unpacked(array: _Array) -> NDArray[np.generic]:
    key = array.key[:KEY_LIMIT]
    if not array.key or len(array.key) > KEY_LIMIT:
        raise PacketRefused(f"an array's name has {len(array.key)} characters, 1 to {KEY_LIMIT} are allowed")
    if array.dtype not in DTYPES:
        raise PacketRefused(f"array {key} is of type {array.dtype[:20]!r}, which may not travel")
    if len(array.shape) > DIMENSIONS_LIMIT or any(size < 0 for size in array.shape):
        raise PacketRefused(f"array {key} has a shape that may not travel")
    dtype = np.dtype(array.dtype)
    if math.prod(array.shape) * dtype.itemsize != len(array.data):
        raise PacketRefused(f"array {key} does not have the bytes that its shape asks for")
    return np.frombuffer(array.data, dtype=dtype).reshape(array.shape)
