"""`skerry policy push`: a policy file and its papers to the coordinator, which judges them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from skerry.cli.connect import JsonOption
from skerry.cli.coordinator import WhereConfig, WhereToken, WhereUrl, connection
from skerry.cli.exits import Exit
from skerry.cli.following import changes
from skerry.cli.output import print_fields, print_json
from skerry.errors import PolicyError, SettingsError

if TYPE_CHECKING:
    from skerry.http import HttpConnection
    from skerry.policy_documents import PolicyVersionView

POLICIES_PATH = "/v1/policies"


def push(
    file: Annotated[Path, typer.Argument(help="The policy file; its manifest lies beside it.")],
    by: Annotated[str, typer.Option(help="Who brings it, for the record.")] = "operator",
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for its evaluation.")
    ] = 900.0,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a policy version to the coordinator, which evaluates it before any node may try it.

    Example: skerry policy push seven.onnx --config cloud/coordinator.toml
    """
    from skerry.ids import content_hash
    from skerry.policy_documents import PolicyVersionView
    from skerry.policy_manifest import decode_manifest, manifest_path

    data, papers = _read(file), _read(manifest_path(file))
    manifest = decode_manifest(papers)
    with connection(config, url, token_file) as http:
        http.request("PUT", f"/v1/blobs/{content_hash(data)}", body=data, wait_s=60.0)
        body = msgspec.json.encode({"manifest": manifest, "by": by})
        found = http.json(PolicyVersionView, "POST", POLICIES_PATH, body=body)
        found = _vetted(http, found, wait_s)
    if as_json:
        print_json(found)
    else:
        print_fields({"policy": found.version, "state": found.state, "reason": found.reason})
    if found.state == "refused":
        raise PolicyError(f"policy {found.version} is refused: {found.reason}")
    if found.state == "vetting":
        raise typer.Exit(Exit.NOT_YET)


def _vetted(http: HttpConnection, found: PolicyVersionView, wait_s: float) -> PolicyVersionView:
    path = f"{POLICIES_PATH}/{found.policy.removeprefix('sha256:')}"
    *_, last = changes(
        lambda: http.json(type(found), "GET", path),
        has_ended=lambda one: one.state != "vetting",
        within_s=wait_s,
    )
    return last


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
