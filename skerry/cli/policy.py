"""`skerry policy`: make a policy, judge it, read its papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skerry.cli.connect import JsonOption
from skerry.cli.root import Group
from skerry.errors import PolicyError, SettingsError

if TYPE_CHECKING:
    from policy.actor import Actor
    from skerry.policy_manifest import EvaluationSummary, PolicyManifest

app = typer.Typer(
    cls=Group, help="Train a scheduling policy, judge it, read its papers.", no_args_is_help=True
)

FileArgument = Annotated[
    Path | None, typer.Argument(help="A policy file; its manifest lies beside it. Default: the shipped one.")
]
KeyOption = Annotated[
    Path | None, typer.Option(help="Sign with the ed25519 key in this file (made when it is missing).")
]
ScenariosOption = Annotated[int, typer.Option(min=0, help="Held-out scenarios a size for the judgement.")]


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Directory for checkpoints, curves and the policy.")],
    seed: Annotated[int | None, typer.Option(min=0, help="What everything is drawn from.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Decisions to learn from.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the directory's checkpoint.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a bar.")] = False,
    scenarios: ScenariosOption = 200,
    key: KeyOption = None,
) -> None:
    """Train a policy from a seed, with a checkpoint every few updates; the same seed makes the same policy.

    Example: skerry policy train --seed 7 --out runs/seven
    """
    from skerry.cli.training import become_trainer

    words = ["train", "--out", str(out), "--scenarios", str(scenarios)]
    words += [] if seed is None else ["--seed", str(seed)]
    words += [] if steps is None else ["--steps", str(steps)]
    words += ["--resume"] * resume + ["--plain"] * plain
    become_trainer(words + ([] if key is None else ["--key", str(key)]))


@app.command()
def export(
    source: Annotated[Path, typer.Argument(help="A training run's directory, or its checkpoint.")],
    out: Annotated[Path, typer.Option(help="The ONNX file; its manifest is written beside it.")],
    scenarios: ScenariosOption = 200,
    key: KeyOption = None,
) -> None:
    """Write a run's policy as one ONNX file with its manifest, judged and, with --key, signed.

    Example: skerry policy export runs/seven --out seven.onnx --key signing.pem
    """
    from skerry.cli.training import become_trainer

    words = ["export", str(source), "--out", str(out), "--scenarios", str(scenarios)]
    become_trainer(words + ([] if key is None else ["--key", str(key)]))


@app.command()
def evaluate(
    file: FileArgument = None,
    devices: Annotated[str, typer.Option(help="Sizes of site, with commas.")] = "8,16,32",
    scenarios: Annotated[int, typer.Option(min=2, help="Scenarios of each size, the same for all.")] = 200,
    as_json: JsonOption = False,
) -> None:
    """Judge a policy: its cost beside the traditional schedulers', scenario by scenario. No torch is needed.

    Example: skerry policy evaluate seven.onnx --devices 8,16 --scenarios 200
    """
    from federation.evaluation import evaluate as judge
    from skerry.cli.output import print_json

    actor = _admitted(file)
    sizes = _sizes(devices)
    found = judge(actor, devices=sizes, scenarios=scenarios, say=lambda words: typer.echo(words, err=True))
    if as_json:
        print_json({"policy": actor.manifest.version, "evaluation": found})
        return
    _print_evaluation(found)


@app.command()
def show(file: FileArgument = None, as_json: JsonOption = False) -> None:
    """Say in words where a policy comes from, who signed it and how it did.

    Example: skerry policy show seven.onnx
    """
    from skerry.cli.output import print_json

    path = _path(file)
    manifest = _manifest(path)
    if as_json:
        print_json(manifest)
        return
    _print_manifest(path, manifest)


def _path(file: Path | None) -> Path:
    from policy.shipped import SHIPPED_FILE

    return SHIPPED_FILE if file is None else file


def _manifest(path: Path) -> PolicyManifest:
    from skerry.policy_manifest import decode_manifest, manifest_path

    where = manifest_path(path)
    try:
        return decode_manifest(where.read_bytes())
    except FileNotFoundError as error:
        raise SettingsError(f"there is no manifest {where}") from error
    except OSError as error:
        raise SettingsError(f"{where} cannot be read: {error.strerror}") from error


def _admitted(file: Path | None) -> Actor:
    """Return the policy after every check but the signature: whoever judges a policy need not trust it."""
    from policy.actor import Refused, load_actor

    path = _path(file)
    manifest = _manifest(path)
    actor = load_actor(path, manifest, pinned=(manifest.file_hash,))
    if isinstance(actor, Refused):
        raise PolicyError(f"{path} is refused ({actor.code}): {actor.reason}")
    return actor


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or not all(2 <= size <= 256 for size in sizes):
        raise SettingsError(f"--devices takes numbers from 2 to 256 with commas, not {text[:40]!r}")
    return sizes


def _print_evaluation(found: EvaluationSummary) -> None:
    from skerry.cli.output import print_table

    columns = ("devices", "against", "cost", "its cost", "ratio", "95 % interval", "lower on")
    rows = [
        (
            one.devices,
            one.against,
            f"{one.cost:.4f}",
            f"{one.other_cost:.4f}",
            f"{one.ratio:.3f}",
            f"{one.low:.3f} to {one.high:.3f}",
            f"{100 * one.wins:.0f} % of {one.scenarios}",
        )
        for one in found.comparisons
    ]
    print_table(columns, rows, empty="it was not evaluated")


def _print_manifest(path: Path, manifest: PolicyManifest) -> None:
    from policy.features import SCHEMA_HASH
    from policy.shipped import SHIPPED_HASHES
    from skerry.cli.output import print_fields, size, wall
    from skerry.policy_manifest import verify_manifest

    if manifest.file_hash in SHIPPED_HASHES:
        signed = "shipped with this version of Skerry, known by its hash"
    elif not manifest.signature:
        signed = "not signed: no agent takes it"
    else:
        against = verify_manifest(manifest, (manifest.signer,))
        signed = against or f"signed by {manifest.signer}; a coordinator takes it if it trusts that key"
    lineage = manifest.lineage
    whose = "this program's" if manifest.schema_hash == SCHEMA_HASH else "another version's"
    print_fields(
        {
            "policy": f"{manifest.version}  {path}",
            "size": size(manifest.file_bytes),
            "made": wall(manifest.created_wall_s),
            "signature": signed,
            "features": f"{manifest.schema_hash[:12]}, {whose}",
            "command": lineage.command,
            "decisions": f"{lineage.steps:,}" if lineage.steps else "",
            "parent": lineage.parent,
            "round": f"version {lineage.round} of {lineage.run_id}" if lineage.run_id else "",
            "contributors": lineage.contributors or "",
        }
    )
    typer.echo("")
    _print_evaluation(manifest.evaluation)
