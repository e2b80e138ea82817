"""What may leave the machine of a recording: everything that decided, nothing that was computed on.

Owns the report's form: a zip of `about.json` and redacted segments, a line an event.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec

from edge_agent.core.redaction import redacted
from edge_agent.flight import lines_of, segments
from skerry.errors import SpecError


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is of."""

    node: str
    version: str
    form: int = 1


def pack_report(folder: Path, about: About) -> bytes:
    """Return the report of the recording in a folder.  Raises SpecError when there is none."""
    found = {path.stem: lines for path in segments(folder) if (lines := whole_lines(path))}
    if not found:
        raise SpecError(
            f"there is no recording in {folder}: the agent has not run, or recorder.max_bytes is 0"
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.json", msgspec.json.encode(about))
        for number, lines in found.items():
            kept = [msgspec.json.encode(redacted(msgspec.json.decode(line))) for line in lines]
            archive.writestr(f"{number}.jsonl", b"\n".join(kept))
    return packed.getvalue()


def whole_lines(path: Path) -> list[bytes]:
    """Return a segment's lines up to where it ends or is damaged: the power may go in the middle of one."""
    lines: list[bytes] = []
    with suppress(zlib.error):
        lines.extend(lines_of(path.read_bytes()))
    return lines
