"""Checks documents against the project: links, TOML examples, commands shown, numbers of decisions."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import typer

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(\s*)(`{3,})\s*([\w-]*)[^\n]*\n(.*?)^\1\2\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
DECISION = re.compile(r"^(\d{4})-[\w-]+\.md$")
DECISIONS = ROOT / "docs" / "explanation" / "decisions"


def pages() -> list[Path]:
    """The documents a reader meets: those at the root, in docs, and a folder's own README."""
    inside = [page for page in ROOT.glob("*/README.md") if not page.parent.name.startswith(".")]
    return sorted({*ROOT.glob("*.md"), *inside, *(ROOT / "docs").rglob("*.md")})


def without_fences(text: str) -> str:
    """The prose of a page; code in a fence holds no links or headings."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The anchors a page's headings get: lower case, spaces as hyphens, other signs dropped."""
    titles = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", title) for title in HEADING.findall(without_fences(text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Relative links that lead nowhere, and anchors that the target does not have."""
    for target in LINK.findall(without_fences(text)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"link to {target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"link to {target}: no such heading"


def broken_toml(text: str) -> Iterator[str]:
    """TOML examples that do not parse."""
    for _, _, language, body in FENCE.findall(text):
        if language == "toml":
            try:
                tomllib.loads(body)
            except tomllib.TOMLDecodeError as error:
                yield f"toml example: {error}"


def shown_commands(text: str) -> Iterator[str]:
    """What follows `skerry` on each `$ skerry …` line of the console examples, continuation lines joined."""
    for _, _, language, body in FENCE.findall(text):
        if language in {"console", "shell-session"}:
            for line in body.replace("\\\n", " ").splitlines():
                start = re.match(r"\s*\$\s+(?:\S*/)?skerry\b(.*)", line)
                if start:
                    yield start.group(1)


def shell_words(line: str) -> list[str]:
    """The words before a pipe, a redirection, an `&` or a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if word[0] in "|&;<>":
            break
        words.append(word)
    return words


def wrong_commands(text: str) -> Iterator[str]:
    """Commands and options shown that the command line does not have."""
    for line in shown_commands(text):
        try:
            reason = wrong_command(shell_words(line))
        except ValueError as error:  # an open quote
            reason = str(error)
        if reason:
            yield f"`skerry {line.strip()}`: {reason}"


def wrong_command(words: list[str]) -> str | None:
    """Why the command line would refuse these words; None if it knows them all."""
    command = command_line()
    context = click.Context(command, info_name="skerry")
    options = known_options(command)
    rest = iter(words)
    for word in rest:
        if word == "--":  # what follows is a task's own words
            return None
        name, equals, _ = word.partition("=")
        if name.startswith("-") and name != "-":
            if name not in options:
                return f"no option {name}"
            if options[name] and not equals:
                next(rest, None)
        elif isinstance(command, click.Group):
            inner = command.get_command(context, word)
            if inner is None:
                return f"no command {word}"
            command, context = inner, click.Context(inner, info_name=word, parent=context)
            options |= known_options(command)
    return None


def command_line() -> click.Command:
    """The command line itself, whose help the documents must agree with."""
    app = vars(importlib.import_module("skerry.cli"))["app"]
    return app if isinstance(app, click.Command) else typer.main.get_command(app)


def known_options(command: click.Command) -> dict[str, bool]:
    """Every spelling of the options of one command, with whether a value follows."""
    found = {"--help": False}
    for option in command.params:
        if isinstance(option, click.Option):
            follows = not option.is_flag and not option.count
            found.update(dict.fromkeys((*option.opts, *option.secondary_opts), follows))
    return found


def wrong_numbers() -> Iterator[str]:
    """Gaps and doubles in the numbers of the decision notes."""
    numbers = sorted(int(m[1]) for p in DECISIONS.glob("*.md") if (m := DECISION.match(p.name)))
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"{DECISIONS.relative_to(ROOT)}: numbers are {numbers}, expected 1 to {len(numbers)}"


def findings() -> Iterator[str]:
    """Everything that is wrong, one line each."""
    for page in pages():
        text = page.read_text()
        for reason in (*broken_links(page, text), *broken_toml(text), *wrong_commands(text)):
            yield f"{page.relative_to(ROOT)}: {reason}"
    yield from wrong_numbers()


def main() -> int:
    """Prints what is wrong; exit status 1 if anything is."""
    wrong = list(findings())
    print("\n".join(wrong) if wrong else f"documents: {len(pages())} pages agree with the project")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
