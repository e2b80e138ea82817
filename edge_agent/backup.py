"""Backups of an agent's queue: one archive with the database and a manifest; made, verified, restored.

The archive is a ZIP file: `queue.db`, a copy of one moment, and `manifest.json` with its hash, what it holds
and which contents its tasks need. Keys, enrolment and contents are not in it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skerry import __version__
from skerry.backup_documents import BackupManifest, Restored, Verified
from skerry.clock import Instant
from skerry.durable import sync
from skerry.errors import BackupError, SettingsError
from skerry.lock import LOCK, DirectoryLock
from task_queue.backup import copy_in_use, make_ready, why_unusable
from task_queue.damage.salvage import PROGRESS
from task_queue.inspection import StoppedQueue, schema_known
from task_queue.limits import Limits

DATABASE = "queue.db"
MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_NO_BALLAST = Limits(ballast_bytes=0, free_floor_bytes=0)


def make_archive(
    database: Path,
    target: Path,
    *,
    node: str,
    wall_s: float,
    contents: Sequence[tuple[str, int]],
    keep_free_bytes: int = 0,
    pause: Callable[[float], None] | None = None,
) -> BackupManifest:
    """Write a backup of a database, in use or not, to target; whole and synced, or not there at all.

    contents: hash and size of what the node's content store holds.  keep_free_bytes: left alone on the disk.
    Raises BackupError, StorageFailed.
    """
    _check_room(database, target.parent, keep_free_bytes)
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as name:
        copy, packed = Path(name) / DATABASE, Path(name) / "archive"
        copy_in_use(database, copy, **({} if pause is None else {"pause": pause}))
        manifest = _manifest(copy, node, wall_s, contents)
        _pack(copy, manifest, packed)
        sync(packed)
        packed.replace(target)
    sync(target.parent)
    return manifest


def _check_room(database: Path, folder: Path, keep_free_bytes: int) -> None:
    """Refuse before anything is written when the copy and its archive may not find room beside each other."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    needed = 2 * database.stat().st_size + keep_free_bytes
    if free < needed:
        raise BackupError(
            f"{folder} has {free >> 20} MiB free, a backup may need {needed >> 20} MiB there for a moment: "
            "free some space, or give a file on another disk"
        )


def _manifest(copy: Path, node: str, wall_s: float, contents: Sequence[tuple[str, int]]) -> BackupManifest:
    queue = StoppedQueue(copy)
    try:
        if queue.meta(PROGRESS) is not None:
            raise BackupError(
                "the queue is being brought back from a damaged file, a backup would lack what is to come: "
                "try again in a while (while the agent is stopped nothing comes back: start it first)"
            )
        depth = queue.depth()
        return BackupManifest(
            made_wall_s=wall_s,
            made_by=__version__,
            node=node,
            epoch=queue.epoch,
            schema=queue.schema,
            size_bytes=copy.stat().st_size,
            sha256=_hash(copy),
            tasks={state.value: count for state, count in depth.by_state.items() if count},
            outbox={lane.value: count for lane, count in depth.outbox.items()},
            contents=dict(contents),
        )
    finally:
        queue.close()


def _pack(copy: Path, manifest: BackupManifest, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.write(copy, DATABASE)
        archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    target.chmod(0o600)


def verify(file: Path) -> Verified:
    """Read the whole archive and its database and return what it holds.  Raises BackupError."""
    if not file.is_file():
        raise BackupError(f"there is no backup {file}")
    beside = file.parent if os.access(file.parent, os.W_OK) else None  # a medium may be write-protected
    with tempfile.TemporaryDirectory(prefix=".verify-", dir=beside) as name:
        return Verified(manifest=_unpack(file, Path(name) / DATABASE), size_bytes=file.stat().st_size)


def _unpack(file: Path, target: Path) -> BackupManifest:
    """Write the database of an archive to target, after every check that can be made on it."""
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _read_manifest(archive, file)
            with archive.open(DATABASE) as packed, target.open("xb") as out:
                while chunk := packed.read(_CHUNK):
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError, ValueError) as error:
        raise BackupError(f"{file} is damaged, or no backup: {error}") from error
    except OSError as error:
        raise BackupError(f"{file} cannot be read, or {target.parent} not be written: {error}") from error
    target.chmod(0o600)
    if target.stat().st_size != manifest.size_bytes or _hash(target) != manifest.sha256:
        raise BackupError(f"{file} is damaged: its database is not the one that its manifest names")
    wrong = why_unusable(target, schema_known())
    if wrong:
        raise BackupError(f"the database in {file} cannot be used: {wrong[0]}")
    return manifest


def _read_manifest(archive: zipfile.ZipFile, file: Path) -> BackupManifest:
    try:
        manifest = msgspec.json.decode(archive.read(MANIFEST), type=BackupManifest)
    except msgspec.DecodeError as error:
        raise BackupError(f"{file} is no backup of a queue, or a damaged one: {error}") from error
    if manifest.format != BackupManifest.format_now():
        raise BackupError(
            f"{file} has format {manifest.format}, this program reads {BackupManifest.format_now()}: use the "
            "version that made it, or a newer one"
        )
    return manifest


def restore(
    file: Path, home: Path, *, replace: bool, now: Instant, wall_s: Callable[[], float], reports: bool
) -> Restored:
    """Put a backup's queue into a data directory.

    replace: set a queue that is there aside, in a directory of its own.  The restored queue has a new epoch;
    its tasks that may take effect only once and had not ended are ended: they may have run meanwhile.
    Raises DirectoryInUse while an agent runs there, BackupError, StorageFailed.
    """
    if not file.is_file():
        raise BackupError(f"there is no backup {file}")
    with _lock(home):
        there = _queue_files(home)
        if there and not replace:
            raise BackupError(
                f"{home} holds a queue already ({there[0].name}): --replace sets it aside first"
            )
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=home) as name:
            staged = Path(name) / DATABASE
            manifest = _unpack(file, staged)
            came_from: dict[str, Any] = {"epoch": manifest.epoch, "made_wall_s": manifest.made_wall_s}
            ended = make_ready(
                staged, now=now, wall_s=wall_s, limits=_NO_BALLAST, reports=reports, came_from=came_from
            )
            aside = _set_aside(home, there, wall_s()) if there else None
            _give_to_owner(home, staged, home / LOCK, *([] if aside is None else [aside]))
            staged.replace(home / DATABASE)
        sync(home)
    missing = [name for name in manifest.contents if not _has_content(home, name)]
    return Restored(
        manifest=manifest,
        epoch=_epoch_of(home / DATABASE),
        ended_once=ended,
        set_aside="" if aside is None else str(aside),
        missing_contents=tuple(missing),
    )


def _lock(home: Path) -> DirectoryLock:
    try:
        return DirectoryLock(home)
    except OSError as error:
        raise BackupError(f"{home} cannot be used as a data directory: {error.strerror}") from error


def _give_to_owner(home: Path, *made: Path) -> None:
    """Give what root has made to the directory's owner, as whom the agent runs."""
    if os.geteuid() == 0:
        owner = home.stat()
        for path in made:
            os.chown(path, owner.st_uid, owner.st_gid)


def _queue_files(home: Path) -> list[Path]:
    """Return what a queue is made of, the database first; its log and what keeps room stand beside it."""
    return sorted(path for path in home.glob(f"{DATABASE}*") if path.is_file())


def _set_aside(home: Path, files: Sequence[Path], wall_s: float) -> Path:
    number = 1
    while (aside := home / f"replaced-{int(wall_s)}-{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    for path in files:  # all of them are there before the first one leaves
        os.link(path, aside / path.name)
    sync(aside)
    sync(home)
    for path in files:  # the database first: without its log it could be taken for whole
        path.unlink()
    return aside


def _epoch_of(path: Path) -> str:
    queue = StoppedQueue(path)
    try:
        return queue.epoch
    finally:
        queue.close()


def _has_content(home: Path, name: str) -> bool:
    digits = name.removeprefix("sha256:")
    return (home / "content" / "objects" / digits[:2] / digits).is_file()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def database_of(home: Path) -> Path:
    """Return where an agent's queue lies.  Raises SettingsError when there is none."""
    path = home / DATABASE
    if not path.is_file():
        raise SettingsError(f"there is no queue in {home}: name the agent's data directory")
    return path


def contents_of(home: Path) -> list[tuple[str, int]]:
    """Return hash and size of what a stopped agent's content store holds."""
    objects = home / "content" / "objects"
    return [(f"sha256:{path.name}", path.stat().st_size) for path in sorted(objects.glob("*/*"))]


def node_of(home: Path) -> str:
    """Return the name under which a directory's agent is enrolled, empty when it is not."""
    from edge_agent.settings import AgentSettings

    settings = AgentSettings(data_dir=str(home))
    if not settings.is_enrolled:
        return ""
    from skerry.identity import Enrolment

    enrolment = Enrolment.load(settings.enrolment_path)
    return "" if enrolment is None else enrolment.node
