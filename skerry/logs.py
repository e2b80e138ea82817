"""Logs of a process: JSON lines for machines, readable lines for people; secrets never, floods never.

Owns format, redaction and the rate limit. Knows nothing of what is logged.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, TextIO

import msgspec
from pythonjsonlogger.json import JsonFormatter

Format = Literal["json", "text", "auto"]
HIDDEN = "[hidden]"
_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_SECRET_NAME = re.compile(r"token|secret|passw|private_?key|authorization|credential", re.IGNORECASE)
_SECRET_TEXT = (
    re.compile(r"(?<=\bBearer )\S+", re.IGNORECASE),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),  # user and password in a URL
    re.compile(
        r"((?:token|secret|password|passwd|private_key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;}]+", re.IGNORECASE
    ),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"  #: debug, info, warning or error
    format: Format = "auto"  #: auto: text on a terminal, JSON lines elsewhere


def set_up(*, style: Format = "auto", level: str = "INFO", stream: TextIO | None = None) -> logging.Handler:
    """Send all logs of this process to one stream (standard error), and return its handler.

    style auto: text on a terminal, JSON elsewhere.  Repeated calls replace the handler.
    """
    out = stream or sys.stderr
    is_json = style == "json" or (style == "auto" and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(_JsonLines() if is_json else _TextLines())
    root = logging.getLogger()
    for old in [h for h in root.handlers if getattr(h, "is_skerry", False)]:
        root.removeHandler(old)
    handler.is_skerry = True  # type: ignore[attr-defined] # a mark, so that only our own handler is replaced
    root.addHandler(handler)
    root.setLevel(level.upper())
    return handler


def hide_secrets(text: str) -> str:
    """Return text with whatever looks like a token, password or private key hidden."""
    for pattern in _SECRET_TEXT:
        text = pattern.sub(lambda match: (match[1] if match.re.groups else "") + HIDDEN, text)
    return text


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return what `extra` added to a record; values of fields with a secret's name are hidden."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {name: HIDDEN if _SECRET_NAME.search(name) else value for name, value in extra.items()}


class _JsonLines(JsonFormatter):
    """One JSON object a line: time, level, logger, message, the extra fields, exception."""

    def __init__(self) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s",
            rename_fields={"levelname": "level", "name": "logger", "exc_info": "exception"},
            json_ensure_ascii=False,
        )

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with secrets hidden and the wall clock's time first."""
        return super().format(_redacted(record, time=_wall(record)))

    def formatException(self, ei: _ExceptionInfo) -> str:
        """Return the traceback with secrets hidden."""
        return hide_secrets(logging.Formatter.formatException(self, ei))


class _TextLines(logging.Formatter):
    """`12:03:44.120 INFO  edge_agent.link: message  key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with secrets hidden."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        extra = "".join(f"  {name}={value}" for name, value in fields_of(record).items())
        head = f"{clock}.{int(record.msecs):03d} {record.levelname:<7} {record.name}"
        line = f"{head}: {record.getMessage()}{extra}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return hide_secrets(line)


def _wall(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _redacted(record: logging.LogRecord, **more: object) -> logging.LogRecord:
    """A copy of the record: other handlers still see the original."""
    copy = logging.makeLogRecord({**vars(record), **more})
    copy.msg, copy.args = hide_secrets(record.getMessage()), None
    for name, value in fields_of(record).items():
        setattr(copy, name, hide_secrets(value) if isinstance(value, str) else value)
    return copy


class RateLimited:
    """Logs a kind of event at most once per `every_s`; the next line tells how many were left out."""

    def __init__(
        self,
        log: logging.Logger,
        every_s: float = 60.0,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        kinds_limit: int = 1000,
    ) -> None:
        """kinds_limit: kinds remembered; beyond it the oldest is forgotten (a peer may invent kinds)."""
        self._log = log
        self._every_s = every_s
        self._monotonic = monotonic
        self._limit = kinds_limit
        self._last: dict[str, tuple[float, int]] = {}

    def warning(
        self, kind: str, message: str, *args: object, extra: Mapping[str, object] | None = None
    ) -> bool:
        """Log, or count, one event of this kind; return whether it was logged."""
        return self.log(logging.WARNING, kind, message, *args, extra=extra)

    def log(
        self,
        level: int,
        kind: str,
        message: str,
        *args: object,
        extra: Mapping[str, object] | None = None,
    ) -> bool:
        """Log, or count, one event of this kind; return whether it was logged."""
        now = self._monotonic()
        at, left_out = self._last.pop(kind, (float("-inf"), 0))
        is_due = now - at >= self._every_s
        self._last[kind] = (now, 0) if is_due else (at, left_out + 1)
        if len(self._last) > self._limit:
            del self._last[next(iter(self._last))]
        if is_due:
            more = f" ({left_out} more like this were left out)" if left_out else ""
            self._log.log(level, message + more, *args, extra=extra)
        return is_due
