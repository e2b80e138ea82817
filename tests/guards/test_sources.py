"""No file of the project names a path of one machine, hides an error, puts work off or outgrows a reader."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|Users|root|work|mnt|media)/\w+")
PUT_OFF = re.compile(r"\b(?:TODO|FIX" r"ME|XXX)\b")
BROAD = {"Exception", "BaseException"}
LONGEST = 400  # lines of one module; more than that hides more than one subject


def texts(files: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    """The files that hold text, with it."""
    for file in files:
        try:
            yield file, file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image or a model


def found(pattern: re.Pattern[str], files: tuple[Path, ...]) -> list[str]:
    """Each place where the pattern occurs, this file apart: it has to spell what it looks for."""
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file, text in texts(files)
        if file != Path(__file__).resolve()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def names(node: ast.expr | None) -> set[str]:
    """The exception names an `except` clause or a `suppress` call mentions; bare `except` means all."""
    if node is None:
        return BROAD
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def acts(handler: ast.ExceptHandler) -> bool:
    """Whether a handler raises, calls something or stores the error, rather than dropping it."""
    kinds = (ast.Raise, ast.Call, ast.Assign, ast.Yield)
    return any(isinstance(part, kinds) for statement in handler.body for part in ast.walk(statement))


def swallowed(tree: ast.Module) -> Iterator[int]:
    """Lines that catch every error and do nothing with it."""
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler() if names(node.type) & BROAD and not acts(node):
                yield node.lineno
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
                if any(names(argument) & BROAD for argument in node.args):
                    yield node.lineno


def test_no_file_holds_a_path_of_one_machine(project_files: tuple[Path, ...]) -> None:
    assert found(MACHINE_PATH, project_files) == []


def test_no_file_puts_work_off(project_files: tuple[Path, ...]) -> None:
    assert found(PUT_OFF, project_files) == []


def test_no_error_is_swallowed(python_files: tuple[Path, ...]) -> None:
    hidden = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in python_files
        for line in swallowed(ast.parse(file.read_text()))
    ]
    assert hidden == []


def test_no_module_is_too_long_to_read(python_files: tuple[Path, ...]) -> None:
    long = {
        str(f.relative_to(ROOT)): n for f in python_files if (n := len(f.read_text().splitlines())) > LONGEST
    }
    assert long == {}


def test_every_module_postpones_annotations(package_modules: tuple[Path, ...]) -> None:
    eager = [
        str(file.relative_to(ROOT))
        for file in package_modules
        if len(tree := ast.parse(file.read_text()).body) > 1
        and not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree)
    ]
    assert eager == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("try:\n    a()\nexcept Exception:\n    pass", [3]),
        ("try:\n    a()\nexcept:\n    x = None if 1 else 2", []),
        ("try:\n    a()\nexcept (OSError, BaseException):\n    return_value", [3]),
        ("try:\n    a()\nexcept OSError:\n    pass", []),
        ("try:\n    a()\nexcept Exception as error:\n    log(error)", []),
        ("with contextlib.suppress(Exception):\n    a()", [1]),
    ],
)
def test_the_guard_tells_a_swallowed_error_from_a_handled_one(source: str, lines: list[int]) -> None:
    assert list(swallowed(ast.parse(source))) == lines


@pytest.mark.parametrize(
    ("text", "machine"),
    [("/home/ann/x", True), ("https://x.org/home/ann", False), ("/var/lib/skerry", False)],
)
def test_the_guard_knows_a_path_of_one_machine(text: str, machine: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is machine
