"""Settings: merged in the documented order, and refused with the place and the nearest known name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from skerry.errors import SettingsError
from skerry.settings import load_settings


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A nested table."""

    host: str = "localhost"
    port: int = 1883


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a made-up process."""

    name: str = "default"
    link: Link = Link()
    level: str | None = None


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    path = write(tmp_path / "s.toml", 'name = "file"\nlevel = "file"\n[link]\nport = 1\nhost = "file"\n')

    settings = load_settings(
        Demo,
        path=path,
        environ={"SKERRY_DEMO__LINK__PORT": "2", "SKERRY_DEMO__LINK__HOST": "env", "SKERRY_SOCKET": "x"},
        prefix="SKERRY_DEMO__",
        flags={"link.host": "flag", "name": None},
    )

    assert settings == Demo(name="file", link=Link(host="flag", port=2), level="file")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nmae = 'x'", r"unknown key nmae; did you mean name\?"),
        ("[link]\nhots = 'x'", r"link\.hots; did you mean link\.host\?"),
        ("[link]\nport = 'many'", r"link\.port"),
        ("name = [", "not valid TOML"),
        ("[mqttt]\nx=1", "unknown key mqttt"),
    ],
)
def test_a_bad_file_is_refused_with_its_path_and_the_key(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path / "bad.toml", text)

    with pytest.raises(SettingsError, match=says) as caught:
        load_settings(Demo, path=path)

    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no settings file .*absent\.toml"):
        load_settings(Demo, path=tmp_path / "absent.toml")


def test_an_unknown_key_in_the_environment_is_refused_too() -> None:
    with pytest.raises(SettingsError, match="SKERRY_DEMO__NMAE"):
        load_settings(Demo, environ={"SKERRY_DEMO__NMAE": "x"}, prefix="SKERRY_DEMO__")
