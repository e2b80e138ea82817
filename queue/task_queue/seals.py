"""Checksums of what is stored: inside a JSON object, as its last member; after anything that is packed.

SQLite's pages have none, so that a flipped bit in a document would be run, and one in a counter counted on.
A schema step that changes a sealed text leaves the seal out of it.
"""

from __future__ import annotations

import zlib

_SEAL = b',"crc":'
_PACKED_SEAL_BYTES = 4


def seal(text: bytes) -> bytes:
    """Return an object that is not empty with its checksum."""
    return b"%s%s%d}" % (text[:-1], _SEAL, zlib.crc32(text))


def unseal(text: object) -> bytes | None:
    """Return the object, None when it is not as it was written; one without a checksum is believed.

    A flipped bit in a row's header makes a number of it, or nothing: whatever is not bytes was never written.
    """
    if not isinstance(text, bytes):
        return None
    body, found, rest = text.rpartition(_SEAL)
    if not found or not rest[:-1].isdigit():
        return text
    body += b"}"
    return body if zlib.crc32(body) == int(rest[:-1]) else None


def seal_packed(packed: bytes) -> bytes:
    """Return bytes of any form with their checksum."""
    return packed + zlib.crc32(packed).to_bytes(_PACKED_SEAL_BYTES)


def unseal_packed(sealed: bytes) -> bytes | None:
    """Return the bytes, None when they are not as they were written."""
    packed, seal_of = sealed[:-_PACKED_SEAL_BYTES], sealed[-_PACKED_SEAL_BYTES:]
    return packed if zlib.crc32(packed).to_bytes(_PACKED_SEAL_BYTES) == seal_of else None
