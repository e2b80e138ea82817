"""What commands print: figures for people, tables on a terminal that take nobody's words as markup."""

from __future__ import annotations

import sys

import pytest

from skerry.cli.output import duration, print_table, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0523, "0.0523 s"),
        (59.9, "59.9 s"),
        (60.0, "1 min"),
        (200.0, "3 min 20 s"),
        (3599.9, "59 min 59 s"),
        (3600.0, "1 h"),
        (7260.0, "2 h 1 min"),
        (86400.0 * 2 + 3600 * 4, "2 d 4 h"),
        (86400.0 * 400, "400 d"),
    ],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_a_terminal_gets_a_table_with_every_word_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")

    print_table(("id", "note"), [("7", "[bold]not markup[/bold]"), ("8", None)], empty="nothing")

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:2] == ["id", "note"]
    assert lines[1] == ["7", "[bold]not", "markup[/bold]"]


def test_a_pipe_gets_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "note"), [("7", "a\tb\nc")], empty="nothing")

    assert capsys.readouterr().out == "id\tnote\n7\ta b c\n"
