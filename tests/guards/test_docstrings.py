"""Every public module, class and function of the packages says what it decides or does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHORTEST = 5  # characters: "Done." is an answer, "x" is not
#: A decorator that makes the function a second face of one documented elsewhere.
SECOND_FACES = {"overload", "setter", "deleter", "override"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Documented = dict[str, set[str]]  # class name → names of its methods that carry a docstring


def last_name(node: ast.expr) -> str:
    """`setter` of `value.setter`, `Store` of `ports.Store[int]`."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return last_name(inner)
        case _:
            return ""


def says_something(node: ast.Module | Definition) -> bool:
    """Whether there is a docstring, and it is more than a word."""
    return len(ast.get_docstring(node) or "") >= SHORTEST


def documented_methods(trees: dict[Path, ast.Module]) -> Documented:
    """What each class, by name, already explains for those that inherit from it."""
    found: Documented = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = (m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef))
                found.setdefault(node.name, set()).update(m.name for m in methods if says_something(m))
    return found


def public(body: list[ast.stmt]) -> Iterator[Definition]:
    """Definitions a reader may use from outside, second faces left out."""
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if not SECOND_FACES & {last_name(decorator) for decorator in node.decorator_list}:
            yield node


def silent(tree: ast.Module, documented: Documented) -> Iterator[str]:
    """Lines and names of what lacks a docstring in one module."""
    if not says_something(tree):
        yield "1 module"
    for node in public(tree.body):
        if not says_something(node):
            yield f"{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef):
            inherited = set().union(*(documented.get(last_name(base), set()) for base in node.bases))
            for method in public(node.body):
                if method.name not in inherited and not says_something(method):
                    yield f"{method.lineno} {node.name}.{method.name}"


def test_every_public_name_says_what_it_does(package_modules: tuple[Path, ...]) -> None:
    trees = {file: ast.parse(file.read_text()) for file in package_modules}
    documented = documented_methods(trees)
    missing = [
        f"{file.relative_to(ROOT)}:{name}"
        for file, tree in trees.items()
        for name in silent(tree, documented)
    ]
    assert not missing, "no docstring:\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def run(): ...", ["1 module", "1 run"]),
        ('"""A module of probes."""\nclass Store:\n    """x"""', ["2 Store"]),
        (
            '"""A module of probes."""\nclass Store:\n    """Keeps the rows."""\n    def get(self): ...',
            ["4 Store.get"],
        ),
        ('"""A module of probes."""\ndef _hidden(): ...', []),
        (
            '"""A module of probes."""\nclass Disk(Port):\n    """Keeps the rows."""\n    def put(self): ...',
            [],
        ),
    ],
)
def test_the_guard_finds_what_is_silent(source: str, expected: list[str]) -> None:
    assert list(silent(ast.parse(source), {"Port": {"put"}})) == expected
