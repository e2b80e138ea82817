"""The policy that ships: one file and its manifest, trusted by the hash written here, not by a signature.

A signature would need a key that every checkout shares, and so prove nothing more than this line does.
"""

from __future__ import annotations

from pathlib import Path

SHIPPED_FILE = Path(__file__).with_name("shipped.onnx")
#: File hashes that an agent takes without a signature.
SHIPPED_HASHES: frozenset[str] = frozenset(
    {"sha256:020d3edc259f469e1889d9f246187bc0952c05a320d5ab4c2e5e17e8cecc1ca4"}
)
