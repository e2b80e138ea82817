"""Between policies and packets of parameters: `python -m federation.policy_child base | export`.

Runs with the interpreter of the training environment, for the coordinator, which itself never opens a policy.
Prints nothing but what went wrong. Exit status: 0 done, 2 refused with a line on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from skerry.errors import PolicyError, SkerryError
from skerry.policy_manifest import EvaluationSummary, Lineage, PolicyManifest

NICENESS = 10


def main(arguments: list[str] | None = None) -> int:
    """Run one command."""
    given = _parser().parse_args(arguments)
    os.nice(NICENESS)
    try:
        given.run(given)
    except (SkerryError, OSError, msgspec.MsgspecError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m federation.policy_child", description=__doc__)
    commands = parser.add_subparsers(required=True)
    base = commands.add_parser("base", help="a policy's parameters as a packet")
    base.add_argument("policy", type=Path)
    base.add_argument("--out", type=Path, required=True)
    base.set_defaults(run=_base)
    export = commands.add_parser("export", help="a packet as a policy with its papers")
    export.add_argument("packet", type=Path)
    export.add_argument("--out", type=Path, required=True)
    export.add_argument("--lineage", required=True, help="JSON")
    export.add_argument("--scenarios", type=int, default=64)
    export.add_argument("--devices", default="8")
    export.set_defaults(run=_export)
    return parser


def _base(given: argparse.Namespace) -> None:
    from federation.export import read_actor
    from federation.wire import pack

    given.out.write_bytes(pack(read_actor(given.policy.read_bytes())))


def _export(given: argparse.Namespace) -> None:
    import numpy as np

    from federation.export import export_actor, papers_of, write_policy
    from federation.wire import unpack

    lineage = msgspec.json.decode(given.lineage, type=Lineage)
    parameters = unpack(given.packet.read_bytes())
    exported = export_actor({name: array.astype(np.float32) for name, array in parameters.items()})
    bare = papers_of(exported, lineage, EvaluationSummary())
    sizes = [int(word) for word in given.devices.split(",")]
    evaluation = _evaluate(exported.data, bare, sizes, given.scenarios)
    write_policy(given.out, exported.data, papers_of(exported, lineage, evaluation))


def _evaluate(data: bytes, bare: PolicyManifest, sizes: list[int], scenarios: int) -> EvaluationSummary:
    from federation.evaluation import evaluate
    from policy.actor import Refused, admit

    actor = admit(data, bare)
    if isinstance(actor, Refused):
        raise PolicyError(f"the exported policy is refused: {actor.reason}")
    return evaluate(actor, devices=sizes, scenarios=scenarios)


if __name__ == "__main__":
    sys.exit(main())
