"""What is known of a policy file, signed: its hash, what it reads, where it comes from, how it did.

Owns the document, its canonical bytes and its signature. Must not know what is inside the file.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from skerry.errors import PolicyError
from skerry.identity import PrivateKey, parse_public_key, verify

MANIFEST_FORMAT = 1
MANIFEST_LIMIT_BYTES = 256 * 1024


class Lineage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a policy comes from. parent, base_packet: content hashes, empty for a first one."""

    command: str = ""  #: the command that makes it again
    seed: int = 0
    steps: int = 0  #: decisions it was trained on, its parents' not counted
    code: str = ""  #: content hash of the code that trained it
    parent: str = ""  #: file hash of the policy it was made from
    run_id: str = ""  #: the federated run and its version
    round: int = 0
    contributors: int = 0  #: replies merged in that version


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Policy against one scheduler on the same scenarios. ratio: policy's mean cost / the scheduler's."""

    devices: int
    scenarios: int
    against: str
    cost: float
    other_cost: float
    ratio: float
    low: float  #: the ratio's 95 % interval, from resampled scenarios
    high: float
    wins: float  #: share of scenarios in which the policy cost less


class EvaluationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How it did on scenarios held out from training. seed: of the scenarios."""

    seed: int = 0
    comparisons: tuple[Comparison, ...] = ()


class PolicyManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's papers. golden: its scores on the golden inputs where it was made, end to end."""

    file_hash: str  #: sha256:…
    file_bytes: int
    schema_hash: str  #: of the features it reads
    lineage: Lineage
    evaluation: EvaluationSummary
    golden: tuple[float, ...]
    created_wall_s: float = 0.0
    format: int = MANIFEST_FORMAT
    signer: str = ""  #: public key, 64 hex digits; empty: not signed
    signature: str = ""  #: 128 hex digits over everything else

    @property
    def version(self) -> str:
        """The short name: the first 12 digits of the file's hash."""
        return self.file_hash.removeprefix("sha256:")[:12]


def sign_manifest(manifest: PolicyManifest, key: PrivateKey) -> PolicyManifest:
    """Return the manifest with this key's signature, in place of any other."""
    bare = msgspec.structs.replace(manifest, signer=key.public_hex, signature="")
    return msgspec.structs.replace(bare, signature=key.sign(signed_bytes(bare)).hex())


def verify_manifest(manifest: PolicyManifest, trusted_keys: Collection[str]) -> str:
    """Return why the signature does not count; empty: it does.  trusted_keys: public keys in hex."""
    if not manifest.signature or not manifest.signer:
        return "the manifest is not signed"
    if manifest.signer not in trusted_keys:
        return f"the manifest is signed by {manifest.signer[:16]}…, which is not trusted here"
    try:
        public, signature = parse_public_key(manifest.signer), bytes.fromhex(manifest.signature)
    except ValueError:
        return "the signature is malformed"
    if not verify(public, signature, signed_bytes(manifest)):
        return "the signature does not fit: the manifest was changed after it was signed"
    return ""


def signed_bytes(manifest: PolicyManifest) -> bytes:
    """Return what a signature is over: the manifest without its signature, keys sorted."""
    bare = msgspec.structs.replace(manifest, signature="")
    return b"skerry-policy-1\n" + msgspec.json.encode(bare, order="sorted")


def encode_manifest(manifest: PolicyManifest) -> bytes:
    """Return the manifest as a file: JSON for people and programs."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2) + b"\n"


def decode_manifest(data: bytes) -> PolicyManifest:
    """Return a manifest from its file.  Raises PolicyError, saying what is wrong with it."""
    if len(data) > MANIFEST_LIMIT_BYTES:
        raise PolicyError(f"the manifest has {len(data)} bytes, {MANIFEST_LIMIT_BYTES} are allowed")
    try:
        manifest = msgspec.json.decode(data, type=PolicyManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"not a policy's manifest: {error}") from error
    if manifest.format != MANIFEST_FORMAT:
        raise PolicyError(f"the manifest has format {manifest.format}, this program knows {MANIFEST_FORMAT}")
    return manifest


def manifest_path(policy: Path) -> Path:
    """Return where a policy file's manifest lies: beside it."""
    return policy.with_suffix(".manifest.json")
