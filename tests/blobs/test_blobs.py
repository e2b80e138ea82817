"""The content store: whole or not at all, within its quota, never losing what somebody needs."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skerry.blobs import QUARANTINE_LIMIT, BlobStore
from skerry.errors import BlobCorrupt, BlobError, BlobNotFound, BlobQuotaExceeded
from skerry.ids import content_hash
from skerry.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reopen(tmp_path: Path, clock: ManualClock) -> Callable[[], BlobStore]:
    return lambda: BlobStore(tmp_path / "blobs", 1000, clock=clock)


@pytest.fixture
def store(reopen: Callable[[], BlobStore]) -> BlobStore:
    return reopen()


def files(store: BlobStore, folder: str) -> list[Path]:
    return [path for path in (store.root / folder).rglob("*") if path.is_file()]


def damage(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(b"x" + path.read_bytes()[1:])


def test_what_was_put_is_found_under_its_hash(store: BlobStore) -> None:
    name = store.put_bytes(b"hello")

    assert name == f"sha256:{hashlib.sha256(b'hello').hexdigest()}" == content_hash(b"hello")
    assert store.path(name).read_bytes() == b"hello"
    assert (store.has(name), store.size(name), store.used_bytes) == (True, 5, 5)


def test_a_file_is_copied_in(store: BlobStore, tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(os.urandom(900))

    name = store.put_file(source)

    assert store.path(name).read_bytes() == source.read_bytes()


def test_a_missing_file_is_named_in_the_error(store: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(BlobError, match=r"absent\.onnx"):
        store.put_file(tmp_path / "absent.onnx")


def test_content_with_another_hash_is_not_kept(store: BlobStore) -> None:
    with pytest.raises(BlobCorrupt, match="not kept"):
        store.put_bytes(b"hello", name=content_hash(b"other"))

    assert (store.names(), files(store, "incoming"), store.used_bytes) == ([], [], 0)


def test_a_broken_off_upload_leaves_nothing(store: BlobStore) -> None:
    def upload() -> None:
        with store.receive() as sink:
            sink.write(b"half")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        upload()

    assert (files(store, "incoming"), store.used_bytes) == ([], 0)


def test_half_written_files_of_a_killed_process_are_gone_after_opening(
    store: BlobStore, reopen: Callable[[], BlobStore]
) -> None:
    (store.root / "incoming" / "tmpabc").write_bytes(b"half")

    assert files(reopen(), "incoming") == []


def test_content_survives_opening_again(store: BlobStore, reopen: Callable[[], BlobStore]) -> None:
    name = store.put_bytes(b"hello")

    assert reopen().path(name).read_bytes() == b"hello"


@pytest.mark.parametrize("name", ["sha256:../../etc/passwd", "md5:00", "", "sha256:" + "A" * 64])
def test_what_is_not_a_hash_is_refused(store: BlobStore, name: str) -> None:
    with pytest.raises(BlobError, match="not of the form"):
        store.path(name)
    with pytest.raises(BlobError, match="not of the form"):
        store.receive(name)


def test_unknown_content_is_not_found(store: BlobStore) -> None:
    with pytest.raises(BlobNotFound):
        store.path(content_hash(b"never"))


def test_a_damaged_file_is_set_aside_and_reported(store: BlobStore) -> None:
    name = store.put_bytes(b"hello")
    reported: list[str] = []
    store.on_corrupt = reported.append
    damage(store.path(name))

    with pytest.raises(BlobCorrupt, match="set aside"):
        store.path(name)

    assert (reported, store.has(name), len(files(store, "quarantine"))) == ([name], False, 1)


def test_damage_from_before_this_process_is_found(store: BlobStore, reopen: Callable[[], BlobStore]) -> None:
    name = store.put_bytes(b"hello")
    damage(store.path(name))

    with pytest.raises(BlobCorrupt):
        reopen().path(name)


def test_putting_again_heals_a_damaged_file(store: BlobStore) -> None:
    name = store.put_bytes(b"hello")
    damage(store.path(name))

    store.put_bytes(b"hello")

    assert store.path(name).read_bytes() == b"hello"


def test_a_file_that_vanished_is_not_found(store: BlobStore) -> None:
    name = store.put_bytes(b"hello")
    store.path(name).unlink()

    with pytest.raises(BlobNotFound):
        store.path(name)
    assert not store.has(name)


def test_only_a_few_damaged_files_are_kept(store: BlobStore) -> None:
    for number in range(QUARANTINE_LIMIT + 3):
        name = store.put_bytes(b"hello %d" % number)
        damage(store.path(name))
        with pytest.raises(BlobCorrupt):
            store.path(name)

    assert len(files(store, "quarantine")) == QUARANTINE_LIMIT


def test_a_put_beyond_the_quota_is_refused_before_the_disk_fills(store: BlobStore) -> None:
    store.put_bytes(b"a" * 600)

    with pytest.raises(BlobQuotaExceeded, match="600 of 1000"):
        store.put_bytes(b"b" * 600)

    assert (store.used_bytes, files(store, "incoming")) == (600, [])


def test_two_uploads_at_once_share_one_quota(store: BlobStore) -> None:
    with store.receive() as first, store.receive() as second:
        first.write(b"a" * 600)
        with pytest.raises(BlobQuotaExceeded):
            second.write(b"b" * 600)
        first.commit()

    assert store.used_bytes == 600


def test_the_same_content_twice_counts_once(store: BlobStore) -> None:
    assert store.put_bytes(b"a" * 400) == store.put_bytes(b"a" * 400)
    assert store.used_bytes == 400


def test_the_least_recently_used_goes_first(store: BlobStore, clock: ManualClock) -> None:
    old, used, new = (store.put_bytes(bytes([n]) * 300) for n in range(3))
    store.path(old)

    collected = store.collect(frozenset(), grace_s=0, now=clock.advance(1), room_bytes=400)

    assert (collected.removed, collected.freed_bytes) == ((used,), 300)
    assert store.has(old)
    assert store.has(new)


def test_use_is_remembered_over_a_restart(
    store: BlobStore, reopen: Callable[[], BlobStore], clock: ManualClock
) -> None:
    first = store.put_bytes(b"a" * 300)
    clock.advance(1)
    second = store.put_bytes(b"b" * 300)
    clock.advance(1)
    store.path(first)

    assert reopen().names() == [second, first]


def test_nothing_goes_while_there_is_room(store: BlobStore, clock: ManualClock) -> None:
    store.put_bytes(b"a" * 600)

    assert store.collect(frozenset(), grace_s=0, now=clock.advance(99), room_bytes=400).removed == ()


def test_what_is_needed_never_goes(store: BlobStore, clock: ManualClock) -> None:
    referenced, pinned, held, free = (store.put_bytes(bytes([n]) * 250) for n in range(4))
    store.pin(pinned)

    with store.holding(held):
        collected = store.collect({referenced}, grace_s=0, now=clock.advance(1), room_bytes=1000)

    assert collected.removed == (free,)


def test_a_pin_outlives_the_process_and_ends_with_unpin(
    store: BlobStore, reopen: Callable[[], BlobStore], clock: ManualClock
) -> None:
    name = store.put_bytes(b"a" * 900)
    store.pin(name)
    again = reopen()

    assert again.collect((), grace_s=0, now=clock.advance(1), room_bytes=900).removed == ()
    again.unpin(name)
    assert again.collect((), grace_s=0, now=clock.advance(1), room_bytes=900).removed == (name,)


def test_fresh_content_is_spared_for_the_grace_time(store: BlobStore, clock: ManualClock) -> None:
    name = store.put_bytes(b"a" * 900)

    early = store.collect(lambda _: False, grace_s=60, now=clock.advance(59), room_bytes=900)
    late = store.collect(lambda _: False, grace_s=60, now=clock.advance(1), room_bytes=900)

    assert (early.removed, late.removed) == ((), (name,))


def test_a_wall_clock_step_ends_no_grace(store: BlobStore, clock: ManualClock) -> None:
    store.put_bytes(b"a" * 900)
    clock.step_wall(20 * 365 * 86400)

    assert store.collect((), grace_s=60, now=clock.now(), room_bytes=900).removed == ()


def test_a_full_disk_is_refused_by_name(store: BlobStore) -> None:
    with store.receive() as sink:
        sink._file.close()
        sink._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - the sink closes it
        with pytest.raises(BlobQuotaExceeded, match="no room"):
            sink.write(b"x")

    assert store.used_bytes == 0


def test_folders_that_someone_removed_are_made_again(store: BlobStore) -> None:
    shutil.rmtree(store.root)

    name = store.put_bytes(b"hello")

    assert store.path(name).read_bytes() == b"hello"
