# pyright: reportMissingImports=false
"""Training and export as a process of their own: `python -m federation.ppo train | export`.

Runs with the interpreter of the training environment; `skerry policy train` starts it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from skerry.errors import SkerryError
from skerry.identity import PrivateKey
from skerry.policy_manifest import EvaluationSummary, Lineage

NICENESS = 10


def main(argv: list[str] | None = None) -> int:
    """Run one command; a user's mistake ends with a line on standard error and status 2."""
    given = _parser().parse_args(argv)
    try:
        return int(given.run(given))
    except SkerryError as error:
        print(f"skerry policy: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; --resume goes on from the last checkpoint", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m federation.ppo", description=__doc__)
    commands = parser.add_subparsers(required=True)
    train = commands.add_parser("train")
    train.add_argument("--seed", type=int)
    train.add_argument("--steps", type=int)
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--resume", action="store_true")
    train.add_argument("--plain", action="store_true")
    train.add_argument("--scenarios", type=int, default=200)
    train.add_argument("--key", type=Path)
    train.set_defaults(run=_train)
    export = commands.add_parser("export")
    export.add_argument("source", type=Path)
    export.add_argument("--out", type=Path, required=True)
    export.add_argument("--scenarios", type=int, default=200)
    export.add_argument("--key", type=Path)
    export.set_defaults(run=_export)
    return parser


def _train(given: argparse.Namespace) -> int:
    import torch

    from federation.ppo.checkpoint import CHECKPOINT_NAME, load
    from federation.ppo.progress import Progress
    from federation.ppo.settings import PpoSettings
    from federation.ppo.train import TrainingRun, train

    torch.set_num_threads(1)
    wanted = PpoSettings(**{k: v for k in ("seed", "steps") if (v := getattr(given, k)) is not None})
    if given.resume:
        kept = load(given.out)
        _same(given, kept.settings)
        run = TrainingRun.resumed(kept)
    elif (given.out / CHECKPOINT_NAME).exists():
        raise SkerryError(f"{given.out} holds a run already: go on with --resume, or name another directory")
    else:
        run = TrainingRun(wanted)
    with Progress(is_plain=given.plain or not sys.stdout.isatty()) as progress:
        train(run, given.out, progress.show)
    _draw(given.out)
    return _write(given.out, given.out / "policy.onnx", given.scenarios, given.key)


def _same(given: argparse.Namespace, kept: object) -> None:
    for name in ("seed", "steps"):
        wanted, had = getattr(given, name), getattr(kept, name)
        if wanted is not None and wanted != had:
            raise SkerryError(f"this run has {name} {had}, not {wanted}: its rates are planned to its end")


def _draw(directory: Path) -> None:
    from federation.ppo.checkpoint import load
    from federation.ppo.plots import draw_curves

    draw_curves(load(directory), directory / "curves.png")
    print(f"curves: {directory / 'curves.png'}")


def _export(given: argparse.Namespace) -> int:
    return _write(given.source, given.out, given.scenarios, given.key)


def _write(source: Path, out: Path, scenarios: int, key_path: Path | None) -> int:
    from federation.export import export_actor, papers_of, write_policy
    from federation.ppo.checkpoint import load

    kept = load(source)
    exported = export_actor({name: array.copy() for name, array in kept.part("actor").items()})
    key = None if key_path is None else PrivateKey.load_or_create(key_path)
    lineage = Lineage(
        command=f"skerry policy train --seed {kept.settings.seed} --steps {kept.settings.steps}",
        seed=kept.settings.seed,
        steps=kept.update * kept.settings.steps_per_update,
        code=kept.code,
        parent=kept.lineage_parent,
    )
    evaluation = _evaluation(exported.data, papers_of(exported, lineage, EvaluationSummary()), scenarios)
    manifest = papers_of(exported, lineage, evaluation, key)
    write_policy(out, exported.data, manifest)
    for one in evaluation.comparisons:
        print(
            f"{one.devices} devices: {one.ratio:.3f} of {one.against}'s cost (95 %: {one.low:.3f} to"
            f" {one.high:.3f}), lower on {100 * one.wins:.0f} % of {one.scenarios} scenarios"
        )
    print(
        f"policy {manifest.version}: {out}, {len(exported.data)} bytes, {kept.cpu_s:.0f} s of processor time"
    )
    return 0


def _evaluation(data: bytes, manifest: object, scenarios: int) -> EvaluationSummary:
    from federation.evaluation import evaluate
    from policy.actor import Refused, admit
    from skerry.policy_manifest import PolicyManifest

    assert isinstance(manifest, PolicyManifest)
    if scenarios == 0:
        return EvaluationSummary()
    actor = admit(data, manifest)
    if isinstance(actor, Refused):
        raise SkerryError(f"the trained policy is refused: {actor.reason}")
    begun = time.process_time()
    found = evaluate(actor, scenarios=scenarios)
    print(
        f"evaluated on {scenarios} scenarios a size in {time.process_time() - begun:.0f} s of processor time"
    )
    return found


if __name__ == "__main__":
    os.nice(NICENESS)  # here: who calls main() keeps the priority that it has
    sys.exit(main())
