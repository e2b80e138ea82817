"""A signed request shows its node; anything else about it that differs is refused."""

from __future__ import annotations

import pytest

from skerry.errors import IdentityError
from skerry.identity import PrivateKey
from skerry.signed_http import (
    NODE_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    SeenNonces,
    check_signed,
    signed_headers,
)

KEY = PrivateKey.generate()


def key_of(node: str) -> bytes | None:
    return bytes.fromhex(KEY.public_hex) if node in ("edge-1", "edge-2") else None


def test_a_signed_request_shows_its_node() -> None:
    headers = signed_headers(KEY, "edge-1", "GET", "/v1/blobs/x")

    assert check_signed(headers, "get", "/v1/blobs/x", key_of=key_of, seen=SeenNonces()) == "edge-1"


def test_a_recorded_request_does_not_count_twice() -> None:
    seen = SeenNonces(limit=100)
    headers = signed_headers(KEY, "edge-1", "GET", "/v1/blobs/x")
    check_signed(headers, "GET", "/v1/blobs/x", key_of=key_of, seen=seen)
    for _ in range(50):
        fresh = signed_headers(KEY, "edge-1", "GET", "/v1/blobs/x")
        check_signed(fresh, "GET", "/v1/blobs/x", key_of=key_of, seen=seen)

    with pytest.raises(IdentityError, match="made before"):
        check_signed(headers, "GET", "/v1/blobs/x", key_of=key_of, seen=seen)


def test_a_forger_uses_up_no_number() -> None:
    seen = SeenNonces()
    headers = signed_headers(KEY, "edge-1", "GET", "/v1/blobs/x")
    with pytest.raises(IdentityError):
        check_signed(headers, "PUT", "/v1/blobs/x", key_of=key_of, seen=seen)

    assert check_signed(headers, "GET", "/v1/blobs/x", key_of=key_of, seen=seen) == "edge-1"


@pytest.mark.parametrize(
    ("method", "path", "changes", "why"),
    [
        ("PUT", "/v1/blobs/x", {}, "signature is not"),
        ("GET", "/v1/blobs/y", {}, "signature is not"),
        ("GET", "/v1/blobs/x", {NODE_HEADER: "edge-2"}, "signature is not"),
        ("GET", "/v1/blobs/x", {NODE_HEADER: "edge-9"}, "no enrolled node"),
        ("GET", "/v1/blobs/x", {NONCE_HEADER: "ab" * 16}, "signature is not"),
        ("GET", "/v1/blobs/x", {NONCE_HEADER: ""}, "not signed"),
        ("GET", "/v1/blobs/x", {SIGNATURE_HEADER: "zz"}, "signature is not"),
        ("GET", "/v1/blobs/x", {SIGNATURE_HEADER: ""}, "not signed"),
    ],
)
def test_a_request_that_was_changed_is_refused(
    method: str, path: str, changes: dict[str, str], why: str
) -> None:
    headers = {**signed_headers(KEY, "edge-1", "GET", "/v1/blobs/x"), **changes}

    with pytest.raises(IdentityError, match=why):
        check_signed(headers, method, path, key_of=key_of, seen=SeenNonces())
