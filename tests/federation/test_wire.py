"""Packets of parameters: what goes in comes out, and nothing that a stranger writes does harm."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.wire import DTYPES, PACKET_VERSION, PacketRefused, content_hash, pack, unpack

SETTINGS = settings(derandomize=True, max_examples=200, deadline=None)

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
arrays = st.dictionaries(
    st.text(min_size=1, max_size=20),
    st.tuples(st.sampled_from(sorted(DTYPES)), shapes, st.integers(0, 2**32 - 1)),
    max_size=5,
)


def made(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """An array of any type from a seed, special values of its bytes among them."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if kind.kind == "b" else 256, size, dtype=np.uint8)
    return np.frombuffer(raw.tobytes(), dtype=kind).reshape(shape)


@given(arrays)
@SETTINGS
def test_arrays_come_back_bit_by_bit(described: dict[str, tuple[str, tuple[int, ...], int]]) -> None:
    sent = {key: made(*one) for key, one in described.items()}

    got = unpack(pack(sent))

    assert list(got) == list(sent)
    for key, array in sent.items():
        assert (got[key].dtype, got[key].shape) == (array.dtype, array.shape)
        assert got[key].tobytes() == array.tobytes()


def test_equal_arrays_have_equal_packets_whatever_their_layout() -> None:
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    turned = np.asfortranarray(plain)
    other_end = plain.astype(">f4")

    packets = {pack({"w": array}) for array in (plain, turned, other_end)}

    assert len(packets) == 1
    assert content_hash(packets.pop()).startswith("sha256:")


@given(st.binary(max_size=200))
@SETTINGS
def test_any_bytes_are_arrays_or_are_refused(data: bytes) -> None:
    with suppress(PacketRefused):  # anything else that it raises fails the test
        unpack(data)


@given(arrays, st.data())
@SETTINGS
def test_a_damaged_packet_is_arrays_or_is_refused(
    described: dict[str, tuple[str, tuple[int, ...], int]], data: st.DataObject
) -> None:
    packet = bytearray(pack({key: made(*one) for key, one in described.items()}))
    place = data.draw(st.integers(0, len(packet) - 1))
    packet[place] ^= data.draw(st.integers(1, 255))

    with suppress(PacketRefused):
        unpack(bytes(packet))


def raw(*found: tuple[str, str, tuple[int, ...], bytes], version: int = PACKET_VERSION) -> bytes:
    """A packet written by hand."""
    return msgspec.msgpack.encode([version, [list(one) for one in found]])


@pytest.mark.parametrize(
    ("packet", "why"),
    [
        (raw(("w", "<f4", (1 << 40,), b"")), "bytes that its shape"),
        (raw(("w", "<f4", (2,), b"1234")), "bytes that its shape"),
        (raw(("w", "<f4", (-1, -1), b"1234")), "shape"),
        (raw(("w", "<f4", (1,) * 9, b"1234")), "shape"),
        (raw(("w", "|O8", (1,), b"12345678")), "may not travel"),
        (raw(("w", ">f4", (1,), b"1234")), "may not travel"),
        (raw(("", "<f4", (1,), b"1234")), "name"),
        (raw(("w" * 201, "<f4", (1,), b"1234")), "name"),
        (raw(("w", "<f4", (1,), b"1234"), ("w", "<f4", (1,), b"1234")), "twice"),
        (raw(*[(str(n), "<f4", (0,), b"") for n in range(1025)]), "1025 arrays"),
        (raw(version=2), "version 2"),
        (b"\xc1", "not a packet"),
    ],
)
def test_a_hostile_packet_is_refused_with_a_reason(packet: bytes, why: str) -> None:
    with pytest.raises(PacketRefused, match=why):
        unpack(packet)


def test_a_packet_over_the_limit_is_not_even_read() -> None:
    with pytest.raises(PacketRefused, match="11 bytes, 10"):
        unpack(b"x" * 11, limit_bytes=10)


def test_objects_do_not_travel() -> None:
    with pytest.raises(PacketRefused, match="type object"):
        pack({"w": np.array([object()])})


def test_a_packet_of_the_first_version_stays_readable() -> None:
    golden = Path(__file__).with_name("packet-1.bin").read_bytes()

    got = unpack(golden)

    assert got["layer.weight"].tolist() == [[0.5, -1.0], [2.0, 0.25]]
    assert got["steps"].tolist() == [7]
    assert pack(got) == golden
