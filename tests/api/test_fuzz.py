"""Whatever a producer sends, it is answered, the connection lives on, and the next good task is accepted."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.api.testing import serving
from skerry.task import DOCUMENT_LIMIT_BYTES
from skerry.web.testing import ServerThread

GOOD = b'{"spec": {"executor": "command", "argv": ["true"]}}'


def hostile(rng: random.Random) -> Iterator[bytes]:
    """Yield documents unlike a good one: in size, encoding, nesting, numbers or a few bytes."""
    for size in (
        DOCUMENT_LIMIT_BYTES - 60,
        DOCUMENT_LIMIT_BYTES,
        DOCUMENT_LIMIT_BYTES + 1,
        DOCUMENT_LIMIT_BYTES * 2,
    ):
        yield b'{"spec": {"executor": "command", "argv": ["' + b"x" * size + b'"]}}'
    for depth in (10, 1000, 20_000):
        yield b'{"spec": {"executor": "command", "argv": ' + b"[" * depth + b"]" * depth + b"}}"
        yield b'{"a":' * depth + b"1" + b"}" * depth
    for text in ("\ud800", "\x00", "\uffff", "é" * 5000, "🜨" * 1000):
        yield json.dumps({"spec": {"executor": "command", "argv": [text]}}).encode()
    yield from (
        b"\xff\xfe{}",
        b"\x80",
        b"\xed\xa0\x80",
        b"",
        b"null",
        b"[]",
        b"1e999",
        b'"',
        b"{",
        b"NaN",
        GOOD[:-1],
    )
    for number in ("1e400", "-0", "99999999999999999999999999", "0.1e-400", "true"):
        yield f'{{"spec": {{"executor": "command", "argv": ["true"]}}, "priority": {number}}}'.encode()
    for _ in range(150):
        broken = bytearray(GOOD)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(broken))
            match rng.randrange(3):
                case 0:
                    broken[at] = rng.randrange(256)
                case 1:
                    del broken[at]
                case _:
                    broken[at:at] = rng.randbytes(rng.randrange(1, 20))
        yield bytes(broken)


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[ServerThread]:
    with serving(tmp_path, token="t") as (_, thread):
        yield thread


def test_producers_that_send_anything_are_answered_and_the_next_good_task_is_accepted(
    thread: ServerThread,
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", thread.ports[0], timeout=20)
    headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}

    def post(body: bytes) -> int:
        connection.request("POST", "/v1/tasks", body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            shown = json.loads(content)
            assert shown["status"] == answer.status
            assert shown["detail"]
        return answer.status

    answers: list[int] = []
    for number, body in enumerate(hostile(random.Random(67))):
        answers.append(post(body))
        if number % 20 == 0:
            assert post(GOOD) == 201
    assert post(GOOD) == 201
    connection.close()

    assert set(answers) <= {201, 400, 413, 422}, sorted(set(answers))
    assert answers.count(201) >= 3
    assert answers.count(413) >= 2


@pytest.mark.parametrize(
    ("header", "status", "words"),
    [
        (("Idempotency-Key", b"\xff\xfe"), 422, "UTF-8"),
        (("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01\xff"), 201, ""),
        (("Content-Encoding", b"gzip"), 400, "content-encoding"),
    ],
)
def test_a_header_that_is_no_text_or_not_true_is_answered_as_the_mistake_that_it_is(
    thread: ServerThread, header: tuple[str, bytes], status: int, words: str
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", thread.ports[0], timeout=20)
    headers = {"Authorization": "Bearer t", header[0]: header[1]}
    connection.request("POST", "/v1/tasks", body=GOOD, headers=headers)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()

    assert answer.status == status, content
    assert words in content
