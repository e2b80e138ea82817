"""The executor channel's codec: whatever the bytes, messages or one named error."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.executors.channel import (
    FRAME_LIMIT_BYTES,
    Cancel,
    ChannelError,
    Fault,
    Heartbeat,
    Result,
    Run,
    child_decoder,
    encode,
    parent_decoder,
)
from skerry.task import CommandSpec, OnnxSpec, Tensor

STABLE = settings(derandomize=True, database=None, deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
RESULTS = st.builds(
    Result,
    run=st.integers(0, 2**31),
    status=st.text(),
    result=JSON,
    error=st.text(),
    runtime_s=st.floats(0, 1e9),
)
FROM_CHILD = st.one_of(RESULTS, st.builds(Heartbeat, ready=st.booleans()), st.builds(Fault, reason=st.text()))


@STABLE
@given(st.lists(FROM_CHILD, max_size=5), st.data())
def test_messages_survive_any_cutting_of_the_stream(messages: list[Any], data: st.DataObject) -> None:
    stream = b"".join(encode(message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = parent_decoder()

    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])

    assert received == messages


@STABLE
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_garbage_is_silence_or_one_named_error(chunks: list[bytes]) -> None:
    decoder = parent_decoder()

    # Nothing but ChannelError may come out; that nothing comes out at all is as good.
    with suppress(ChannelError):
        for chunk in chunks:
            decoder.feed(chunk)


@STABLE
@given(st.binary(max_size=300))
def test_a_well_framed_body_of_garbage_is_a_named_error_or_a_message(body: bytes) -> None:
    frame = struct.pack(">I", len(body)) + body

    for decoder in (parent_decoder(), child_decoder()):
        with suppress(ChannelError):
            assert len(decoder.feed(frame)) == 1


@pytest.mark.parametrize(
    "spec",
    [
        CommandSpec(argv=("true",), env={"A": "b"}, stdin="x"),
        OnnxSpec(
            model="sha256:" + "0" * 64, inputs={"a": Tensor(dtype="float32", shape=(1,), base64="AAAA")}
        ),
    ],
)
def test_an_attempt_arrives_as_it_was_sent(spec: CommandSpec | OnnxSpec) -> None:
    run = Run(run=7, task_id="0" * 32, fence="1.2", spec=spec, memory_bytes=1, blobs={"sha256:": "/x"})

    assert child_decoder().feed(encode(run) + encode(Cancel(run=7))) == [run, Cancel(run=7)]


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ChannelError, match="announced"):
        parent_decoder().feed(struct.pack(">I", FRAME_LIMIT_BYTES + 1))


def test_a_message_above_the_limit_is_not_sent() -> None:
    with pytest.raises(ChannelError, match="the limit is"):
        encode(Fault(reason="x" * FRAME_LIMIT_BYTES))


def test_a_message_of_the_wrong_direction_is_refused() -> None:
    with pytest.raises(ChannelError):
        parent_decoder().feed(encode(Cancel(run=1)))


def test_nesting_without_end_is_refused() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    body = msgspec.msgpack.encode({"type": "result", "run": 1, "status": "x"})[1:]
    frame = b"\x84" + body + msgspec.msgpack.encode("result") + deep

    with pytest.raises(ChannelError):
        parent_decoder().feed(struct.pack(">I", len(frame)) + frame)
