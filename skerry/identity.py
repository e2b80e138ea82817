"""Who a process is: its ed25519 key, and what enrolment told it. Owns the two files, whole or not at all.

Each is kept twice, for a disk that damages one: the other takes its place, and both are whole again.

The key is made where it is used and never leaves; no private byte reaches a repr, a log or a message.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from skerry.decoding import MALFORMED
from skerry.durable import copy_of, make_directory, write_whole
from skerry.errors import IdentityError

log = logging.getLogger(__name__)

SIGNATURE_BYTES = 64
_T = TypeVar("_T")


class _Damaged(IdentityError):
    """One of the two files cannot be understood."""


class PrivateKey:
    """An ed25519 private key that signs and shows nothing but its public half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        """Wrap a key of the cryptography package."""
        self._key = key
        self._public = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> PrivateKey:
        """Make a new key from the system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path, *, is_kept_twice: bool = False) -> PrivateKey:
        """Return the key at path (PEM, mode 0600), making it and its directory when there is none.

        is_kept_twice: beside a copy, as a service keeps its own; whoever wants a new key removes both.

        Raises IdentityError when file and copy are damaged, or the file is readable by others or cannot be
        written. Without a whole copy a damaged file is left alone: the fleet knows this process by it.
        """
        read = partial(_read_either, read=_read_key) if is_kept_twice else _read_key
        try:
            return cls(read(path))
        except FileNotFoundError:
            pass
        try:
            make_directory(path.parent)
            write_whole(path, _pem(Ed25519PrivateKey.generate()), replace=False)
            return cls(read(path))
        except OSError as error:
            raise IdentityError(f"the key {path} cannot be written: {error.strerror}") from error

    @property
    def public_hex(self) -> str:
        """The public key, 64 hex digits."""
        return self._public.hex()

    def sign(self, data: bytes) -> bytes:
        """Return the 64-byte signature over data."""
        return self._key.sign(data)

    def __repr__(self) -> str:
        """Show the public key only."""
        return f"PrivateKey(public={self.public_hex})"

    def __reduce__(self) -> str:
        """Refuse to be pickled: a private key must not travel."""
        raise TypeError("a private key cannot be pickled")


def verify(public_key: bytes, signature: bytes, data: bytes) -> bool:
    """Decide whether signature over data was made by the holder of public_key (32 raw bytes)."""
    try:
        _public(public_key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def parse_public_key(text: str) -> bytes:
    """Return the 32 bytes of a public key in hex.  Raises IdentityError when it is none."""
    with contextlib.suppress(ValueError):
        raw = bytes.fromhex(text)
        if len(raw) == 32:
            return raw
    raise IdentityError(f"{text[:80]!r} is not a public key: 64 hex digits are")


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """What a node was told when it enrolled; kept beside its key."""

    fleet: str
    node: str
    region: str
    coordinator_url: str
    coordinator_public_key: str  #: 64 hex digits: whose signature counts on the way down
    broker_url: str
    site: str = ""
    parent: str | None = None  #: the coordinator above it when coordinators nest
    broker_username: str = ""
    broker_password: str = ""
    enrolled_wall_s: float = 0.0

    def __repr__(self) -> str:
        """Show everything but the password."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name != "broker_password"}
        return f"Enrolment({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @classmethod
    def load(cls, path: Path) -> Enrolment | None:
        """Return the enrolment at path, None when there is none.

        Raises IdentityError when file and copy are damaged.
        """
        try:
            return _read_either(path, _read_enrolment)
        except FileNotFoundError:
            return None

    def save(self, path: Path) -> None:
        """Write the enrolment (mode 0600), whole or not at all.  Raises IdentityError."""
        try:
            make_directory(path.parent)
            for target in (path, copy_of(path)):
                write_whole(target, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        except OSError as error:
            raise IdentityError(f"the enrolment {path} cannot be written: {error.strerror}") from error


def _read_either(path: Path, read: Callable[[Path], _T]) -> _T:
    """Return what a file holds, or its copy where the file is gone or damaged, and make both whole.

    Raises what reading the file raises when no copy helps.
    """
    copy = copy_of(path)
    try:
        value = read(path)
    except (FileNotFoundError, _Damaged) as error:
        try:
            value = read(copy)
        except FileNotFoundError:
            raise error from None
        except _Damaged as worse:
            raise (error if isinstance(error, _Damaged) else worse) from None
        log.error("%s is gone or damaged: its copy takes its place", path)
        _make_alike(copy, path)
    else:
        _make_alike(path, copy)
    return value


def _make_alike(source: Path, target: Path) -> None:
    try:
        content = source.read_bytes()
        if _content(target) == content:
            return
        write_whole(target, content)
        if os.geteuid() == 0:  # a command that root runs: the agent must be able to read it afterwards
            owner = source.stat()
            os.chown(target, owner.st_uid, owner.st_gid)
    except OSError as error:  # it is known who this is: enough to go on
        log.warning("%s was not written: %s", target, error.strerror)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _unreadable(what: str, path: Path, error: OSError) -> IdentityError:
    """Return what to raise: what the disk cannot read is damaged, what is forbidden is not."""
    kind = _Damaged if error.errno == errno.EIO else IdentityError
    return kind(f"the {what} {path} cannot be read: {error.strerror}")


def _read_enrolment(path: Path) -> Enrolment:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Enrolment)
    except FileNotFoundError:
        raise
    except MALFORMED as error:
        raise _Damaged(
            f"the enrolment {path} is damaged ({error}), and so is its copy; restore it from a backup, or run"
            " `skerry enrol` again: the node's key and its tasks stay as they are"
        ) from error
    except OSError as error:
        raise _unreadable("enrolment", path, error) from error


@lru_cache(maxsize=4096)
def _public(raw: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(raw)


def _pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_key(path: Path) -> Ed25519PrivateKey:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable("key", path, error) from error
    if mode & 0o077:
        raise IdentityError(f"the key {path} can be read by others (mode {mode:04o}); run: chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError) as error:
        raise _Damaged(_damaged(path)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _Damaged(_damaged(path))
    return key


def _damaged(path: Path) -> str:
    return (
        f"the key {path} is damaged or not an ed25519 key, and it has no whole copy; restore it from a"
        " backup, or move it away and enrol this machine again with a new token"
    )
