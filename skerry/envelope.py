"""The signed frame around every message. Owns its form and the checks before a body is decoded.

Frame: `SKR` and a version byte, a 64-byte ed25519 signature, a flags byte, the header's length (2 bytes,
big-endian), the header as JSON with CloudEvents names, then the body: JSON, compressed when that is smaller.
The signature covers topic, flags, header and the body as sent. Knows no message type and no broker.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec

from skerry.decoding import MALFORMED
from skerry.errors import EnvelopeRefused, Rejected, SpecError
from skerry.identity import SIGNATURE_BYTES, PrivateKey, verify
from skerry.replay import ReplayWindows
from skerry.topics import Leaf, Topic, parse

MAGIC = b"SKR\x01"
#: A frame above this is refused unread, bytes.
MAX_PAYLOAD_BYTES = 512 * 1024
#: A body may not be larger than this once decompressed, bytes.
MAX_BODY_BYTES = 1024 * 1024
#: Bodies above this are compressed, bytes.
COMPRESS_ABOVE_BYTES = 1024
_MAX_HEADER_BYTES = 1024
_COMPRESSED = 1
_CONTEXT = b"skerry envelope 1\x00"
_HEADER_AT = len(MAGIC) + SIGNATURE_BYTES + 3

#: Why an envelope may be refused, in the order of the checks; each is the label of a counter.
REFUSALS = (
    "too_large",  # above MAX_PAYLOAD_BYTES
    "malformed",  # not a frame of this version, or a header that cannot be read
    "wrong_topic",  # not a topic of the tree
    "unknown_sender",  # no enrolled key under this name
    "not_owner",  # the sender may not speak on this topic
    "bad_signature",  # forged, damaged, or moved from another topic
    "old_session",  # a session that a newer one has replaced
    "replayed",  # this counter was seen before (a broker's own repetition counts here too), or is far behind
    "bad_body",  # the body does not decompress within MAX_BODY_BYTES
)

KeyOf = Callable[[str], bytes | None]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header, with CloudEvents attribute names; session and counter are extensions."""

    id: str
    source: str
    type: str
    session: int
    counter: int
    specversion: str = "1.0"
    datacontenttype: str = "application/json"


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose sender is known. body: JSON bytes, not decoded yet."""

    topic: Topic
    kind: str
    source: str
    session: int
    counter: int
    body: bytes


_header_decoder = msgspec.json.Decoder(Header)


def seal(
    key: PrivateKey, *, topic: str, kind: str, source: str, session: int, counter: int, body: bytes
) -> bytes:
    """Return the signed frame for one message.

    counter: grows with each message of one source and session.  Raises Rejected when the body is too large.
    """
    if len(body) > MAX_BODY_BYTES:
        raise Rejected(f"the body of {kind} has {len(body)} bytes; at most {MAX_BODY_BYTES} can be sent")
    header = msgspec.json.encode(
        Header(id=f"{session}-{counter}", source=source, type=kind, session=session, counter=counter)
    )
    flags, sent = _compress(body)
    signed = bytes([flags]) + len(header).to_bytes(2, "big") + header + sent
    frame = MAGIC + key.sign(_covered(topic, signed)) + signed
    if len(frame) > MAX_PAYLOAD_BYTES:
        raise Rejected(f"{kind} has {len(frame)} bytes on the wire; at most {MAX_PAYLOAD_BYTES} can be sent")
    return frame


def open_envelope(payload: bytes, *, topic: str, key_of: KeyOf, windows: ReplayWindows) -> Opened:
    """Check a frame and return what it holds; nothing of the body is looked at before the sender is proven.

    key_of: the enrolled public key (32 bytes) under a sender's name, or None.  windows: what was seen before.
    Raises EnvelopeRefused with one of REFUSALS.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise EnvelopeRefused("too_large", f"a message of {len(payload)} bytes on {topic[:256]}")
    header, body_at = _read_header(payload)
    where = _read_topic(topic)
    public_key = key_of(header.source)
    if public_key is None:
        raise EnvelopeRefused("unknown_sender", f"{header.source[:80]!r} is not enrolled")
    if where.owner != header.source:
        raise EnvelopeRefused("not_owner", f"{header.source} spoke on {topic}, which is {where.owner}'s")
    signature, signed = payload[len(MAGIC) : len(MAGIC) + SIGNATURE_BYTES], payload[_HEADER_AT - 3 :]
    if not verify(public_key, signature, _covered(topic, signed)):
        raise EnvelopeRefused("bad_signature", f"the signature on {topic} is not {header.source}'s")
    # A will is signed when the session begins and published at its end: only its session can be compared.
    refusal = windows.admit(
        header.source, header.session, header.counter, ordered=where.leaf != Leaf.PRESENCE
    )
    if refusal:
        raise EnvelopeRefused(refusal, f"{header.source} session {header.session} counter {header.counter}")
    return Opened(
        topic=where,
        kind=header.type,
        source=header.source,
        session=header.session,
        counter=header.counter,
        body=_decompress(payload[len(MAGIC) + SIGNATURE_BYTES], payload[body_at:]),
    )


def is_birth_out_of_date(topic: str, refused: EnvelopeRefused) -> bool:
    """Decide whether this was a birth, signed by its node, that another has overtaken: its sender is told."""
    return refused.reason in ("old_session", "replayed") and topic.endswith(f"/{Leaf.BIRTH.value}")


class Speaker:
    """Seals the messages of one sender in one session, counting them."""

    def __init__(self, key: PrivateKey, *, source: str, session: int) -> None:
        """source: the node's name, or `coordinator`."""
        self._key = key
        self._counter = 0
        self.source = source
        self.session = session

    def seal(self, topic: str, kind: str, body: bytes) -> bytes:
        """Return the frame for the next message.  Raises Rejected when it is too large."""
        self._counter += 1
        return self._seal(topic, kind, body, self._counter)

    def in_session(self, session: int) -> Speaker:
        """Return the same sender's voice in another session, counting anew."""
        return Speaker(self._key, source=self.source, session=session)

    def seal_will(self, topic: str, kind: str, body: bytes) -> bytes:
        """Return a frame outside the count, for the session's will; may be called on any thread."""
        return self._seal(topic, kind, body, 0)

    def _seal(self, topic: str, kind: str, body: bytes, counter: int) -> bytes:
        return seal(
            self._key,
            topic=topic,
            kind=kind,
            source=self.source,
            session=self.session,
            counter=counter,
            body=body,
        )


def _covered(topic: str, signed: bytes) -> bytes:
    name = topic.encode()
    return b"".join((_CONTEXT, len(name).to_bytes(2, "big"), name, signed))


def _compress(body: bytes) -> tuple[int, bytes]:
    if len(body) > COMPRESS_ABOVE_BYTES:
        small = zlib.compress(body, 6)
        if len(small) < len(body):
            return _COMPRESSED, small
    return 0, body


def _decompress(flags: int, sent: bytes) -> bytes:
    if not flags & _COMPRESSED:
        return sent
    engine = zlib.decompressobj()
    try:
        body = engine.decompress(sent, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise EnvelopeRefused("bad_body", f"the body cannot be decompressed: {error}") from error
    if len(body) > MAX_BODY_BYTES or not engine.eof:
        raise EnvelopeRefused("bad_body", f"the body is cut short or above {MAX_BODY_BYTES} bytes")
    return body


def _read_header(payload: bytes) -> tuple[Header, int]:
    if len(payload) < _HEADER_AT or not payload.startswith(MAGIC):
        raise EnvelopeRefused("malformed", "not a frame of this protocol version")
    length = int.from_bytes(payload[_HEADER_AT - 2 : _HEADER_AT], "big")
    end = _HEADER_AT + length
    if payload[_HEADER_AT - 3] > _COMPRESSED or length > _MAX_HEADER_BYTES or end > len(payload):
        raise EnvelopeRefused("malformed", "the frame's own lengths or flags do not fit")
    try:
        header = _header_decoder.decode(payload[_HEADER_AT:end])
    except MALFORMED as error:
        raise EnvelopeRefused("malformed", f"the header cannot be read: {error}") from error
    if header.session < 0 or header.counter < 0:
        raise EnvelopeRefused("malformed", "the header's session or counter is negative")
    return header, end


def _read_topic(topic: str) -> Topic:
    try:
        return parse(topic)
    except SpecError as error:
        raise EnvelopeRefused("wrong_topic", str(error)) from error
