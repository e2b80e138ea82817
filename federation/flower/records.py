# pyright: reportMissingImports=false
"""Between Flower's records and ours: arrays, and what a reply holds. Trusts no reply."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from federation.admission import Offer
from federation.values import Refused, Scalar
from federation.wire import ARRAYS_LIMIT, PACKET_LIMIT_BYTES, Arrays

ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"
NUM_EXAMPLES = "num-examples"
#: What NumPy's own file form adds to the bytes of an array, at most.
_NPY_HEADER_BYTES = 16 * 1024
_REASON_LIMIT = 300
#: A refusal that the ledger knows already, as the number of an error of Flower's; Flower's own are below 100.
_ERROR_NUMBERS = {"malformed": 101, "superseded": 102, "base_version": 103}
_CODES = {number: code for code, number in _ERROR_NUMBERS.items()}
#: Flower's own number for a client app that raised; each of Flower's errors is a failure of the node.
NODE_FAILED = 2


class Malformed(Exception):
    """The reply does not hold what a reply must hold."""


def to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return Flower's record of these arrays."""
    return ArrayRecord({key: Array(np.asarray(array, order="C")) for key, array in arrays.items()})


def from_record(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record.

    Raises Malformed when what it says of itself and what it holds do not agree: sizes are checked first.
    """
    if len(record) > ARRAYS_LIMIT:
        raise Malformed(f"{len(record)} arrays, {ARRAYS_LIMIT} are allowed")
    if sum(len(array.data) for array in record.values()) > PACKET_LIMIT_BYTES:
        raise Malformed(f"more than {PACKET_LIMIT_BYTES} bytes")
    return {key: _array(key, array) for key, array in record.items()}


def _array(key: str, array: Array) -> NDArray[np.generic]:
    try:
        expected = math.prod(array.shape) * np.dtype(array.dtype).itemsize
        if not 0 <= len(array.data) - expected <= _NPY_HEADER_BYTES:
            raise Malformed(f"array {key} does not have the bytes that its shape asks for")
        values: NDArray[np.generic] = array.numpy()
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise Malformed(f"array {key} cannot be read: {error}") from error
    if values.shape != tuple(array.shape):
        raise Malformed(f"array {key} has another shape than it says")
    return values


def instruction_content(arrays: ArrayRecord, config: Mapping[str, Scalar]) -> RecordDict:
    """Return what an instruction holds. The record of arrays may be shared by many instructions."""
    return RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(dict(config))})


def reply_content(
    arrays: Mapping[str, NDArray[np.generic]], examples: int, metrics: Mapping[str, float]
) -> RecordDict:
    """Return what a reply holds."""
    return RecordDict({ARRAYS: to_record(arrays), METRICS: MetricRecord({NUM_EXAMPLES: examples, **metrics})})


def offer_of(message: Message, *, node: str, version: int) -> Offer:
    """Return a reply as admission judges it; a node's failure, or a form that is wrong, as its refusal.

    node, version: of the instruction that it answers.
    """
    known = {"instruction_id": message.metadata.reply_to_message_id, "node": node, "base_version": version}
    if message.has_error():
        return Offer(**known, refused=_refusal_of(message.error))
    try:
        arrays, metrics = _two_records(message.content)
        examples = metrics.pop(NUM_EXAMPLES, None)
        return Offer(**known, num_examples=examples, arrays=from_record(arrays), metrics=metrics)
    except Malformed as error:
        return Offer(**known, refused=Refused(code="malformed", reason=str(error)))


def error_of(code: str, reason: str) -> Error:
    """Return Flower's error that carries a refusal to admission; offer_of finds the same code in it."""
    return Error(_ERROR_NUMBERS.get(code, NODE_FAILED), reason)


def _refusal_of(error: Error) -> Refused:
    reason = error.reason or f"it gave no reason (Flower's error {error.code})"
    return Refused(code=_CODES.get(error.code, "node_error"), reason=reason[:_REASON_LIMIT])


def _two_records(content: RecordDict) -> tuple[ArrayRecord, dict[str, object]]:
    arrays, metrics = content.array_records, content.metric_records
    if len(arrays) != 1 or len(metrics) != 1 or content.config_records:
        raise Malformed("a reply holds one record of arrays and one of metrics, nothing else")
    return next(iter(arrays.values())), dict(next(iter(metrics.values())))


def replace_content(
    message: Message, arrays: Mapping[str, NDArray[np.generic]], weight: float, metrics: Mapping[str, object]
) -> Message:
    """Put in the place of a reply's content what admission lets through; return the message."""
    message.content = RecordDict(
        {ARRAYS: to_record(arrays), METRICS: MetricRecord({NUM_EXAMPLES: weight, **metrics})}
    )
    return message
