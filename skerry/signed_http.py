"""HTTP requests signed by a node's key: how a node shows who it is before TLS has certificates.

Owns the headers. Each request bears a number that counts once. There is no clock to trust, so numbers are
forgotten in the end, and what is asked must be harmless to repeat (content by hash is). Knows no server.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping

from skerry.errors import IdentityError
from skerry.identity import PrivateKey, verify

NODE_HEADER = "X-Skerry-Node"
NONCE_HEADER = "X-Skerry-Nonce"
SIGNATURE_HEADER = "X-Skerry-Signature"
#: Numbers remembered, all nodes together; a recorded request is refused until so many others have come.
NONCES_REMEMBERED = 100_000
_NONCE_BYTES = 16
_CONTEXT = b"skerry http 1\x00"


def signed_headers(key: PrivateKey, node: str, method: str, path: str) -> dict[str, str]:
    """Return the headers that show the request comes from the holder of the node's key."""
    nonce = secrets.token_hex(_NONCE_BYTES)
    signature = key.sign(_covered(node, nonce, method, path)).hex()
    return {NODE_HEADER: node, NONCE_HEADER: nonce, SIGNATURE_HEADER: signature}


class SeenNonces:
    """The numbers of the latest requests. One owner."""

    def __init__(self, limit: int = NONCES_REMEMBERED) -> None:
        """limit: how many are remembered; beyond it the oldest is forgotten."""
        self._limit = limit
        self._seen: dict[tuple[str, str], None] = {}

    def admit(self, node: str, nonce: str) -> bool:
        """Decide whether this number is new, and remember it."""
        if (node, nonce) in self._seen:
            return False
        self._seen[node, nonce] = None
        if len(self._seen) > self._limit:
            del self._seen[next(iter(self._seen))]
        return True


def check_signed(
    headers: Mapping[str, str],
    method: str,
    path: str,
    *,
    key_of: Callable[[str], bytes | None],
    seen: SeenNonces,
) -> str:
    """Return the node that signed this request.  Raises IdentityError when it did not, or is not enrolled.

    key_of: the public key (32 bytes) of an enrolled node, None for any other name.  seen: the numbers used.
    """
    names = (NODE_HEADER, NONCE_HEADER, SIGNATURE_HEADER)
    node, nonce, signature = (headers.get(name, "") for name in names)
    if not node or not signature or len(nonce) != 2 * _NONCE_BYTES:
        raise IdentityError(f"the request is not signed: it needs {', '.join(names)}")
    public_key = key_of(node)
    if public_key is None:
        raise IdentityError(f"there is no enrolled node {node[:64]!r}")
    with contextlib.suppress(ValueError):
        if verify(public_key, bytes.fromhex(signature), _covered(node, nonce, method, path)):
            if not seen.admit(node, nonce):
                raise IdentityError(f"this request of node {node[:64]!r} was made before")
            return node
    raise IdentityError(f"the signature is not that of node {node[:64]!r}")


def _covered(node: str, nonce: str, method: str, path: str) -> bytes:
    return _CONTEXT + "\x00".join((node, nonce, method.upper(), path)).encode()
