"""The learned policy as a scheduler: an ONNX file that scores candidates, admitted only after every check.

Owns admission and the single choice. Must not know who signs, when it may decide (the gate's matter) or how
it was trained. onnxruntime is imported when a policy is loaded, not before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from policy.device_plan import DevicePlan, plan_devices
from policy.features import SCHEMA_HASH, C, F, features, features_of
from policy.golden import golden_inputs
from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights
from policy.onnx_file import MalformedOnnx, OnnxFile, read_onnx
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from policy.shipped import SHIPPED_HASHES
from skerry.errors import PolicyError
from skerry.ids import content_hash
from skerry.policy_manifest import PolicyManifest, decode_manifest, manifest_path, verify_manifest
from skerry.task import TaskSpec

if TYPE_CHECKING:
    from policy.situation import Picks, Plan, Situation

Float32s = NDArray[np.float32]

FILE_LIMIT_BYTES = 4 * 1024 * 1024
#: Under which name the file's metadata keeps the hash of the features it reads.
SCHEMA_KEY = "skerry.schema_hash"
INPUTS: dict[str, list[str | int]] = {
    "rows": ["nodes", "candidates", F],
    "mask": ["nodes", "candidates"],
    "context": ["nodes", C],
}
OUTPUT = "scores"
#: What a scorer is made of. No loops, no branches, nothing that reads or draws: it ends, and repeats itself.
OPERATORS = frozenset(
    {
        "Add", "Cast", "Clip", "Concat", "Constant", "Div", "Elu", "Expand", "Gather", "Gemm", "Identity",
        "LayerNormalization", "LeakyRelu", "MatMul", "Max", "Mean", "Min", "Mul", "Neg", "ReduceMax",
        "ReduceMean", "ReduceSum", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub",
        "Tanh", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
#: How far a score may be from the one noted where the file was made: processors round differently.
GOLDEN_TOLERANCE = 1e-3
SLOWEST_S = 0.005
_TRIES = 25


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that is not used. code: what it is counted under.  reason: a sentence for people."""

    code: str
    reason: str


class Actor:
    """A policy that passed every check. A Scheduler, for one node and (choose_many) for many at once."""

    queue_rule = QueueRule.WSPT

    def __init__(
        self, session: Any, manifest: PolicyManifest, weights: ObjectiveWeights = DEFAULT_WEIGHTS
    ) -> None:
        """Use load_actor, which checks what is given here."""
        self._session, self.manifest, self.weights = session, manifest, weights

    @property
    def name(self) -> str:
        """`policy:` and the short version."""
        return f"policy:{self.manifest.version}"

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the highest score; ties by device id.  Raises PolicyError when a score is no number."""
        plans = plan_devices(task, devices, runtime_s, self.weights)
        rows, context = features_of(task, devices, runtime_s, self.weights, plans)
        scores = self.score(rows, context)
        order = sorted(range(len(devices)), key=lambda i: (-scores[i], devices[i].device.device_id))
        best = scores[order[0]]
        return Choice(
            index=order[0],
            reason=_reason(devices, plans, scores, order),
            scores=tuple(100.0 * math.exp(one - best) for one in scores),
            expected_s=tuple(plan.finish_s for plan in plans),
        )

    def score(self, rows: Float32s, context: Float32s) -> list[float]:
        """Return one score per row of one decision.  Raises PolicyError when one is no number."""
        mask = np.ones((1, len(rows)), dtype=bool)
        found: list[float] = run_session(self._session, rows[None], mask, context[None])[0].tolist()
        if not all(map(math.isfinite, found)):
            raise PolicyError(f"{self.name} gave a score that is not a number")
        return found

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once.  Raises PolicyError when a score is no number."""
        from policy.situation import Picks

        rows, context = features(situation, planned, self.weights)
        found = run_session(self._session, rows, situation.mask, context)
        if not np.isfinite(found[situation.mask]).all():
            raise PolicyError(f"{self.name} gave a score that is not a number")
        return Picks(device=np.where(situation.mask, found, -np.inf).argmax(axis=1))


def load_actor(
    path: Path,
    manifest: PolicyManifest | Path | None = None,
    *,
    trusted_keys: Collection[str] = (),
    pinned: Collection[str] = SHIPPED_HASHES,
    weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    slowest_s: float = SLOWEST_S,
) -> Actor | Refused:
    """Admit a policy file or say why not. Nothing it holds can raise or hang here.

    manifest: its papers, or where they are; None: beside the file.  pinned: file hashes trusted without a
    signature, by default the shipped policy's.  slowest_s: what 30 candidates may take at most, at its best.
    """
    papers = _papers(path, manifest)
    if isinstance(papers, Refused):
        return papers
    if papers.file_hash not in pinned and (against := verify_manifest(papers, trusted_keys)):
        return Refused(code="signature", reason=against)
    data = _bytes_of(path)
    if isinstance(data, Refused):
        return data
    return admit(data, papers, weights=weights, slowest_s=slowest_s)


def admit(
    data: bytes,
    manifest: PolicyManifest,
    *,
    weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    slowest_s: float = SLOWEST_S,
) -> Actor | Refused:
    """Check the file's bytes against papers that are already trusted, and try the policy out."""
    if against := _against_bytes(data, manifest):
        return against
    session = open_session(data)
    if isinstance(session, Refused):
        return session
    return _tried(Actor(session, manifest, weights), slowest_s)


def _papers(path: Path, manifest: PolicyManifest | Path | None) -> PolicyManifest | Refused:
    if isinstance(manifest, PolicyManifest):
        return manifest
    where = manifest_path(path) if manifest is None else manifest
    try:
        return decode_manifest(where.read_bytes())
    except FileNotFoundError:
        return Refused(code="manifest", reason=f"there is no manifest {where}: the policy is not signed")
    except OSError as error:
        return Refused(code="manifest", reason=f"{where} cannot be read: {error.strerror}")
    except PolicyError as error:
        return Refused(code="manifest", reason=f"{where}: {error}")


def _bytes_of(path: Path) -> bytes | Refused:
    try:
        with path.open("rb") as file:
            return file.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        return Refused(code="file", reason=f"{path} cannot be read: {error.strerror}")


def _against_bytes(data: bytes, manifest: PolicyManifest) -> Refused | None:
    if len(data) > FILE_LIMIT_BYTES:
        return Refused(code="size", reason=f"the file is larger than {FILE_LIMIT_BYTES} bytes")
    if content_hash(data) != manifest.file_hash:
        return Refused(code="hash", reason="the file is not the one that the manifest describes")
    if manifest.schema_hash != SCHEMA_HASH:
        return Refused(code="schema", reason=_schema_words(manifest.schema_hash))
    try:
        held = read_onnx(data)
    except MalformedOnnx as error:
        return Refused(code="format", reason=str(error))
    return _against_content(held)


def _against_content(held: OnnxFile) -> Refused | None:
    if (inside := held.metadata.get(SCHEMA_KEY, "")) != SCHEMA_HASH:
        return Refused(code="schema", reason=_schema_words(inside))
    if held.has_external_data:
        return Refused(code="format", reason="its weights lie in another file")
    odd = sorted(held.operators - OPERATORS)
    if odd or held.has_subgraphs:
        return Refused(
            code="operators", reason=f"it uses what a scorer may not: {', '.join(odd) or 'a branch'}"
        )
    for name, weights in held.weights.items():
        if not np.isfinite(weights).all():
            return Refused(code="weights", reason=f"weights {name[:60]} are not all numbers")
    return None


def _schema_words(found: str) -> str:
    return f"it reads features {found[:12] or 'unknown'}, this program has {SCHEMA_HASH[:12]}"


def open_session(data: bytes) -> Any:
    """Return onnxruntime's session for these bytes on one thread, or Refused when it is no scorer."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own classes share no other base
        return Refused(code="format", reason=f"the runtime does not take it: {_first_line(error)}")
    shapes = {one.name: one.shape for one in session.get_inputs()}
    if {name: len(shape) for name, shape in shapes.items()} != {name: len(s) for name, s in INPUTS.items()}:
        return Refused(code="shape", reason=f"its inputs are {_words(shapes)}, not {_words(INPUTS)}")
    if any(shapes[name][-1] != shape[-1] for name, shape in INPUTS.items() if isinstance(shape[-1], int)):
        return Refused(code="shape", reason=f"its inputs are {_words(shapes)}, not {_words(INPUTS)}")
    if [one.name for one in session.get_outputs()] != [OUTPUT]:
        return Refused(code="shape", reason=f"its output is not {OUTPUT}")
    return session


def _tried(actor: Actor, slowest_s: float) -> Actor | Refused:
    """Decide whether it repeats the golden scores, fast enough."""
    try:
        found = [score for rows, context in golden_inputs() for score in actor.score(rows, context)]
    except PolicyError as error:
        return Refused(code="scores", reason=str(error))
    except Exception as error:  # whatever the runtime raises while it runs the graph
        return Refused(code="shape", reason=f"it does not run on a decision: {_first_line(error)}")
    expected = actor.manifest.golden
    if len(found) != len(expected) or not np.allclose(
        found, expected, rtol=GOLDEN_TOLERANCE, atol=GOLDEN_TOLERANCE
    ):
        return Refused(code="golden", reason="it scores the golden inputs otherwise than where it was made")
    took = quickest_s(actor)
    if took > slowest_s:
        return Refused(
            code="slow", reason=f"30 candidates take {1e3 * took:.1f} ms, {1e3 * slowest_s:.1f} are allowed"
        )
    return actor


def quickest_s(actor: Actor) -> float:
    """Return the shortest of some tries on 30 candidates: what the neighbours' load leaves out of account."""
    rows, context = golden_inputs()[-1]
    shortest = math.inf
    for _ in range(_TRIES):
        begun = time.perf_counter()
        actor.score(rows, context)
        shortest = min(shortest, time.perf_counter() - begun)
    return shortest


def run_session(session: Any, rows: Float32s, mask: NDArray[np.bool_], context: Float32s) -> Float32s:
    """Return scores [nodes, candidates]; those outside the mask mean nothing.  Raises PolicyError."""
    given = {"rows": rows, "mask": mask, "context": context}
    found: Float32s = session.run([OUTPUT], given)[0]
    if found.shape != mask.shape:
        raise PolicyError(f"the policy gave scores of shape {found.shape} for {mask.shape} candidates")
    return found


def _reason(
    devices: Sequence[DeviceView], plans: Sequence[DevicePlan], scores: Sequence[float], order: Sequence[int]
) -> str:
    best = order[0]
    first = devices[best].device
    words = (
        f"{first.device_class} {first.device_id}: score {scores[best]:.2f}, cost +{plans[best].increase:.4f}"
    )
    if len(order) == 1:
        return f"{words}; the only device allowed"
    rule = min(order, key=lambda i: (plans[i].increase, devices[i].device.device_id))
    if rule == best:
        return f"{words}; min-increase agrees"
    other = devices[rule].device
    named = f"{other.device_class} {other.device_id}"
    return f"{words}; min-increase would take {named}, cost +{plans[rule].increase:.4f}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _words(shapes: Any) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items())
