"""One local training in a process of its own: `python -m federation.edge_child DIRECTORY`.

Runs with the interpreter of the training environment. Reads the instruction, the model and what the node
recorded from the directory, writes the reply there, and nothing else; it has no network and no key.
Exit status: 0 a reply is written (it may say that training failed), 2 the directory is not usable.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import msgspec

from devices.executors.kernel import die_with_parent
from federation.order import INSTRUCTION, MODEL, REPLY, UPDATE, Order
from federation.values import Scalar
from skerry.errors import SkerryError

NICENESS = 19
#: The kernel ends this process before any other when memory is short.
_OOM_SCORE = "1000"


def main(arguments: list[str] | None = None) -> int:
    """Train as the directory says; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        directory = Path(words[0]).absolute()
        order = msgspec.json.decode((directory / INSTRUCTION).read_bytes(), type=Order)
        model = (directory / MODEL).read_bytes()
    except (IndexError, OSError, msgspec.MsgspecError) as error:
        print(f"there is nothing to train from: {error}", file=sys.stderr)
        return 2
    be_humble(order.parent)
    from federation.flower.client_runner import ClientRunner

    node = order.instruction.node
    config: dict[str, Scalar] = {**order.node_config, "directory": str(directory)}
    try:
        reply, packet = ClientRunner(node, config).run(order.instruction, model)
    except SkerryError as error:
        print(error, file=sys.stderr)
        return 2
    if packet:
        _write(directory / UPDATE, packet)
    _write(directory / REPLY, msgspec.json.encode(reply))
    return 0


def be_humble(parent: int) -> None:
    """Give way to everything else on the machine, and end with the process that asked for this."""
    if parent:
        die_with_parent(parent)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")


def _write(path: Path, data: bytes) -> None:
    beside = path.with_suffix(".part")
    beside.write_bytes(data)
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
