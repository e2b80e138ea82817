"""A process's key and its enrolment: whole on disk or not there, and silent about what is secret."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from skerry.errors import IdentityError
from skerry.identity import Enrolment, PrivateKey, parse_public_key, verify

ENROLMENT = Enrolment(
    fleet="demo",
    node="north-1",
    region="north",
    coordinator_url="http://127.0.0.1:8080",
    coordinator_public_key="ab" * 32,
    broker_url="mqtts://broker:8883",
    broker_username="demo/north-1",
    broker_password="hunter2",
)


def test_a_key_is_made_once_and_private_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "state" / "node.key"

    made = PrivateKey.load_or_create(path, is_kept_twice=True)
    again = PrivateKey.load_or_create(path, is_kept_twice=True)

    assert again.public_hex == made.public_hex
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(path.parent)) == ["node.key", "node.key.copy"]
    assert (path.parent / "node.key.copy").stat().st_mode & 0o777 == 0o600


def test_makers_that_race_agree_on_one_key(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    make = partial(PrivateKey.load_or_create, is_kept_twice=True)

    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: make(path).public_hex, range(32)))

    assert len(keys) == 1
    assert sorted(os.listdir(tmp_path)) == ["node.key", "node.key.copy"]


@pytest.mark.parametrize("damage", [b"", b"\x00" * 100, b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_a_damaged_key_is_named_and_left_alone(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "node.key"
    path.write_bytes(damage)
    path.chmod(0o600)

    with pytest.raises(IdentityError, match="restore it from a backup") as error:
        PrivateKey.load_or_create(path)

    assert str(path) in str(error.value)
    assert path.read_bytes() == damage


def gone(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [gone, cut_short, zeros, empty])
@pytest.mark.parametrize("name", ["node.key", "node.key.copy", "enrolment.json", "enrolment.json.copy"])
def test_whatever_becomes_of_one_file_it_is_who_it_was_and_both_are_whole_again(
    tmp_path: Path, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    key_path, enrolment_path = tmp_path / "node.key", tmp_path / "enrolment.json"
    public = PrivateKey.load_or_create(key_path, is_kept_twice=True).public_hex
    ENROLMENT.save(enrolment_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    damage(tmp_path / name)

    for _ in range(2):  # the second time nothing is amiss
        assert PrivateKey.load_or_create(key_path, is_kept_twice=True).public_hex == public
        assert Enrolment.load(enrolment_path) == ENROLMENT
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert caplog.text.count("its copy takes its place") == (not name.endswith(".copy"))


def test_a_key_that_is_gone_is_not_made_anew_over_a_damaged_copy(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    PrivateKey.load_or_create(path, is_kept_twice=True)
    gone(path)
    zeros(tmp_path / "node.key.copy")

    with pytest.raises(IdentityError, match="damaged"):
        PrivateKey.load_or_create(path, is_kept_twice=True)
    assert not path.exists()


def test_a_user_s_own_key_gets_no_copy_beside_it(tmp_path: Path) -> None:
    PrivateKey.load_or_create(tmp_path / "signing.pem")

    assert [path.name for path in tmp_path.iterdir()] == ["signing.pem"]


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    PrivateKey.load_or_create(path)
    path.chmod(0o644)

    with pytest.raises(IdentityError, match="chmod 600"):
        PrivateKey.load_or_create(path)


def test_a_directory_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()

    with pytest.raises(IdentityError, match="cannot be"):
        PrivateKey.load_or_create(in_the_way / "node.key")


def test_a_signature_is_its_holders_over_these_bytes() -> None:
    key, other = PrivateKey.generate(), PrivateKey.generate()
    public = bytes.fromhex(key.public_hex)
    signature = key.sign(b"data")

    assert verify(public, signature, b"data")
    assert not verify(public, signature, b"date")
    assert not verify(bytes.fromhex(other.public_hex), signature, b"data")
    assert not verify(public, signature[:-1], b"data")
    assert not verify(b"short", signature, b"data")


def test_a_private_key_neither_shows_itself_nor_travels(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    key = PrivateKey.load_or_create(path)

    assert repr(key) == f"PrivateKey(public={key.public_hex})"
    with pytest.raises(TypeError):
        pickle.dumps(key)


@pytest.mark.parametrize("text", ["", "zz" * 32, "ab" * 31, "ab" * 33])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(IdentityError, match="64 hex digits"):
        parse_public_key(text)


def test_an_enrolment_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "enrolment.json"

    ENROLMENT.save(path)
    msgspec.structs.replace(ENROLMENT, site="pier").save(path)

    assert Enrolment.load(path) == msgspec.structs.replace(ENROLMENT, site="pier")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["enrolment.json", "enrolment.json.copy"]


def test_no_enrolment_is_none_and_a_damaged_one_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "enrolment.json"
    assert Enrolment.load(path) is None

    path.write_text('{"fleet": "demo"')
    with pytest.raises(IdentityError, match="skerry enrol"):
        Enrolment.load(path)


def test_an_enrolment_does_not_show_its_password() -> None:
    assert "hunter2" not in repr(ENROLMENT)
    assert "hunter2" not in f"{ENROLMENT}"
    assert "demo/north-1" in repr(ENROLMENT)
