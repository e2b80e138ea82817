"""Broken documents: whatever is wrong with one, it is named, and nothing falls over."""

from __future__ import annotations

import pytest

from skerry.decoding import parse_toml


@pytest.mark.parametrize(
    "content",
    [
        b"[[[",
        b"\xff\xfe",
        b"a = " + b"[" * 50_000,
        b"a = " + b"9" * 5_000,
        b"a = 2026-99-99",
        b"a = 1\na = 2",
        b"\x00",
    ],
    ids=["syntax", "encoding", "nesting", "number", "date", "twice", "nul"],
)
def test_a_broken_toml_document_is_named(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"task\.toml is not valid TOML: "):
        parse_toml(content, "task.toml")
