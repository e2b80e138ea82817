"""Moments and durations as people write them on the command line."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from skerry.errors import SettingsError

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])(?: ago)?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def moment(text: str | None, *, option: str) -> float | None:
    """Return seconds since 1970: of `2h` (so long ago), of a date or time (`2026-11-30T14:00`), of a number.

    A time without a zone is local; one that ends in Z is UTC.  Raises SettingsError that names the option.
    """
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return max(0.0, time.time() - float(ago[1]) * _SECONDS[ago[2]])
    if re.fullmatch(r"\d{9,12}(\.\d+)?", text):
        return float(text)
    try:
        return max(0.0, datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f"{option} {text!r} is no moment: give how long ago (30m, 2h, 3d) or a time like 2026-11-30T14:00"
        ) from error


def seconds(text: str, *, option: str) -> float:
    """Return the seconds of `90`, `90s`, `15m`, `1h` or `2d`.  Raises SettingsError that names the option."""
    given = _AGO.fullmatch(text.strip()) or _AGO.fullmatch(text.strip() + "s")
    if given is None:
        raise SettingsError(f"{option} {text!r} is no duration: give for example 90s, 15m, 1h or 2d")
    return float(given[1]) * _SECONDS[given[2]]


def utc(wall_s: float | None) -> str:
    """Return a moment as UTC; empty for none."""
    return "" if wall_s is None else datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
