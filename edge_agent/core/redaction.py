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


#: Plain values, which stay as they are; told apart before anything is called, for there are many.
_LEAVES = frozenset({str, int, float, bool, type(None)})


def redacted(document: Any, *, is_sparse: bool = False) -> Any:
    """Return a document without what a task is computed on or speaks of.

    is_sparse: without what is None, too: a form that leaves defaults out would not tell it either.
    """
    if isinstance(document, dict):
        fields = ((key, _field(key, value, is_sparse=is_sparse)) for key, value in document.items())
        return {key: value for key, value in fields if value is not None or not is_sparse}
    if isinstance(document, list | tuple):
        return [item if type(item) in _LEAVES else redacted(item, is_sparse=is_sparse) for item in document]
    return document


def _field(key: str, value: Any, *, is_sparse: bool) -> Any:
    if key == "labels":
        return {} if isinstance(value, dict) else []
    if key in _BLANK:
        return _BLANK[key]
    if type(value) not in _LEAVES:
        return redacted(value, is_sparse=is_sparse)
    if key in _WORDS and isinstance(value, str):
        return value if value in _KEPT_WORDS else "…"
    return value
