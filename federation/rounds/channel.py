"""The private channel between a run's worker and the coordinator: messages and framing. Sans-I/O.

A frame is four bytes of length, big-endian, and one message in MessagePack. The worker asks, the coordinator
answers each request once, in order. The worker never learns what carries its instructions.
"""

from __future__ import annotations

import struct

import msgspec

from federation.values import Instruction, Refused, RunSpec, RunState, Verdict
from skerry.errors import FederationError

#: A model of 64 MiB and what is said around it.
FRAME_LIMIT_BYTES = 72 * 1024 * 1024
#: How much of replies one answer carries; the rest is asked for again.
TAKE_LIMIT_BYTES = 32 * 1024 * 1024

_LENGTH = struct.Struct(">I")


class ChannelClosed(FederationError):
    """The other end of the worker's channel is gone."""


class TryAgain(FederationError):
    """The coordinator cannot do this now."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One message of the channel."""


# --- what the worker asks ----------------------------------------------------------------------------


class Open(_Message, frozen=True, kw_only=True):
    """First message: serve this run."""

    run_id: str


class AskNodes(_Message, frozen=True, kw_only=True):
    """Answer once `minimum` nodes are eligible, or patience is over."""

    minimum: int


class Push(_Message, frozen=True, kw_only=True):
    """Keep and hand over these instructions, all of the newest version."""

    instructions: tuple[Instruction, ...]


class WaitReplies(_Message, frozen=True, kw_only=True):
    """Answer once `minimum` of these have a reply, or after timeout_s."""

    ids: tuple[str, ...]
    minimum: int
    timeout_s: float


class Take(_Message, frozen=True, kw_only=True):
    """Answer with the replies that are there among these."""

    ids: tuple[str, ...]


class CommitVersion(_Message, frozen=True, kw_only=True):
    """Keep this version and its verdicts, as one."""

    version: int
    model: bytes
    state: bytes
    verdicts: dict[str, Verdict]
    metrics: dict[str, float]


class RefuseReplies(_Message, frozen=True, kw_only=True):
    """Keep these refusals although no version came of them."""

    verdicts: dict[str, Verdict]


class WaitForQuorum(_Message, frozen=True, kw_only=True):
    """The run waits; say so, and how long it may."""

    reason: str


class Finish(_Message, frozen=True, kw_only=True):
    """The run is over."""

    state: RunState
    reason: str = ""


Request = Open | AskNodes | Push | WaitReplies | Take | CommitVersion | RefuseReplies | WaitForQuorum | Finish


# --- what the coordinator answers --------------------------------------------------------------------


class Opened(_Message, frozen=True, kw_only=True):
    """Where the run stands. models: packets of the versions that replies may still refer to."""

    spec: RunSpec
    version: int
    models: dict[int, bytes]
    state: bytes
    age_s: float


class Nodes(_Message, frozen=True, kw_only=True):
    """The eligible nodes; fewer than asked for when patience is over."""

    names: tuple[str, ...]


class Done(_Message, frozen=True, kw_only=True):
    """It is done. model: content hash of the version that was kept."""

    model: str = ""


class Patience(_Message, frozen=True, kw_only=True):
    """How long the run may wait."""

    left_s: float


class TakenReply(_Message, frozen=True, kw_only=True):
    """One reply with its packet. node: that was asked, for a worker that did not ask it itself."""

    instruction_id: str
    node: str
    packet: bytes = b""
    num_examples: int = 0
    metrics: dict[str, float] = {}
    refused: Refused | None = None  #: why there is no packet


class Taken(_Message, frozen=True, kw_only=True):
    """Replies. has_more: others are there, ask again."""

    replies: tuple[TakenReply, ...]
    has_more: bool = False


class Failed(_Message, frozen=True, kw_only=True):
    """The request could not be served. is_passing: another worker may ask again later."""

    reason: str
    is_passing: bool = False


Answer = Opened | Nodes | Done | Patience | Taken | Failed

_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def frame(message: Request | Answer) -> bytes:
    """Return the message as a frame.  Raises FederationError when it is too large."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(check_length(len(body))) + body


def length_of(head: bytes) -> int:
    """Return the length that a frame's first four bytes name.  Raises FederationError if too large."""
    return check_length(_LENGTH.unpack(head)[0])


def check_length(size: int) -> int:
    """Return size when a frame may have it; else raise FederationError."""
    if size > FRAME_LIMIT_BYTES:
        raise FederationError(
            f"a message of {size} bytes between coordinator and run: {FRAME_LIMIT_BYTES} fit"
        )
    return size


def request_of(body: bytes) -> Request:
    """Return the request in a frame's body.  Raises FederationError when it is none."""
    try:
        return _REQUESTS.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise FederationError(f"the run's worker said something that is no request: {error}") from error


def answer_of(body: bytes) -> Answer:
    """Return the answer in a frame's body.  Raises FederationError when it is none."""
    try:
        return _ANSWERS.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise FederationError(f"the coordinator said something that is no answer: {error}") from error
