"""Bodies to and from JSON, with their kinds. A body that cannot be read is a value, never a crash."""

from __future__ import annotations

from typing import Any, TypeVar, get_args

import msgspec

from skerry.decoding import MALFORMED
from skerry.link.actions import ReceivedRow, Refuse, Send
from skerry.messages import (
    Birth,
    DownRow,
    Hint,
    Presence,
    Row,
    State,
    StateAck,
    StreamAck,
    StreamBatch,
    UpRow,
    Welcome,
)
from skerry.topics import Leaf

Body = Birth | Welcome | Presence | State | StateAck | Hint | StreamBatch | StreamAck
B = TypeVar("B", bound=Body)

#: The envelope's type of each body.
KINDS: dict[type[Body], str] = {
    Birth: "birth",
    Welcome: "welcome",
    Presence: "presence",
    State: "state",
    StateAck: "state.ack",
    Hint: "hint",
    StreamBatch: "stream.batch",
    StreamAck: "stream.ack",
}
_TYPES = {kind: body for body, kind in KINDS.items()}
_decoders: dict[type[Body], msgspec.json.Decoder[Body]] = {body: msgspec.json.Decoder(body) for body in KINDS}
_encoder = msgspec.json.Encoder()


class RowReader:
    """Turns rows of one direction into typed messages."""

    def __init__(self, union: Any) -> None:
        """union: UpRow or DownRow."""
        self._decoder: msgspec.json.Decoder[UpRow | DownRow] = msgspec.json.Decoder(union)
        self._kinds = {member.__struct_config__.tag for member in get_args(union)}

    def read(self, row: Row) -> ReceivedRow:
        """Return the row with its message, or with what is wrong with it."""
        if row.kind not in self._kinds:
            return ReceivedRow(row, None, f"unknown kind {row.kind[:80]!r}")
        try:
            message = self._decoder.decode(row.body)
        except MALFORMED as error:
            return ReceivedRow(row, None, f"{row.kind} cannot be read: {error}")
        if type(message).__struct_config__.tag != row.kind:
            return ReceivedRow(row, None, f"a row of kind {row.kind} holds another kind")
        return ReceivedRow(row, message)


UP_ROWS = RowReader(UpRow)
DOWN_ROWS = RowReader(DownRow)


def send(leaf: Leaf, body: Body, *, retain: bool = False) -> Send:
    """Return the action that says body on leaf."""
    return Send(leaf, KINDS[type(body)], _encoder.encode(body), retain)


def read_body(kind: str, body: bytes) -> Body | Refuse:
    """Return the typed body of an envelope, or why it is none."""
    expected = _TYPES.get(kind)
    if expected is None:
        return Refuse("unknown_kind", kind[:80])
    try:
        return _decoders[expected].decode(body)
    except MALFORMED as error:
        return Refuse("bad_body", f"{kind}: {error}")


def presence_body(session: int, *, online: bool) -> bytes:
    """Return the body of a presence message, as the will needs it before there is a connection."""
    return _encoder.encode(Presence(session=session, online=online))
