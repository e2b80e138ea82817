"""Finding a service on this machine: flags, then environment, then a settings file, then the usual sockets.

Owns that order. Reads a settings file's few keys that matter here; it does not validate it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from skerry.decoding import parse_toml
from skerry.errors import ServiceUnreachable, SettingsError

SOCKET_NAME = "agent.sock"
#: Where an agent keeps its data unless told otherwise.
DATA_DIR = "/var/lib/skerry-agent"
COORDINATOR_DATA_DIR = "/var/lib/skerry-coordinator"
COORDINATOR_SOCKET_NAME = "coordinator.sock"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent is: a Unix socket, or a URL with its token. ca: PEM file for https with an own CA.

    config: the settings file that named the place, for messages.
    """

    socket: Path | None = None
    url: str | None = None
    token: str | None = None
    ca: Path | None = None
    config: Path | None = None

    def __str__(self) -> str:
        """Return what messages call it."""
        return str(self.socket) if self.socket is not None else str(self.url)


def find_agent(
    *,
    socket: Path | None = None,
    url: str | None = None,
    token: str | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Endpoint:
    """Return where the agent is. Given values win; then SKERRY_SOCKET, SKERRY_URL (with SKERRY_TOKEN); then
    `agent.toml` of the directory (default: the current one); then the first socket that exists.

    Raises SettingsError when the settings file cannot be read; ServiceUnreachable that names every place.
    """
    env = os.environ if environ is None else environ
    if socket is not None or url is not None:
        return Endpoint(socket=socket, url=url, token=token or env.get("SKERRY_TOKEN"))
    if config is not None:
        return _from_settings(config)
    if env.get("SKERRY_SOCKET"):
        return Endpoint(socket=Path(env["SKERRY_SOCKET"]))
    if env.get("SKERRY_URL"):
        return Endpoint(url=env["SKERRY_URL"], token=token or env.get("SKERRY_TOKEN"))
    here = (directory or Path.cwd()) / "agent.toml"
    if here.is_file():
        return _from_settings(here)
    places = list(_usual_places(env))
    found = next((place for place in places if _may_be_there(place)), None)
    if found is None:
        looked = ", ".join(map(str, [here, *places]))
        raise ServiceUnreachable(
            f"no agent found (looked for {looked}); start one with `skerry agent run --config …`, "
            "or say where it is with --socket, --url or --config"
        )
    return Endpoint(socket=found)


def find_coordinator(
    *,
    config: Path | None = None,
    url: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Endpoint:
    """Return where the coordinator is. Given values win; then SKERRY_COORDINATOR_URL (with
    SKERRY_COORDINATOR_TOKEN); then `coordinator.toml` of the directory (default: the current one); then the
    usual socket.

    Raises SettingsError when the settings file cannot be read; ServiceUnreachable that names every place.
    """
    env = os.environ if environ is None else environ
    url = url or (env.get("SKERRY_COORDINATOR_URL") if config is None else None)
    if url is not None:
        return Endpoint(url=url, token=token or env.get("SKERRY_COORDINATOR_TOKEN"))
    here = config or (directory or Path.cwd()) / "coordinator.toml"
    if config is not None or here.is_file():
        home = Path(read_toml(here).get("data_dir") or COORDINATOR_DATA_DIR).expanduser().absolute()
        return Endpoint(socket=home / COORDINATOR_SOCKET_NAME, config=here)
    usual = Path(COORDINATOR_DATA_DIR) / COORDINATOR_SOCKET_NAME
    if not _may_be_there(usual):
        raise ServiceUnreachable(
            f"no coordinator found (looked for {here}, {usual}); say where it is with --config or --url"
        )
    return Endpoint(socket=usual)


def _usual_places(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"]) / "skerry" / SOCKET_NAME
    yield Path("/run/skerry-agent") / SOCKET_NAME
    yield Path(DATA_DIR) / SOCKET_NAME


def _from_settings(path: Path) -> Endpoint:
    """The socket, or else the TCP address with its token, of an agent's settings file."""
    settings = read_toml(path)
    api = settings.get("api", {})
    home = Path(settings.get("data_dir") or DATA_DIR).expanduser().absolute()
    socket = str(api.get("socket") or home / SOCKET_NAME)
    if socket != "off":
        return Endpoint(socket=Path(socket).expanduser(), config=path)
    scheme = "https" if api.get("tls_certificate") else "http"
    token_file = Path(api.get("token_file") or home / "api-token").expanduser()
    return Endpoint(url=f"{scheme}://{api.get('tcp', '')}", token=read_secret(token_file), config=path)


def _may_be_there(place: Path) -> bool:
    """Whether a socket is there, or this user may not look: connecting then says what is missing."""
    try:
        return place.is_socket()
    except PermissionError:
        return True


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file's content.  Raises SettingsError that names the file."""
    try:
        return parse_toml(path.read_bytes(), str(path))
    except ValueError as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(f"the file {path} cannot be read: {error.strerror}") from error


def read_secret(path: Path) -> str:
    """Return the one line of a token file.  Raises SettingsError that names the file."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the token file {path} cannot be read: {error}") from error
