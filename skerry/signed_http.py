"""HTTP requests signed by a node's key: how a node shows who it is before TLS has certificates.

Owns the headers. What is asked must be harmless to repeat (content by hash is): there is no clock to trust,
so a recorded request can be sent again, to the same path only. Knows no server and no client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from skerry.errors import IdentityError
from skerry.identity import PrivateKey, verify

NODE_HEADER = "X-Skerry-Node"
SIGNATURE_HEADER = "X-Skerry-Signature"
_CONTEXT = b"skerry http 1\x00"


def signed_headers(key: PrivateKey, node: str, method: str, path: str) -> dict[str, str]:
    """Return the headers that show the request comes from the holder of the node's key."""
    return {NODE_HEADER: node, SIGNATURE_HEADER: key.sign(_covered(node, method, path)).hex()}


def check_signed(
    headers: Mapping[str, str], method: str, path: str, *, key_of: Callable[[str], bytes | None]
) -> str:
    """Return the node that signed this request.  Raises IdentityError when it did not, or is not enrolled.

    key_of: the public key (32 bytes) of an enrolled node, None for any other name.
    """
    node, signature = headers.get(NODE_HEADER, ""), headers.get(SIGNATURE_HEADER, "")
    if not node or not signature:
        raise IdentityError(f"the request is not signed: it needs {NODE_HEADER} and {SIGNATURE_HEADER}")
    public_key = key_of(node)
    if public_key is None:
        raise IdentityError(f"there is no enrolled node {node[:64]!r}")
    with contextlib.suppress(ValueError):
        if verify(public_key, bytes.fromhex(signature), _covered(node, method, path)):
            return node
    raise IdentityError(f"the signature is not that of node {node[:64]!r}")


def _covered(node: str, method: str, path: str) -> bytes:
    return _CONTEXT + "\x00".join((node, method.upper(), path)).encode()
