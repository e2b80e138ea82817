"""Decoding what others wrote: every way in which a document can be broken is a value of one kind.

Owns the sets of errors that decoders raise, whatever they are fed. Knows no document's meaning.
"""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

#: A number from elsewhere: sums and differences of such still fit a database's and every JSON reader's.
Number = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
#: The same, of things that are counted.
Count = Annotated[int, Meta(ge=0, le=1 << 53)]

#: What decoding JSON or MessagePack raises. RecursionError: nested more deeply than the decoder goes.
MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def why_malformed(error: BaseException) -> str:
    """Return in words what is wrong with a document, from what its decoder raised."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """Return a TOML document's values.  Raises ValueError whose text names the document and the place."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also numbers and dates that Python cannot hold
        raise ValueError(f"{name} is not valid TOML: {why_malformed(error)}") from error
