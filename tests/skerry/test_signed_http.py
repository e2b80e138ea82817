"""A signed request shows its node; anything else about it that differs is refused."""

from __future__ import annotations

import pytest

from skerry.errors import IdentityError
from skerry.identity import PrivateKey
from skerry.signed_http import NODE_HEADER, SIGNATURE_HEADER, check_signed, signed_headers

KEY = PrivateKey.generate()


def key_of(node: str) -> bytes | None:
    return bytes.fromhex(KEY.public_hex) if node in ("edge-1", "edge-2") else None


def test_a_signed_request_shows_its_node() -> None:
    headers = signed_headers(KEY, "edge-1", "GET", "/v1/blobs/x")

    assert check_signed(headers, "get", "/v1/blobs/x", key_of=key_of) == "edge-1"


@pytest.mark.parametrize(
    ("method", "path", "changes", "why"),
    [
        ("PUT", "/v1/blobs/x", {}, "signature is not"),
        ("GET", "/v1/blobs/y", {}, "signature is not"),
        ("GET", "/v1/blobs/x", {NODE_HEADER: "edge-2"}, "signature is not"),
        ("GET", "/v1/blobs/x", {NODE_HEADER: "edge-9"}, "no enrolled node"),
        ("GET", "/v1/blobs/x", {SIGNATURE_HEADER: "zz"}, "signature is not"),
        ("GET", "/v1/blobs/x", {SIGNATURE_HEADER: ""}, "not signed"),
    ],
)
def test_a_request_that_was_changed_is_refused(
    method: str, path: str, changes: dict[str, str], why: str
) -> None:
    headers = {**signed_headers(KEY, "edge-1", "GET", "/v1/blobs/x"), **changes}

    with pytest.raises(IdentityError, match=why):
        check_signed(headers, method, path, key_of=key_of)
