"""`skerry policy sign`: vouch for a policy file with a key of one's own. Owns the command only."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from skerry.errors import SettingsError


def sign(
    key: Annotated[Path, typer.Option(help="The signer's private key; made when there is none.")],
    out: Annotated[Path, typer.Option(help="The signed copy; its manifest is written beside it.")],
    file: Annotated[Path | None, typer.Argument(help="The policy file; default: the shipped one.")] = None,
) -> None:
    """Copy a policy and sign its papers, so that a coordinator which knows the signer takes it.

    Example: skerry policy sign --key signing.pem --out shipped.onnx
    """
    from policy.shipped import SHIPPED_FILE
    from skerry.durable import write_whole
    from skerry.identity import PrivateKey
    from skerry.policy_manifest import decode_manifest, encode_manifest, manifest_path, sign_manifest

    source = SHIPPED_FILE if file is None else file
    try:
        papers = decode_manifest(manifest_path(source).read_bytes())
        signed = sign_manifest(papers, PrivateKey.load_or_create(key))
        if out.resolve() != source.resolve():
            shutil.copyfile(source, out)
        write_whole(manifest_path(out), encode_manifest(signed))
    except OSError as error:
        raise SettingsError(f"{error.filename or source}: {error.strerror}") from error
    typer.echo(f"{out} is signed by {signed.signer}; name this key in [policies] signers of the coordinator")
