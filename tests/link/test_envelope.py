"""Nothing of a message is believed, or even decoded, before its sender is proven."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skerry.envelope import (
    MAGIC,
    MAX_BODY_BYTES,
    MAX_PAYLOAD_BYTES,
    REFUSALS,
    Header,
    Opened,
    Speaker,
    open_envelope,
    seal,
)
from skerry.errors import EnvelopeRefused, Rejected
from skerry.identity import PrivateKey
from skerry.replay import ReplayWindows
from skerry.topics import COORDINATOR, Leaf, build

NORTH, SOUTH, HUB = (PrivateKey.generate() for _ in range(3))
KEYS = {"north-1": NORTH, "south-1": SOUTH, COORDINATOR: HUB}
EVENTS = build("demo", "north-1", Leaf.EVENTS)
HINT = build("demo", "north-1", Leaf.HINT)
PRESENCE = build("demo", "north-1", Leaf.PRESENCE)


def key_of(source: str) -> bytes | None:
    return bytes.fromhex(KEYS[source].public_hex) if source in KEYS else None


def sealed(
    *,
    key: PrivateKey = NORTH,
    topic: str = EVENTS,
    source: str = "north-1",
    counter: int = 1,
    session: int = 1,
    body: bytes = b"{}",
) -> bytes:
    return seal(key, topic=topic, kind="state", source=source, session=session, counter=counter, body=body)


def opened(payload: bytes, topic: str = EVENTS, windows: ReplayWindows | None = None) -> Opened:
    return open_envelope(payload, topic=topic, key_of=key_of, windows=windows or ReplayWindows())


def refusal(payload: bytes, topic: str = EVENTS, windows: ReplayWindows | None = None) -> str:
    with pytest.raises(EnvelopeRefused) as refused:
        opened(payload, topic, windows)
    assert refused.value.reason in REFUSALS
    return refused.value.reason


def signed_by_hand(header: Header | bytes, body: bytes, *, flags: int = 0, topic: str = EVENTS) -> bytes:
    """A frame that a malicious but enrolled node can make."""
    text = header if isinstance(header, bytes) else msgspec.json.encode(header)
    signed = bytes([flags]) + len(text).to_bytes(2, "big") + text + body
    name = topic.encode()
    covered = b"skerry envelope 1\x00" + len(name).to_bytes(2, "big") + name + signed
    return MAGIC + NORTH.sign(covered) + signed


HEADER = Header(id="1-1", source="north-1", type="state", session=1, counter=1)


@pytest.mark.parametrize("body", [b"", b"{}", b"[" + b"1," * 30_000 + b"1]", bytes(range(256)) * 40])
def test_what_was_sealed_comes_out_as_it_was(body: bytes) -> None:
    result = opened(sealed(body=body, session=7, counter=42))

    assert result.body == body
    assert (result.source, result.session, result.counter, result.kind) == ("north-1", 7, 42, "state")
    assert str(result.topic) == EVENTS


def test_a_large_body_travels_compressed() -> None:
    assert len(sealed(body=b'{"a": 1}' * 5000)) < 2000


def test_a_body_beyond_the_limit_is_not_sealed() -> None:
    with pytest.raises(Rejected):
        sealed(body=bytes(MAX_BODY_BYTES + 1))


def test_a_frame_beyond_the_limit_is_refused_unread() -> None:
    assert refusal(bytes(MAX_PAYLOAD_BYTES + 1)) == "too_large"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        MAGIC,
        MAGIC + bytes(67),
        MAGIC + bytes(64) + b"\x00\xff\xff" + b"{}",
        b"SKR\x02" + sealed()[4:],
        signed_by_hand(b"[]", b"{}"),
        signed_by_hand(b"\xff\xfe", b"{}"),
        signed_by_hand(HEADER, b"{}", flags=9),
        signed_by_hand(Header(id="x", source="north-1", type="state", session=-1, counter=1), b"{}"),
    ],
    ids=range(10),  # not the bytes: each process signs with a key of its own
)
def test_what_is_no_frame_is_malformed(payload: bytes) -> None:
    assert refusal(payload) == "malformed"


def test_a_sender_that_is_not_enrolled_is_unknown() -> None:
    assert refusal(sealed(source="west-9")) == "unknown_sender"


@pytest.mark.parametrize(
    ("key", "source", "topic"),
    [(SOUTH, "south-1", EVENTS), (NORTH, "north-1", HINT), (HUB, COORDINATOR, EVENTS)],
)
def test_a_sender_that_does_not_own_the_topic_is_refused(key: PrivateKey, source: str, topic: str) -> None:
    assert refusal(sealed(key=key, source=source, topic=topic), topic) == "not_owner"


@pytest.mark.parametrize(
    "topic", ["", "skerry/1/demo/north-1/secrets", "skerry/2/demo/north-1/events", "x" * 999]
)
def test_a_topic_outside_the_tree_is_refused(topic: str) -> None:
    assert refusal(sealed(), topic) == "wrong_topic"


def test_a_name_without_its_key_is_forged() -> None:
    assert refusal(sealed(key=SOUTH)) == "bad_signature"


def test_a_message_moved_to_another_topic_is_forged() -> None:
    assert refusal(sealed(), build("demo", "north-1", Leaf.STATE)) == "bad_signature"
    assert refusal(sealed(), build("other", "north-1", Leaf.EVENTS)) == "bad_signature"


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_no_single_flipped_bit_passes(position: int, bit: int) -> None:
    frame = bytearray(sealed(body=b'{"queued": 1}'))
    frame[position % len(frame)] ^= 1 << bit

    assert refusal(bytes(frame)) in {"malformed", "unknown_sender", "not_owner", "bad_signature"}


@given(payload=st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda tail: MAGIC + tail)))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_no_bytes_crash_the_reader(payload: bytes) -> None:
    assert refusal(payload) in REFUSALS


def test_a_replayed_message_is_refused_and_an_unseen_one_behind_it_is_not() -> None:
    windows = ReplayWindows()
    for counter in (1, 5):
        opened(sealed(counter=counter), windows=windows)

    assert refusal(sealed(counter=5), windows=windows) == "replayed"
    assert opened(sealed(counter=3), windows=windows).counter == 3
    assert refusal(sealed(counter=3), windows=windows) == "replayed"


def test_a_message_far_behind_is_refused() -> None:
    windows = ReplayWindows()
    opened(sealed(counter=2000), windows=windows)

    assert refusal(sealed(counter=976), windows=windows) == "replayed"
    assert opened(sealed(counter=977), windows=windows).counter == 977


def test_an_older_session_is_refused_and_a_newer_one_starts_afresh() -> None:
    windows = ReplayWindows()
    opened(sealed(session=3, counter=9), windows=windows)

    assert refusal(sealed(session=2, counter=10), windows=windows) == "old_session"
    assert opened(sealed(session=4, counter=1), windows=windows).session == 4
    assert refusal(sealed(session=3, counter=10), windows=windows) == "old_session"


def test_a_forger_does_not_move_the_window() -> None:
    windows = ReplayWindows()

    assert refusal(sealed(key=SOUTH, session=99, counter=99), windows=windows) == "bad_signature"
    assert opened(sealed(session=1, counter=1), windows=windows).counter == 1


def test_sessions_kept_over_a_restart_stay_closed() -> None:
    windows = ReplayWindows()
    windows.remember("north-1", 5)

    assert refusal(sealed(session=4), windows=windows) == "old_session"
    assert opened(sealed(session=5), windows=windows).session == 5


@pytest.mark.parametrize("heard", [[], [1, 2, 5], [9, 10], [2000]])
def test_counters_kept_over_a_restart_stay_closed_and_later_ones_open(heard: list[int]) -> None:
    windows = ReplayWindows()
    for counter in heard:
        windows.admit("a", 3, counter)

    windows.remember("a", 3, 7)

    assert {windows.admit("a", 3, counter) for counter in range(1, 8)} == {"replayed"}
    later = max([8, *(counter + 1 for counter in heard)])
    assert windows.admit("a", 3, later) == ""
    assert windows.admit("a", 3, later) == "replayed"
    assert windows.admit("a", 4, 1) == ""


def test_a_will_is_taken_late_but_only_of_a_session_that_counts() -> None:
    windows = ReplayWindows()
    speaker = Speaker(NORTH, source="north-1", session=2)
    will = speaker.seal_will(PRESENCE, "presence", b"{}")
    for _ in range(2000):
        opened(speaker.seal(EVENTS, "state", b"{}"), windows=windows)

    assert opened(will, PRESENCE, windows).counter == 0
    opened(Speaker(NORTH, source="north-1", session=3).seal(EVENTS, "state", b"{}"), windows=windows)
    assert refusal(will, PRESENCE, windows) == "old_session"


@pytest.mark.parametrize(
    "body",
    [
        b"not zlib",
        zlib.compress(bytes(MAX_BODY_BYTES + 1)),
        zlib.compress(bytes(200 * MAX_BODY_BYTES)),
        zlib.compress(b"{}" * 900)[:-8],
    ],
)
def test_a_body_that_bursts_or_breaks_when_decompressed_is_refused(body: bytes) -> None:
    assert refusal(signed_by_hand(HEADER, body, flags=1)) == "bad_body"


def test_the_body_is_not_touched_before_the_signature_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise AssertionError("decompressed too early")

    monkeypatch.setattr("skerry.envelope.zlib.decompressobj", explode)
    frame = sealed(key=SOUTH, body=b"{}" * 2000)

    assert refusal(frame) == "bad_signature"


@given(data=st.data())
@settings(max_examples=200, derandomize=True, deadline=None)
def test_the_window_agrees_with_a_set_that_remembers_everything(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 20))
    window, seen, highest = ReplayWindows(size), set[int](), 0
    for counter in data.draw(st.lists(st.integers(0, 60), max_size=80)):
        is_new = counter >= 1 and counter not in seen and counter > highest - size
        assert (window.admit("a", 1, counter) == "") is is_new
        if is_new:
            seen.add(counter)
            highest = max(highest, counter)
