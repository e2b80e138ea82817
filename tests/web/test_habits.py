"""What every service's HTTP does: access, problem documents, limits, health, figures, its own description."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import jsonschema
import pytest

from skerry.web import requests

Service = Any


def test_a_document_is_read_and_answered(service: Service) -> None:
    status, body, headers = service.ask("POST", "/v1/things", b'{"name": "a", "count": 2}')

    assert (status, body) == (201, {"name": "a", "count": 2})
    assert headers["Cache-Control"] == "no-store"
    assert headers["Server"] == "skerry"


@pytest.mark.parametrize("token", [None, "", "the-wrong-token", "the-right-token-and-more", "the-right"])
def test_tcp_asks_for_the_token(service: Service, token: str | None) -> None:
    status, body, headers = service.ask("GET", "/v1/things", token=token)

    assert status == 401
    assert body["type"] == "urn:skerry:token-required"
    assert headers["WWW-Authenticate"] == "Bearer"
    assert headers["Content-Type"] == "application/problem+json"


def test_any_of_several_tokens_is_enough(service: Service) -> None:
    assert service.ask("GET", "/v1/things", token="another")[0] == 200


def test_a_path_that_is_not_there_tells_strangers_nothing(service: Service) -> None:
    assert service.ask("GET", "/v1/nothing", token=None)[0] == 401
    assert service.ask("GET", "/v1/nothing")[0] == 404


def test_the_unix_socket_asks_for_no_token_and_no_host(service: Service) -> None:
    assert service.ask_unix("/v1/things").startswith(b"HTTP/1.1 200 ")


def test_the_unix_socket_lets_owner_and_group_in(service: Service) -> None:
    assert service.sock.stat().st_mode & 0o777 == 0o660


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", ""])
def test_a_page_that_rebinds_its_name_is_refused(service: Service, host: str) -> None:
    status, body, _ = service.ask("GET", "/healthz", Host=host)

    assert status == 421
    assert "Host" in body["detail"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1", "localhost", "LOCALHOST:99", "[::1]:80", "things.example:443"]
)
def test_own_names_and_addresses_are_served(service: Service, host: str) -> None:
    assert service.ask("GET", "/healthz", Host=host)[0] == 200


def test_malformed_json_is_named(service: Service) -> None:
    status, body, _ = service.ask("POST", "/v1/things", b'{"name": ')

    assert status == 400
    assert "not valid JSON" in body["detail"]


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        (b'{"name": 7}', "name", "Expected `str`"),
        (b'{"name": "a", "cuont": 1}', "", "unknown field cuont; did you mean count?"),
        (b"{}", "", "missing required field `name`"),
    ],
)
def test_a_wrong_field_is_named(service: Service, document: bytes, field: str, words: str) -> None:
    status, body, _ = service.ask("POST", "/v1/things", document)

    assert status == 422
    assert body.get("field", "") == field
    assert words in body["detail"]


def test_an_unknown_parameter_is_refused_with_the_nearest(service: Service) -> None:
    status, body, _ = service.ask("GET", "/v1/things?limt=3")

    assert status == 422
    assert "did you mean limit?" in body["detail"]


def test_a_parameter_may_come_several_times_or_with_commas(service: Service) -> None:
    _, body, _ = service.ask("GET", "/v1/things?label=a,b&label=c&limit=3")

    assert body == {"limit": 3, "label": ["a", "b", "c"]}


def test_an_oversized_body_is_refused_with_the_limit(service: Service) -> None:
    status, body, _ = service.ask("POST", "/v1/things", b" " * 5000)

    assert status == 413
    assert "4096 bytes" in body["detail"]


def test_an_oversized_body_without_a_length_is_cut_off(service: Service) -> None:
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    status, _, _ = service.ask("POST", "/v1/things", chunk * 3 + b"0\r\n\r\n", Transfer_Encoding="chunked")

    assert status == 413


def test_a_body_that_does_not_come_ends_the_request(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "BODY_TIME_S", 0.05)
    head = "POST /v1/things HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"

    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(str(service.sock))
        peer.sendall(head.encode())
        answer = peer.recv(65536)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    ("how", "status", "name"), [("bug", 500, "internal"), ("disk", 507, "storage-failed")]
)
def test_nothing_from_inside_gets_out(
    service: Service, caplog: pytest.LogCaptureFixture, how: str, status: int, name: str
) -> None:
    with caplog.at_level(logging.ERROR, logger="skerry.web.app"):
        got, body, headers = service.ask("GET", f"/v1/fail/{how}")

    assert (got, body["type"]) == (status, f"urn:skerry:{name}")
    assert "secret" not in json.dumps(body)
    assert body["request"] == headers["X-Request-Id"]
    assert body["request"] in caplog.text


def test_the_error_table_decides_status_and_text(service: Service) -> None:
    status, body, _ = service.ask("GET", "/v1/fail/missing")

    assert (status, body["detail"]) == (404, "there is no task 7")


def test_retry_after_is_told(service: Service) -> None:
    status, body, headers = service.ask("GET", "/v1/fail/busy")

    assert (status, headers["Retry-After"], body["retry_after_s"]) == (429, "7", 7.0)


def test_a_wrong_method_is_told_the_right_ones(service: Service) -> None:
    status, body, _ = service.ask("DELETE", "/v1/things")

    assert status == 405
    assert "GET" in body["detail"]
    assert "POST" in body["detail"]


def test_health_needs_no_token_and_readiness_gives_reasons(service: Service) -> None:
    assert service.ask("GET", "/healthz", token=None)[1] == {"status": "ok", "reasons": []}
    assert service.ask("GET", "/readyz", token=None)[0] == 200

    service.reasons.append("the rules are not loaded")
    status, body, _ = service.ask("GET", "/readyz", token=None)

    assert (status, body["reasons"]) == (503, ["the rules are not loaded"])


def test_figures_count_requests_by_route(service: Service) -> None:
    service.ask("GET", "/v1/fail/missing")
    service.ask("GET", "/no/such/path")
    service.ask("PROPFIND", "/v1/things")
    _, figures, _ = service.ask("GET", "/metrics")

    lines = figures.decode()
    assert 'things_http_requests_total{method="GET",route="/v1/fail/{how}",status="404"} 1.0' in lines
    assert 'route="none",status="404"' in lines
    assert 'method="other"' in lines
    assert "process_resident_memory_bytes" in lines
    assert service.ask("GET", "/metrics", token=None)[0] == 401


def test_the_description_is_made_from_the_routes(service: Service) -> None:
    _, document, _ = service.ask("GET", "/v1/openapi.json", token=None)

    assert set(document["paths"]) >= {"/v1/things", "/v1/fail/{how}", "/healthz", "/metrics"}
    make = document["paths"]["/v1/things"]["post"]
    assert set(make["responses"]) == {"201", "400", "401", "413", "422", "500"}
    reference = make["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    thing = document["components"]["schemas"][reference.rpartition("/")[2]]
    jsonschema.validate({"name": "a", "count": 1}, {**thing, "components": document["components"]})
    assert document["paths"]["/v1/things"]["get"]["parameters"][0]["name"] == "limit"
