"""`skerry policy sign`: a signed copy whose signature holds, and mistakes by name."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from skerry.cli import app
from skerry.identity import PrivateKey
from skerry.policy_manifest import decode_manifest, manifest_path, verify_manifest


def sign(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["policy", "sign", *words])
    return result.exit_code, result.output


def test_the_shipped_policy_can_be_signed_with_a_key_of_ones_own(tmp_path: Path) -> None:
    key, out = tmp_path / "signing.pem", tmp_path / "copy.onnx"

    status, said = sign("--key", str(key), "--out", str(out))

    signer = PrivateKey.load_or_create(key).public_hex
    papers = decode_manifest(manifest_path(out).read_bytes())
    assert status == 0, said
    assert signer in said
    assert verify_manifest(papers, [signer]) == ""
    assert out.stat().st_size > 0


def test_a_file_without_papers_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "absent.onnx"

    status, said = sign(str(absent), "--key", str(tmp_path / "k.pem"), "--out", str(tmp_path / "o.onnx"))

    assert status == 2
    assert "absent" in said
