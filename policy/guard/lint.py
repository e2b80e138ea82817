"""What no rule engine checks: whether a rule asks for facts that exist, and only for what may decide a task.

Owns the walk over a parsed rule file. A path behind `input.` that does not exist is undefined in Rego: its
rule never fires, and the task is allowed. So each path is compared with the typed document before any use.
Must not know of what the rules decide.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from policy.guard.facts import known_paths

#: Functions that would make a decision depend on more than the document, or run for ever, and why not.
FORBIDDEN: Mapping[str, str] = {
    "http.": "a rule does not speak to the network",
    "net.": "a rule does not speak to the network",
    "opa.": "a rule does not see the process it runs in",
    "time.now_ns": "a cached verdict does not depend on the clock",
    "rand.": "the same task gets the same verdict",
    "uuid.": "the same task gets the same verdict",
    "numbers.range": "it can run for minutes and cannot be interrupted",
}
STATIC, LIVE = "deny", "deny_now"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to mend."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        """Return `file:line:column: message`."""
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One name that a rule refers to. path: its parts; None stands for a computed one."""

    file: str
    line: int
    column: int
    path: tuple[str | None, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What lint found. static_facts: the paths behind `input.` that the cached rules depend on."""

    findings: tuple[Finding, ...]
    heads: frozenset[str]
    static_facts: tuple[str, ...]


def lint(modules: Sequence[Any]) -> Report:
    """Check parsed rule files (the engine's own tree) and return what is wrong and what they depend on."""
    findings: list[Finding] = []
    uses: dict[str, list[Use]] = {}
    for module in modules:
        file, tree = module["source"]["file"], module["ast"]
        findings += _check_package(file, tree["package"])
        findings += _check_imports(file, tree["imports"])
        for rule in tree["rules"]:
            uses.setdefault(_head(rule), []).extend(_uses(rule, file))
    for use in (use for rule in uses.values() for use in rule):
        findings += _check(use)
    static = _reached(STATIC, uses)
    findings += [_not_static(use) for use in static if use.path[:2] == ("input", "live")]
    facts = {_fact(use) for use in static if use.path[0] == "input"}
    return Report(
        findings=tuple(sorted(findings, key=lambda f: (f.file, f.line, f.column))),
        heads=frozenset(uses),
        static_facts=tuple(sorted(fact for fact in facts if fact)),
    )


def _check_package(file: str, package: Any) -> Iterator[Finding]:
    parts = _reference(package["refr"])
    if parts is None or parts[0] != ("skerry", "guard"):
        at = package["span"]
        yield Finding(
            file=file, line=at["line"], column=at["col"], message="the package must be skerry.guard"
        )


def _check_imports(file: str, imports: Any) -> Iterator[Finding]:
    """An alias of facts or of other rules would hide from every check below."""
    for use in _uses(imports, file):
        if use.path[0] in ("input", "data"):
            name = ".".join(part or "[…]" for part in use.path)
            yield _finding(use, f"import {name} is not allowed: write the whole path where it is used")


def _head(rule: Any) -> str:
    (body,) = rule.values()
    head = body if "refr" in body else next(iter(body["head"].values()))
    reference = _reference(head["refr"])
    return str(reference[0][0]) if reference else ""


def _uses(node: Any, file: str) -> Iterator[Use]:
    """Every reference in a tree; the computed parts of a reference are walked as well."""
    if isinstance(node, list):
        for item in node:
            yield from _uses(item, file)
    elif isinstance(node, dict):
        reference = _reference(node)
        if reference is None:
            for item in node.values():
                yield from _uses(item, file)
            return
        path, at, computed = reference
        yield Use(file=file, line=at["line"], column=at["col"], path=path)
        yield from _uses(computed, file)


def _reference(node: Any) -> tuple[tuple[str | None, ...], Any, list[Any]] | None:
    """The parts, place and computed indices of `a.b["c"][d]`; None when node is no such reference."""
    parts: list[str | None] = []
    computed: list[Any] = []
    while "Var" not in node:
        if "RefDot" in node:
            node = node["RefDot"]
            parts.append(node["field"][1])
        elif "RefBrack" in node:
            node = node["RefBrack"]
            literal = node["index"].get("String")
            parts.append(literal["value"] if literal else None)
            computed += [] if literal else [node["index"]]
        else:
            return None
        node = node["refr"]
    return (node["Var"]["value"], *reversed(parts)), node["Var"]["span"], computed


def _check(use: Use) -> Iterator[Finding]:
    name = ".".join(part or "[…]" for part in use.path)
    for forbidden, why in FORBIDDEN.items():
        if name == forbidden or (forbidden.endswith(".") and name.startswith(forbidden)):
            yield _finding(use, f"{name} is not allowed in rules: {why}")
    if use.path[0] == "data" and not _is_plain(use.path[1:]):
        yield _finding(use, f"{name} is computed: rules and data are named by their whole path")
    if use.path[0] == "input" and _fact(use) is None:
        yield _finding(use, _unknown(name))


def _is_plain(path: tuple[str | None, ...]) -> bool:
    """Whether a path behind `data.` cannot reach a rule unseen: its first parts are written out."""
    depth = 3 if path[:1] == ("skerry",) else 1
    return len(path) >= depth and None not in path[:depth]


def _fact(use: Use) -> str | None:
    """The leaf of the typed document that a path behind `input.` stands for; None when there is none."""
    known = known_paths()
    at = ""
    for depth, part in enumerate(use.path[1:], 1):
        at = f"{at}.{part}".lstrip(".") if part is not None else ""
        if at not in known:
            return None
        if known[at]:  # a map or a list: anything may stand below
            return at
        if depth == len(use.path) - 1:
            return None if any(path.startswith(f"{at}.") for path in known) else at
    return None


def _unknown(name: str) -> str:
    known = known_paths()
    path = name.removeprefix("input").lstrip(".")
    if path in known or not path:
        return f"{name} is a group of facts: name the one that decides, for example input.task.tenant"
    near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    hint = f"; did you mean input.{near[0]}?" if near else ""
    return f"there is no {name}{hint}"


def _reached(head: str, uses: Mapping[str, Sequence[Use]]) -> list[Use]:
    """What a rule refers to, itself and through every rule it refers to."""
    seen, waiting, found = {head}, [head], []
    while waiting:
        for use in uses.get(waiting.pop(), ()):
            found.append(use)
            name = str(
                use.path[3] if use.path[:3] == ("data", "skerry", "guard") and use.path[3:] else use.path[0]
            )
            if name in uses and name not in seen:
                seen.add(name)
                waiting.append(name)
    return found


def _not_static(use: Use) -> Finding:
    return _finding(use, f"{STATIC} is cached and cannot depend on input.live: use {LIVE} for this rule")


def _finding(use: Use, message: str) -> Finding:
    return Finding(file=use.file, line=use.line, column=use.column, message=message)
