"""Logs: one object a line for machines, readable for people, secrets in neither, floods held back."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from skerry.logs import HIDDEN, Format, RateLimited, hide_secrets, set_up


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Takes the lines; logging is as it was afterwards."""
    root, level = logging.getLogger(), logging.getLogger().level
    out = io.StringIO()
    yield out
    for handler in [h for h in root.handlers if getattr(h, "stream", None) is out]:
        root.removeHandler(handler)
    root.setLevel(level)


def test_json_lines_carry_extra_fields(stream: io.StringIO) -> None:
    set_up(style="json", stream=stream)

    logging.getLogger("edge_agent.link").warning(
        "link down for %d s", 3, extra={"node": "edge-1", "tries": 2}
    )

    line = json.loads(stream.getvalue())
    assert line["message"] == "link down for 3 s"
    assert (line["level"], line["logger"], line["node"], line["tries"]) == (
        "WARNING",
        "edge_agent.link",
        "edge-1",
        2,
    )
    assert line["time"].endswith("Z")


def test_text_lines_can_be_read(stream: io.StringIO) -> None:
    set_up(style="text", stream=stream)

    logging.getLogger("edge_agent.link").warning("link down", extra={"node": "edge-1"})

    assert stream.getvalue().endswith(" WARNING edge_agent.link: link down  node=edge-1\n")


def test_auto_is_json_where_no_person_looks(stream: io.StringIO) -> None:
    set_up(stream=stream)

    logging.getLogger("a").info("hello")

    assert json.loads(stream.getvalue())["message"] == "hello"


def test_setting_up_again_replaces_the_handler(stream: io.StringIO) -> None:
    set_up(style="text", stream=stream)
    set_up(style="text", level="warning", stream=stream)

    logging.getLogger("a").info("not shown")
    logging.getLogger("a").warning("once")

    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_secret_is_logged(stream: io.StringIO, style: Format) -> None:
    set_up(style=style, stream=stream)
    log = logging.getLogger("a")

    log.info("header Authorization: Bearer %s", "S3CRET-a")
    log.info("connecting to mqtts://user:S3CRET-b@broker:8883")
    log.info("settings: password = 'S3CRET-c', token=S3CRET-d")
    log.info("enrolling", extra={"enrol_token": "S3CRET-e", "note": "password=S3CRET-f"})
    log.info("-----BEGIN PRIVATE KEY-----\nS3CRET-g\n-----END PRIVATE KEY-----")
    try:
        raise ValueError("token=S3CRET-h")
    except ValueError:
        log.exception("failed")

    assert "S3CRET" not in stream.getvalue()
    assert stream.getvalue().count(HIDDEN) == 9
    if style == "json":
        assert all(isinstance(json.loads(line), dict) for line in stream.getvalue().splitlines())


@pytest.mark.parametrize(
    "text", ["task 7 took 3 s", "mqtt://broker:1883/x", "http://127.0.0.1:80/a@b", "tokens: "]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hide_secrets(text) == text


def test_other_handlers_see_the_record_unchanged(
    stream: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    set_up(style="json", stream=stream)

    with caplog.at_level(logging.INFO):
        logging.getLogger("a").info("n %d", 7, extra={"api_token": "x"})

    assert vars(caplog.records[0])["api_token"] == "x"
    assert caplog.records[0].args == (7,)


def test_a_flood_becomes_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    limited = RateLimited(logging.getLogger("a"), 60.0, monotonic=lambda: now[0])

    said = [limited.warning("forged", "refused %d", number) for number in range(100)]
    other = limited.warning("replayed", "refused otherwise")
    now[0] = 60.0
    again = limited.warning("forged", "refused %d", 100)

    assert said == [True] + [False] * 99
    assert (other, again) == (True, True)
    assert caplog.messages == [
        "refused 0",
        "refused otherwise",
        "refused 100 (99 more like this were left out)",
    ]


def test_kinds_that_a_peer_invents_do_not_pile_up() -> None:
    limited = RateLimited(logging.getLogger("a"), 60.0, kinds_limit=10)

    for number in range(1000):
        limited.log(logging.DEBUG, f"kind-{number}", "x")

    assert len(limited._last) == 10
