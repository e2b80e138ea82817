"""`python -m benchmarks [NAME]`: wiring only. Exit status 1: something could not be measured; 2: misuse.

A goal that is missed is no failure of the measurement: the document says so, the exit status stays 0.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.environment import environment
from benchmarks.harness import Run, perform, write
from benchmarks.registry import BENCHMARKS, loader


def _parser() -> argparse.ArgumentParser:
    known = "\n".join(f"  {name:<12}{about}" for name, (_, about) in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Skerry beside its peers on this machine.",
        epilog=f"benchmarks:\n{known}\n\nexample: python -m benchmarks spine --quick --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", default="all", choices=("all", *BENCHMARKS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="same goals at smaller sizes, under 50 s")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--trace", type=Path, help="a recorded workload, for benchmarks that replay one")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name and write its document; return the exit status."""
    given = _parser().parse_args(arguments)
    names = tuple(BENCHMARKS) if given.name == "all" else (given.name,)
    words = sys.argv[1:] if arguments is None else list(arguments)
    document = perform(
        given.name,
        {name: loader(name) for name in names},
        Run(quick=given.quick, trace=given.trace),
        command=shlex.join(["python", "-m", "benchmarks", *words]),
        environment={**environment(), "quick": given.quick},
    )
    write(document, as_json=given.json, out=sys.stdout)
    return 1 if document.failed else 0


if __name__ == "__main__":
    sys.exit(main())
