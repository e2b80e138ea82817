"""Numbers that no store can hold stop at the door: a message that carries one is malformed, not a crash."""

from __future__ import annotations

import msgspec
import pytest

from skerry.fence import Fence
from skerry.messages import Birth, Row, State, StreamAck, StreamBatch, TaskEnded
from skerry.node import Inventory

HUGE = 1 << 70


@pytest.mark.parametrize("kind", [Row, StreamBatch, StreamAck, Birth, State, TaskEnded, Fence, Inventory])
def test_every_number_of_a_message_has_a_bound(kind: type[msgspec.Struct]) -> None:
    schema = msgspec.json.schema(kind)["$defs"][kind.__name__]
    numbers = {name: form for name, form in schema["properties"].items() if form.get("type") == "integer"}

    assert numbers
    assert all("maximum" in form and "minimum" in form for form in numbers.values())


def test_a_huge_number_is_malformed() -> None:
    with pytest.raises(msgspec.ValidationError, match="upto"):
        msgspec.json.decode(b'{"epoch":"e","lane":"live","upto":%d}' % HUGE, type=StreamAck)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"path":[%d,1]}' % HUGE, type=Fence)
