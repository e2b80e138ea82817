"""Records of counts too long for every run: docs/evidence/*.json, void once what they exercise changes."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]
_EXERCISED = ("skerry", "queue/task_queue", "devices", "policy", "edge_agent", "cloud_coordinator")
#: The command line and the demo: what drives the count, not what is counted.
_HARNESS = "skerry/cli/"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One record. content: hash of every file it exercises.  count: what was counted in all entries."""

    name: str
    command: str
    commit: str
    content: str
    count: int = 0
    entries: tuple[dict[str, Any], ...] = ()

    def with_entry(self, count: int, entry: dict[str, Any]) -> Evidence:
        """Return the record with one more entry."""
        return msgspec.structs.replace(
            self, count=self.count + count, entries=(*self.entries, entry), commit=_commit()
        )


def load_evidence(name: str, command: str, exercised: Sequence[str] = _EXERCISED) -> Evidence:
    """Return the record when it still stands, else an empty one.  exercised: the files it rests on."""
    content = content_hash(exercised)
    try:
        known = msgspec.json.decode(_path(name).read_bytes(), type=Evidence)
    except FileNotFoundError:
        known = None
    if known is not None and known.content == content:
        return known
    return Evidence(name=name, command=command, commit=_commit(), content=content)


def save_evidence(record: Evidence) -> None:
    """Write the record."""
    path = _path(record.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n", encoding="utf-8")


def queue_files() -> tuple[str, ...]:
    """Return what a record of the queue alone rests on: its package, and what that imports of the kernel."""
    todo = sorted((ROOT / "queue" / "task_queue").rglob("*.py"))
    kernel: set[Path] = set()
    while todo:
        found = {path for path in _kernel_imports(todo.pop()) if path not in kernel}
        kernel |= found
        todo += sorted(found)
    return ("queue/task_queue", *sorted(str(path.relative_to(ROOT)) for path in kernel))


def _kernel_imports(path: Path) -> Iterator[Path]:
    """Yield the files of the kernel's modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            stem = ROOT.joinpath(*name.split("."))
            candidates = (stem.with_suffix(".py"), stem / "__init__.py")
            yield from (file for file in candidates if name.startswith("skerry") and file.is_file())


def content_hash(folders: Sequence[str] = _EXERCISED) -> str:
    """Return a hash over the tracked source files of the folders."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    digest = hashlib.sha256()
    for name in sorted(listed):
        if name.endswith((".py", ".sql", ".rego")) and not name.startswith(_HARNESS):
            digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def _path(name: str) -> Path:
    return ROOT / "docs" / "evidence" / f"{name}.json"


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
