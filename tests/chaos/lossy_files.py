"""A whole file system that forgets what was not synced, for processes that know nothing of it (FUSE).

`python -m tests.chaos.lossy_files MOUNT IMAGE` mounts what IMAGE holds, in memory. The line `cut SEED` on its
standard input ends the machine's life: every later call fails, and IMAGE is what a disk may hold then, file
by file and folder by folder: of the writes since a file's last sync nothing, a prefix or a random half of the
512-byte sectors; of the changes of a folder since its last sync a prefix. Modes and times are not lost. A
file's own sync does not make its name safe: its folder's does. The line `read-only` refuses every change from
then on, as a kernel does that has found an error, and `writable` ends that.
"""

from __future__ import annotations

import errno
import functools
import os
import pickle
import random
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import mfusepy as fuse

from task_queue.testing_lossy_disk import Write, apply, survivors, written

_T = TypeVar("_T")
_BLOCK = 4096
_BLOCKS = 1 << 20  # what statfs says is there, and free
#: Calls that are refused while the file system can only be read.
_CHANGING = frozenset(
    [
        "create",
        "mknod",
        "mkdir",
        "write",
        "truncate",
        "fallocate",
        "unlink",
        "link",
        "rmdir",
        "rename",
        "chmod",
        "chown",
        "utimens",
    ]
)
#: Changes of one folder that are seen together: names, and what they name then (None: nothing).
Change = tuple[tuple[str, "Node | None"], ...]


@dataclass(eq=False)
class Node:
    """A file or a folder: what processes see, and what the disk has."""

    mode: int
    owner: tuple[int, int] = (0, 0)
    times: tuple[int, int] = (0, 0)
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    names: dict[str, Node] = field(default_factory=dict)
    durable_names: dict[str, Node] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @property
    def is_folder(self) -> bool:
        """Decide what it is."""
        return stat.S_ISDIR(self.mode)

    def change(self, *change: tuple[str, Node | None]) -> None:
        """Change names at once."""
        rename(self.names, change)
        self.changes.append(change)

    def write(self, offset: int, data: bytes | None) -> None:
        """Write, or (None) move the end."""
        if data is None and offset > len(self.data):
            data, offset = bytes(offset - len(self.data)), len(self.data)
        apply(self.data, [(offset, data)])
        self.pending.append((offset, data))
        self.times = (self.times[0], time.time_ns())

    def sync(self) -> None:
        """Make the content, or the names, safe."""
        apply(self.durable, self.pending)
        self.pending.clear()
        self.durable_names = dict(self.names)
        self.changes.clear()


def rename(names: dict[str, Node], change: Change) -> None:
    """Do one change."""
    for name, node in change:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def after_cut(node: Node, rng: random.Random) -> Node:
    """Return what the disk may hold of a node after a cut now, all of it safe."""
    left = Node(mode=node.mode, owner=node.owner, times=node.times)
    if not node.is_folder:
        left.durable = bytearray(written(node.durable, survivors(node.pending, rng)))
        left.data = bytearray(left.durable)
        return left
    names = dict(node.durable_names)
    for change in node.changes[: rng.choice((0, rng.randint(0, len(node.changes))))]:
        rename(names, change)
    left.names = {name: after_cut(child, rng) for name, child in names.items()}
    left.durable_names = dict(left.names)
    return left


def one_at_a_time(call: Callable[..., _T]) -> Callable[..., _T]:
    """Refuse a call once the power is gone; else do it whole."""

    @functools.wraps(call)
    def guarded(self: LossyFiles, *arguments: Any, **named: Any) -> _T:
        with self.guard:
            if self.is_off:
                raise fuse.FuseOSError(errno.EIO)
            if self.is_read_only and call.__name__ in _CHANGING:
                raise fuse.FuseOSError(errno.EROFS)
            return call(self, *arguments, **named)

    return guarded


class LossyFiles(fuse.Operations):
    """The calls of the kernel."""

    use_ns = True

    def __init__(self, root: Node) -> None:
        """Serve a tree."""
        self.root = root
        self.guard = threading.Lock()
        self.is_off = False
        self.is_read_only = False
        self._open: dict[int, Node] = {}
        self._handles = 0

    def cut(self, seed: int) -> Node:
        """End the machine's life and return what is left."""
        with self.guard:
            self.is_off = True
            return after_cut(self.root, random.Random(seed))

    def _node(self, path: str, fh: int | None = None) -> Node:
        if fh in self._open:
            return self._open[fh]
        node = self.root
        for name in Path(path).parts[1:]:
            if name not in node.names:
                raise fuse.FuseOSError(errno.ENOENT)
            node = node.names[name]
        return node

    def _folder(self, path: str) -> tuple[Node, str]:
        place = Path(path)
        return self._node(str(place.parent)), place.name

    def _make(self, path: str, node: Node) -> Node:
        folder, name = self._folder(path)
        node.owner = fuse.fuse_get_context()[:2]
        node.times = (time.time_ns(), time.time_ns())
        folder.change((name, node))
        return node

    def _handle(self, node: Node) -> int:
        self._handles += 1
        self._open[self._handles] = node
        return self._handles

    @one_at_a_time
    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._node(path, fh)
        return {
            "st_mode": node.mode,
            "st_nlink": 2 if node.is_folder else 1,
            "st_size": len(node.data),
            "st_blocks": -(-len(node.data) // 512),
            "st_uid": node.owner[0],
            "st_gid": node.owner[1],
            "st_atime": node.times[0],
            "st_mtime": node.times[1],
            "st_ctime": node.times[1],
        }

    @one_at_a_time
    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *self._node(path).names]

    @one_at_a_time
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._handle(self._make(path, Node(mode=stat.S_IFREG | stat.S_IMODE(mode))))

    @one_at_a_time
    def mknod(self, path: str, mode: int, dev: int) -> int:
        self._make(path, Node(mode=mode))
        return 0

    @one_at_a_time
    def mkdir(self, path: str, mode: int) -> int:
        self._make(path, Node(mode=stat.S_IFDIR | stat.S_IMODE(mode)))
        return 0

    @one_at_a_time
    def open(self, path: str, flags: int) -> int:
        if self.is_read_only and flags & (os.O_WRONLY | os.O_RDWR):
            raise fuse.FuseOSError(errno.EROFS)
        return self._handle(self._node(path))

    @one_at_a_time
    def opendir(self, path: str) -> int:
        return self._handle(self._node(path))

    @one_at_a_time
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._node(path, fh).data[offset : offset + size])

    @one_at_a_time
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._node(path, fh).write(offset, bytes(data))
        return len(data)

    @one_at_a_time
    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._node(path, fh).write(length, None)
        return 0

    @one_at_a_time
    def fallocate(self, path: str, mode: int, offset: int, size: int, fh: int) -> int:
        node = self._node(path, fh)
        if mode:
            raise fuse.FuseOSError(errno.EOPNOTSUPP)
        if len(node.data) < offset + size:
            node.write(offset + size, None)
        return 0

    @one_at_a_time
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._node(path, fh).sync()
        return 0

    @one_at_a_time
    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._node(path, fh).sync()
        return 0

    @one_at_a_time
    def unlink(self, path: str) -> int:
        folder, name = self._folder(path)
        folder.change((name, None))
        return 0

    @one_at_a_time
    def link(self, target: str, source: str) -> int:
        folder, name = self._folder(target)
        folder.change((name, self._node(source)))
        return 0

    @one_at_a_time
    def rmdir(self, path: str) -> int:
        if self._node(path).names:
            raise fuse.FuseOSError(errno.ENOTEMPTY)
        folder, name = self._folder(path)
        folder.change((name, None))
        return 0

    @one_at_a_time
    def rename(self, old: str, new: str) -> int:
        node = self._node(old)
        source, old_name = self._folder(old)
        target, new_name = self._folder(new)
        if source is target:
            source.change((old_name, None), (new_name, node))
        else:
            target.change((new_name, node))
            source.change((old_name, None))
        return 0

    @one_at_a_time
    def chmod(self, path: str, mode: int) -> int:
        node = self._node(path)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    @one_at_a_time
    def chown(self, path: str, uid: int, gid: int) -> int:
        self._node(path).owner = (uid, gid)
        return 0

    @one_at_a_time
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        self._node(path).times = times or (time.time_ns(), time.time_ns())
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        counts = dict.fromkeys(("f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"), _BLOCKS)
        return {"f_bsize": _BLOCK, "f_frsize": _BLOCK, "f_namemax": 255, **counts}

    def release(self, path: str, fh: int) -> int:
        self._open.pop(fh, None)
        return 0

    def releasedir(self, path: str, fh: int) -> int:
        self._open.pop(fh, None)
        return 0


def main(mount: str, image: Path) -> None:
    """Serve until the mount is taken away."""
    root: Node = pickle.loads(image.read_bytes()) if image.exists() else Node(mode=stat.S_IFDIR | 0o755)
    files = LossyFiles(root)

    def listen() -> None:
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "cut":
                image.write_bytes(pickle.dumps(files.cut(int(rest[0]))))
            else:
                files.is_read_only = word == "read-only"
            print("done", flush=True)
        # Whoever started it is gone: no mount is left behind.
        subprocess.run(["fusermount3", "-u", "-z", mount], check=False, capture_output=True)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    fuse.FUSE(files, mount, foreground=True, nothreads=True, hard_remove=True, fsname="lossy")
    os._exit(0)  # the listening thread would wait for ever


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
