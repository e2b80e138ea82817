"""The testing kit of executors that ships: three tiny ONNX models, written out byte by byte.

They need no model builder. Owns as much of ONNX's file format as that takes (protocol buffers, opset 13).
"""

from __future__ import annotations

import struct
from typing import Literal

#: spin: adds up as long as told, int64 `times` [] → `count`.  fill: as many zeros as told, int64 `size` [1] →
#: float32 `zeros` [n].  divide: float32 `a` [n], `b` [n] → `quotient` [n].
ModelName = Literal["spin", "fill", "divide"]

_FLOAT, _INT64, _BOOL = 1, 7, 9  # TensorProto.DataType
_GRAPH = 5  # AttributeProto.AttributeType
_IR_VERSION, _OPSET = 8, 13


def a_model(name: ModelName) -> bytes:
    """Return a model file."""
    opset = _number(2, _OPSET)
    return (
        _number(1, _IR_VERSION)
        + _field(8, opset)
        + _field(7, {"spin": _spin, "fill": _fill, "divide": _divide}[name]())
    )


def _spin() -> bytes:
    body = _graph(
        nodes=[_node("Identity", ["go"], ["go_on"]), _node("Add", ["sum", "one"], ["sum_after"])],
        inputs=[_value("step", _INT64, ()), _value("go", _BOOL, ()), _value("sum", _INT64, ())],
        outputs=[_value("go_on", _BOOL, ()), _value("sum_after", _INT64, ())],
        constants=[_scalar("one", 1)],
    )
    attribute = _text(1, "body") + _field(6, body) + _number(20, _GRAPH)
    return _graph(
        nodes=[_node("Loop", ["times", "", "zero"], ["count"], attribute)],
        inputs=[_value("times", _INT64, ())],
        outputs=[_value("count", _INT64, ())],
        constants=[_scalar("zero", 0)],
    )


def _fill() -> bytes:
    return _graph(
        nodes=[_node("ConstantOfShape", ["size"], ["zeros"])],
        inputs=[_value("size", _INT64, (1,))],
        outputs=[_value("zeros", _FLOAT, ("n",))],
    )


def _divide() -> bytes:
    return _graph(
        nodes=[_node("Div", ["a", "b"], ["quotient"])],
        inputs=[_value("a", _FLOAT, ("n",)), _value("b", _FLOAT, ("n",))],
        outputs=[_value("quotient", _FLOAT, ("n",))],
    )


def _graph(
    nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], constants: list[bytes] | None = None
) -> bytes:
    parts = [(1, nodes), (5, constants or []), (11, inputs), (12, outputs)]
    return _text(2, "graph") + b"".join(_field(number, item) for number, items in parts for item in items)


def _node(operator: str, inputs: list[str], outputs: list[str], attribute: bytes | None = None) -> bytes:
    names = b"".join(_text(1, name) for name in inputs) + b"".join(_text(2, name) for name in outputs)
    return names + _text(4, operator) + (_field(5, attribute) if attribute else b"")


def _value(name: str, element: int, shape: tuple[int | str, ...]) -> bytes:
    dims = b"".join(_field(1, _number(1, d) if isinstance(d, int) else _text(2, d)) for d in shape)
    return _text(1, name) + _field(2, _field(1, _number(1, element) + _field(2, dims)))


def _scalar(name: str, value: int) -> bytes:
    return _number(2, _INT64) + _text(8, name) + _field(9, struct.pack("<q", value))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
