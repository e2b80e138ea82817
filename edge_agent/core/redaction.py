"""What of the core's values is nobody else's business: replaced so that the core would still do the same.

Owns what is left out. Commands, inputs, results, words of errors, keys and free labels go; hashes of models
stay, for the core looks at them. What is redacted already stays as it is.
"""

from __future__ import annotations

from typing import Any, get_args

from task_queue.operations import Reason

#: Field → what stands there instead.
_BLANK: dict[str, Any] = {
    "argv": ["…"],
    "env": {},
    "stdin": "",
    "base64": None,
    "result": None,
    "value": None,
    "body": "",
    "labels": None,
    "files": {},
}
#: Words and keys: whether there are any may matter, what they are does not.
_WORDS = frozenset(
    {
        *("error", "message", "reason", "content_message", "waiting_for"),
        *("idempotency_key", "ordering_key", "traceparent"),
    }
)
_KEPT_WORDS = frozenset({"", *get_args(Reason)})


def redacted(document: Any) -> Any:
    """Return a document without what a task is computed on or speaks of."""
    if isinstance(document, dict):
        return {key: _field(key, value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [redacted(item) for item in document]
    return document


def _field(key: str, value: Any) -> Any:
    if key == "labels":
        return {} if isinstance(value, dict) else []
    if key in _BLANK:
        return _BLANK[key]
    if key in _WORDS and isinstance(value, str):
        return value if value in _KEPT_WORDS else "…"
    return redacted(value)
