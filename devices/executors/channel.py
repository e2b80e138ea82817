"""The channel between an agent and an executor child: messages and their framing.

Sans-I/O: bytes in, messages out.

A frame is four bytes of length, big-endian, and one message in MessagePack.
Neither side trusts the other's bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Generic, TypeVar

import msgspec

from devices.emulated import Emulation
from skerry.errors import DeviceError
from skerry.task import ExecutorSpec

#: A task document is at most 128 KiB and a result travels as a file above 32 KiB: a longer frame is garbage.
FRAME_LIMIT_BYTES = 1 << 20

_LENGTH = struct.Struct(">I")


class ChannelError(DeviceError):
    """The other side of an executor's channel does not speak the protocol."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=lambda name: name.lower()):
    pass


class Load(_Message, frozen=True, kw_only=True):
    """First message to a child: which executor it is, on which device, within which limits.

    See ChildSettings.
    """

    kind: str
    device_id: str
    slots: int
    threads: int
    sessions: int
    nice: int
    heartbeat_s: float
    kill_grace_s: float
    output_limit_bytes: int
    output_dir: str
    work_dir: str
    witness: str | None = None
    command_user: str | None = None
    emulation: Emulation | None = None


class Run(_Message, frozen=True, kw_only=True):
    """Start an attempt. run: number of the attempt on this channel.  blobs: content hash → file."""

    run: int
    task_id: str
    fence: str
    spec: ExecutorSpec
    memory_bytes: int
    blobs: dict[str, str] = {}


class Cancel(_Message, frozen=True, kw_only=True):
    """Stop an attempt; its Result still comes."""

    run: int


class Result(_Message, frozen=True, kw_only=True):
    """How an attempt went; the fields of a Report."""

    run: int
    status: str
    result: Any = None
    error: str = ""
    runtime_s: float = 0.0
    load_s: float = 0.0
    loaded: tuple[str, ...] | None = None
    files: dict[str, str] = {}


class Heartbeat(_Message, frozen=True, kw_only=True):
    """The child lives. ready: its runtime is loaded."""

    ready: bool
    running: int = 0


class Fault(_Message, frozen=True, kw_only=True):
    """The child cannot serve its device at all, and ends."""

    reason: str


ToChild = Load | Run | Cancel
FromChild = Result | Heartbeat | Fault
M = TypeVar("M")

_encoder = msgspec.msgpack.Encoder()


def encode(message: ToChild | FromChild) -> bytes:
    """Return message as one frame.  Raises ChannelError when it is longer than FRAME_LIMIT_BYTES."""
    body = _encoder.encode(message)
    if len(body) > FRAME_LIMIT_BYTES:
        raise ChannelError(f"a message of {len(body)} bytes; the limit is {FRAME_LIMIT_BYTES}")
    return _LENGTH.pack(len(body)) + body


class Decoder(Generic[M]):
    """Cuts a stream of bytes into messages of one direction."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        """decoder: of the direction's messages; see child_decoder and parent_decoder."""
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[M]:
        """Return the messages that data completes.  Raises ChannelError on anything that is not one."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > FRAME_LIMIT_BYTES:
                raise ChannelError(f"a frame of {length} bytes announced; the limit is {FRAME_LIMIT_BYTES}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(self._decode(bytes(self._buffer[_LENGTH.size : end])))
            del self._buffer[:end]
        return messages

    def _decode(self, body: bytes) -> M:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ChannelError(f"not a message of the protocol: {error}") from error


def child_decoder() -> Decoder[ToChild]:
    """Return a decoder of what a child receives."""
    decoder: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
    return Decoder(decoder)


def parent_decoder() -> Decoder[FromChild]:
    """Return a decoder of what an agent receives."""
    decoder: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)
    return Decoder(decoder)
