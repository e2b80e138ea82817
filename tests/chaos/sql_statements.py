"""Every predicate of a statement that changes a database of the product, and the statement without it.

Owns where statements are found (named queries, schema steps with their triggers, literals in the code) and
how they are taken apart. Knows no test.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from sqlglot.dialects.sqlite import SQLite
from sqlglot.tokenizer_core import Token, TokenType

from skerry.sql import load_schema, load_statements

#: The databases of agent and coordinator, by what they are called here.
PACKAGES = {"queue": "task_queue", "ledger": "cloud_coordinator.ledger", "rounds": "federation.rounds"}
_T = TypeVar("_T")
_CHANGES = {TokenType.INSERT, TokenType.UPDATE, TokenType.DELETE, TokenType.REPLACE}
_WORDS = ("INSERT ", "UPDATE ", "DELETE ", "REPLACE ", "WITH ")
#: What ends a clause that stands as deep as itself.
_ENDS = {
    TokenType.BEGIN,
    TokenType.GROUP_BY,
    TokenType.JOIN,
    TokenType.LIMIT,
    TokenType.ON,
    TokenType.ORDER_BY,
    TokenType.RETURNING,
    TokenType.SEMICOLON,
    TokenType.UNION,
    TokenType.WHERE,
}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A predicate taken out of what SQLite is given: it holds for every row."""

    script: str
    mutated: str


def scripts() -> dict[str, str]:
    """Return what the product gives SQLite, by name: a text that has two names by the first of them."""
    named = _numbered(found for short, package in PACKAGES.items() for found in _scripts_of(short, package))
    first = {text: name for name, text in reversed(named.items())}
    return {name: text for name, text in named.items() if first[text] == name}


def _scripts_of(short: str, package: str) -> Iterator[tuple[str, str]]:
    for name, text in load_statements(package).items():
        yield f"{short}/{name}", text
    for version, text in enumerate(load_schema(package), start=1):
        yield f"{short}/schema {version}", text
    for name, text in _literals(Path(str(resources.files(package)))):
        yield f"{short}/{name}", text


def _numbered(pairs: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """Return pairs by name, each after the first of a name with its number."""
    seen: Counter[str] = Counter()
    found: dict[str, _T] = {}
    for name, each in pairs:
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} ({seen[name]})"] = each
    return found


def _literals(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the statements that are written in the code, by module and first words."""
    for path in sorted(folder.rglob("*.py")):
        for text in _texts(ast.parse(path.read_bytes())):
            if text.lstrip().startswith(_WORDS):
                yield f"{path.stem}: {' '.join(text.split()[:3])}", text


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts in a module; one that is put together is given with a name for each of its gaps."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "gap" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def mutants() -> dict[str, Mutant]:
    """Return every predicate of every statement, each taken out of it, by name."""
    return _numbered(mutant for name, script in scripts().items() for mutant in _mutants_of(name, script))


def has_predicate(sql: str) -> bool:
    """Decide whether a script changes rows that it chooses."""
    return next(_mutants_of("", sql), None) is not None


def _mutants_of(name: str, script: str) -> Iterator[tuple[str, Mutant]]:
    for statement in filter(_is_change, _statements(SQLite.Tokenizer().tokenize(script))):
        hints = list(_hints(statement))
        where = f"{name}, trigger {statement[2].text}" if _is_trigger(statement) else name
        for first, last in _predicates(statement):
            predicate = script[first.start : last.end + 1]
            always = (first.start, last.end + 1, f"({predicate} OR TRUE)")  # what it binds stays bound
            mutant = Mutant(script=script, mutated=_edited(script, [*hints, always]))
            yield f"{where}: {' '.join(predicate.split())}", mutant


def _statements(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """Yield the statements of a script, a trigger with its own ones whole."""
    statement: list[Token] = []
    for token in tokens:
        statement.append(token)
        is_over = not _is_trigger(statement) or statement[-2].token_type is TokenType.END
        if token.token_type is TokenType.SEMICOLON and is_over:
            yield statement
            statement = []
    if statement:
        yield statement


def _is_trigger(statement: Sequence[Token]) -> bool:
    return any(token.token_type is TokenType.TRIGGER for token in statement[:3])


def _is_change(statement: Sequence[Token]) -> bool:
    first = statement[0].token_type
    is_with = first is TokenType.WITH and any(token.token_type in _CHANGES for token in statement)
    return first in _CHANGES or is_with or _is_trigger(statement)


def _hints(statement: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """Yield the index hints: a partial index cannot be asked for without its own condition."""
    for hint, index in pairwise(statement):
        if hint.token_type is TokenType.INDEXED_BY:
            yield hint.start, index.end + 1, ""


def _edited(script: str, edits: Iterable[tuple[int, int, str]]) -> str:
    for start, end, text in sorted(edits, reverse=True):
        script = script[:start] + text + script[end:]
    return script


def _predicates(statement: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    """Yield the first and last token of each conjunct of each clause, those of sub-selects too."""
    for place in range(len(statement)):
        if _begins_clause(statement, place):
            yield from _conjuncts(statement[place + 1 :])


def _begins_clause(statement: Sequence[Token], place: int) -> bool:
    """Decide whether a predicate follows: after WHERE, a join's ON, or the WHEN of a trigger."""
    before = {token.token_type for token in statement[:place]}
    match statement[place].token_type:
        case TokenType.WHERE:
            return True
        case TokenType.ON:
            return TokenType.JOIN in before and statement[place + 1].text.upper() != "CONFLICT"
        case TokenType.WHEN:
            return _is_trigger(statement) and TokenType.BEGIN not in before
        case _:
            return False


def _conjuncts(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    """Split a clause at each AND that joins its predicates: not within brackets, BETWEEN or an OR."""
    clause: list[Token] = []
    cuts = [-1]
    depth = 0
    is_between = has_or = False
    for token in tokens:
        kind = token.token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth < 0 or (depth == 0 and kind in _ENDS):
            break
        if depth == 0 and kind is TokenType.AND and not is_between:
            cuts.append(len(clause))
        if depth == 0 and kind in (TokenType.BETWEEN, TokenType.AND):
            is_between = kind is TokenType.BETWEEN
        has_or = has_or or (depth == 0 and kind is TokenType.OR)
        clause.append(token)
    cuts = [-1, len(clause)] if has_or else [*cuts, len(clause)]
    for before, after in pairwise(cuts):
        yield clause[before + 1], clause[after - 1]
