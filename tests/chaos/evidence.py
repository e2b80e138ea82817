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
RECORDS = ROOT / "docs" / "evidence"
#: What a fleet's services run: agents and coordinator, without training.
SERVICES = ("skerry", "queue/task_queue", "devices", "policy", "edge_agent", "cloud_coordinator")
#: The command line and the demo: what drives the count, not what is counted.
_HARNESS = "skerry/cli/"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One record. count: what was counted in all entries.

    exercises: the folders and files it rests on; none are named in records of an older shape, which are void.
    content: hash of these names and of the files.
    """

    name: str
    command: str = ""
    commit: str = ""
    exercises: tuple[str, ...] = ()
    content: str = ""
    count: int = 0
    entries: tuple[dict[str, Any], ...] = ()

    def with_entry(self, count: int, entry: dict[str, Any]) -> Evidence:
        """Return the record with one more entry."""
        return msgspec.structs.replace(
            self, count=self.count + count, entries=(*self.entries, entry), commit=commit_now()
        )


def load_evidence(name: str, command: str, exercises: Sequence[str] = SERVICES) -> Evidence:
    """Return the record when it still stands, else an empty one.  exercises: folders and files."""
    content = content_hash(exercises)
    try:
        known = msgspec.json.decode(_path(name).read_bytes(), type=Evidence)
    except FileNotFoundError:
        known = None
    if known is not None and known.content == content:
        return known
    return Evidence(
        name=name, command=command, commit=commit_now(), exercises=tuple(sorted(exercises)), content=content
    )


def save_evidence(record: Evidence) -> None:
    """Write the record."""
    path = _path(record.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")  # inf becomes null


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


def content_hash(exercises: Sequence[str]) -> str:
    """Return a hash over the names given and the tracked source files that they stand for."""
    digest = hashlib.sha256(json.dumps(sorted(exercises)).encode())
    for name in files_of(exercises):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def files_of(exercises: Sequence[str]) -> list[str]:
    """Return the tracked source files that these folders and files stand for, without the harness."""
    listed = subprocess.run(
        ["git", "ls-files", *exercises], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    sources = (name for name in listed if name.endswith((".py", ".sql", ".rego")))
    return sorted(name for name in sources if not name.startswith(_HARNESS))


def _path(name: str) -> Path:
    return RECORDS / f"{name}.json"


def commit_now() -> str:
    """Return the commit that is checked out."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
