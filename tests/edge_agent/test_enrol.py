"""Enrolling against an HTTP server that answers as the coordinator does, honestly or not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_agent.enrol import enrol
from edge_agent.settings import AgentSettings
from skerry.enrolment import EnrolRequest, EnrolToken, fingerprint_of, is_request_signed, sign_answer
from skerry.errors import DirectoryInUse, IdentityError, SkerryError, SpecError
from skerry.identity import Enrolment, PrivateKey
from skerry.lock import DirectoryLock

Answer = Callable[[EnrolRequest], tuple[int, bytes]]


@contextmanager
def coordinator(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            asked = msgspec.json.decode(self.rfile.read(size), type=EnrolRequest)
            status, body = answer(asked)
            self.send_response(status)
            kind = "application/problem+json" if status >= 400 else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def enrolment_for(asked: EnrolRequest, key: PrivateKey, **fields: Any) -> Enrolment:
    return Enrolment(
        **{
            "fleet": "f",
            "node": asked.node,
            "region": asked.region,
            "coordinator_url": "http://127.0.0.1:1",
            "coordinator_public_key": key.public_hex,
            "broker_url": "mqtt://127.0.0.1:1",
            "broker_username": "n",
            "broker_password": "secret-word",
            **fields,
        }
    )


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    return AgentSettings(data_dir=str(tmp_path / "agent"))


@pytest.fixture
def key() -> PrivateKey:
    return PrivateKey.generate()


def token_of(key: PrivateKey) -> str:
    return str(EnrolToken(token_id="t1", secret="s3cret", fingerprint=fingerprint_of(key.public_hex)))


def honest(key: PrivateKey) -> Answer:
    def answer(asked: EnrolRequest) -> tuple[int, bytes]:
        assert is_request_signed(asked)
        assert (asked.token_id, asked.secret) == ("t1", "s3cret")
        return 200, msgspec.json.encode(sign_answer(key, enrolment_for(asked, key), asked.public_key))

    return answer


def test_an_enrolled_node_knows_whom_to_believe(settings: AgentSettings, key: PrivateKey) -> None:
    with coordinator(honest(key)) as url:
        enrol(settings, url, token_of(key), node="edge-1", region="north")

    kept = Enrolment.load(settings.enrolment_path)
    assert kept is not None
    assert (kept.node, kept.region) == ("edge-1", "north")
    assert kept.coordinator_public_key == key.public_hex
    assert settings.password_path.read_text() == "secret-word\n"
    assert settings.password_path.stat().st_mode & 0o777 == 0o600


def test_the_nodes_key_stays_when_it_enrols_again(settings: AgentSettings, key: PrivateKey) -> None:
    with coordinator(honest(key)) as url:
        enrol(settings, url, token_of(key), node="edge-1")
        first = PrivateKey.load_or_create(settings.key_path).public_hex
        enrol(settings, url, token_of(key), node="edge-1")

    assert PrivateKey.load_or_create(settings.key_path).public_hex == first


def test_an_impostor_is_recognised_by_the_token(settings: AgentSettings, key: PrivateKey) -> None:
    impostor = PrivateKey.generate()

    def answer(asked: EnrolRequest) -> tuple[int, bytes]:
        return 200, msgspec.json.encode(
            sign_answer(impostor, enrolment_for(asked, impostor), asked.public_key)
        )

    with coordinator(answer) as url, pytest.raises(IdentityError, match="another coordinator"):
        enrol(settings, url, token_of(key), node="edge-1")
    assert not settings.enrolment_path.exists()


def test_a_changed_answer_is_refused(settings: AgentSettings, key: PrivateKey) -> None:
    def answer(asked: EnrolRequest) -> tuple[int, bytes]:
        signed = sign_answer(key, enrolment_for(asked, key), asked.public_key)
        other = msgspec.structs.replace(signed.enrolment, broker_url="mqtt://127.0.0.2:1")
        return 200, msgspec.json.encode(msgspec.structs.replace(signed, enrolment=other))

    with coordinator(answer) as url, pytest.raises(IdentityError, match="signature"):
        enrol(settings, url, token_of(key), node="edge-1")
    assert not settings.enrolment_path.exists()


def test_the_coordinators_refusal_comes_in_its_words(settings: AgentSettings, key: PrivateKey) -> None:
    def answer(asked: EnrolRequest) -> tuple[int, bytes]:
        detail = "the token t1 was used already; ask the operator for a new one"
        problem = {
            "type": "urn:skerry:problem:enrolment-refused",
            "title": "The enrolment is refused",
            "status": 403,
            "detail": detail,
        }
        return 403, json.dumps(problem).encode()

    with coordinator(answer) as url, pytest.raises(SkerryError, match="used already"):
        enrol(settings, url, token_of(key), node="edge-1")


def test_a_coordinator_that_is_not_there_is_named(settings: AgentSettings, key: PrivateKey) -> None:
    with coordinator(honest(key)) as url:
        gone = url

    with pytest.raises(SkerryError, match=gone.removeprefix("http://")):
        enrol(settings, gone, token_of(key), node="edge-1")


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c", "a..0123456789abcdef"])
def test_half_a_token_is_refused_without_showing_it(settings: AgentSettings, token: str) -> None:
    with pytest.raises(IdentityError, match="not complete"):
        enrol(settings, "http://127.0.0.1:1", token, node="edge-1")


def test_a_name_that_may_not_stand_in_a_topic_is_refused(settings: AgentSettings, key: PrivateKey) -> None:
    with pytest.raises(SpecError, match="node"):
        enrol(settings, "http://127.0.0.1:1", token_of(key), node="a/b")


def test_a_running_agents_directory_is_left_alone(settings: AgentSettings, key: PrivateKey) -> None:
    with DirectoryLock(settings.home), pytest.raises(DirectoryInUse):
        enrol(settings, "http://127.0.0.1:1", token_of(key), node="edge-1")
