# pyright: reportMissingImports=false
"""An actor's parameters as one ONNX file, checked against the plain form, with its papers.

Needs the onnx package to write, numpy and onnxruntime to check; knows no torch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from federation.ppo.architecture import (
    ACTOR_SHAPES,
    FINE_COLUMNS,
    FINE_SCALE,
    PRIOR_COLUMN,
    PRIOR_UNIT,
    Parameters,
    faults_of,
    scores,
)
from policy.actor import OUTPUT, SCHEMA_KEY, Refused, open_session, run_session
from policy.features import SCHEMA_HASH, C, F
from policy.golden import golden_inputs
from skerry.durable import write_whole
from skerry.errors import PolicyError
from skerry.identity import PrivateKey
from skerry.ids import content_hash
from skerry.policy_manifest import (
    EvaluationSummary,
    Lineage,
    PolicyManifest,
    encode_manifest,
    manifest_path,
    sign_manifest,
)

OPSET = 17
IR_VERSION = 8
#: The largest difference to the plain form that a file may show.
TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A checked file. golden: its scores on the golden inputs.  difference: the largest to the plain form."""

    data: bytes
    golden: tuple[float, ...]
    difference: float


def export_actor(actor: Parameters) -> Exported:
    """Return the actor as ONNX.  Raises PolicyError when it is no actor, or the file scores otherwise."""
    if faults := faults_of(actor):
        raise PolicyError(f"these parameters are not an actor: {'; '.join(faults)}")
    data = _model(actor).SerializeToString(deterministic=True)
    session = open_session(data)
    if isinstance(session, Refused):
        raise PolicyError(f"the exported file does not load: {session.reason}")
    golden: list[float] = []
    difference = 0.0
    for rows, context in golden_inputs():
        found = run_session(session, rows[None], np.ones((1, len(rows)), dtype=bool), context[None])[0]
        plain = scores(actor, rows, context)
        difference = max(difference, float(np.abs(found - plain).max()))
        if found.argmax() != plain.argmax():
            raise PolicyError("the exported file chooses otherwise than the parameters")
        golden += found.tolist()
    if not difference <= TOLERANCE * max(1.0, float(np.abs(golden).max())):
        raise PolicyError(f"the exported file's scores are {difference:.2g} off")
    return Exported(data=data, golden=tuple(golden), difference=difference)


def read_actor(data: bytes) -> Parameters:
    """Return the parameters of a file that export_actor wrote.  Raises PolicyError for any other."""
    from policy.onnx_file import MalformedOnnx, read_onnx

    try:
        held = read_onnx(data).weights
    except MalformedOnnx as error:
        raise PolicyError(str(error)) from error
    found: Parameters = {}
    for name, shape in ACTOR_SHAPES.items():
        flat = held.get(name)
        if flat is None or flat.size != int(np.prod(shape)):
            raise PolicyError(f"the file was not written by this program: it has no {name} of shape {shape}")
        turned = flat.reshape(shape[::-1]).T if len(shape) == 2 else flat
        found[name] = np.ascontiguousarray(turned, dtype=np.float32)
    return found


def papers_of(
    exported: Exported, lineage: Lineage, evaluation: EvaluationSummary, key: PrivateKey | None = None
) -> PolicyManifest:
    """Return the file's manifest, signed when there is a key."""
    manifest = PolicyManifest(
        file_hash=content_hash(exported.data),
        file_bytes=len(exported.data),
        schema_hash=SCHEMA_HASH,
        lineage=lineage,
        evaluation=evaluation,
        golden=exported.golden,
        created_wall_s=float(int(time.time())),
    )
    return manifest if key is None else sign_manifest(manifest, key)


def write_policy(path: Path, data: bytes, manifest: PolicyManifest) -> None:
    """Write the file and its manifest beside it, each whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, mode=0o644)
    write_whole(manifest_path(path), encode_manifest(manifest), mode=0o644)


def _model(actor: Parameters) -> Any:
    from onnx import TensorProto, helper

    number, truth = TensorProto.FLOAT, TensorProto.BOOL
    graph = helper.make_graph(
        _nodes(helper),
        "skerry-actor",
        [
            helper.make_tensor_value_info("rows", number, ["nodes", "candidates", F]),
            helper.make_tensor_value_info("mask", truth, ["nodes", "candidates"]),
            helper.make_tensor_value_info("context", number, ["nodes", C]),
        ],
        [helper.make_tensor_value_info(OUTPUT, number, ["nodes", "candidates"])],
        _initializers(actor),
    )
    model = helper.make_model(
        graph, producer_name="skerry", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    helper.set_model_props(model, {SCHEMA_KEY: SCHEMA_HASH})
    return model


def _initializers(actor: Parameters) -> list[Any]:
    from onnx import numpy_helper

    # Matrices lie transposed, so that the graph multiplies without turning them first.
    weights = {
        name: np.ascontiguousarray(actor[name].T if actor[name].ndim == 2 else actor[name])
        for name in ACTOR_SHAPES
    }
    constants = {
        "one": np.ones((1,), dtype=np.float32),
        "axis1": np.array([1], dtype=np.int64),
        "axis2": np.array([2], dtype=np.int64),
        "fine_columns": np.array(FINE_COLUMNS, dtype=np.int64),
        "fine_scale": np.array([FINE_SCALE], dtype=np.float32),
        "prior_unit": np.array([PRIOR_UNIT], dtype=np.float32),
        "prior_column": np.array(PRIOR_COLUMN, dtype=np.int64),
    }
    return [numpy_helper.from_array(array, name) for name, array in {**weights, **constants}.items()]


def _nodes(helper: Any) -> list[Any]:
    def layer(source: str, name: str, out: str) -> list[Any]:
        return [
            helper.make_node("MatMul", [source, f"{name}.weight"], [f"{out}.product"]),
            helper.make_node("Add", [f"{out}.product", f"{name}.bias"], [f"{out}.sum"]),
            helper.make_node("Relu", [f"{out}.sum"], [out]),
        ]

    node = helper.make_node
    return [
        node("Gather", ["rows", "fine_columns"], ["costs"], axis=2),
        node("Mul", ["costs", "fine_scale"], ["costs_large"]),
        node("Tanh", ["costs_large"], ["fine"]),
        node("Concat", ["rows", "fine"], ["inputs"], axis=2),
        *layer("inputs", "row1", "hidden1"),
        *layer("hidden1", "row2", "hidden2"),
        node("Cast", ["mask"], ["share"], to=1),
        node("Unsqueeze", ["share", "axis2"], ["weight"]),
        node("Mul", ["hidden2", "weight"], ["kept"]),
        node("ReduceSum", ["kept", "axis1"], ["total"], keepdims=0),
        node("ReduceSum", ["weight", "axis1"], ["count"], keepdims=0),
        node("Max", ["count", "one"], ["divisor"]),
        node("Div", ["total", "divisor"], ["mean"]),
        node("Concat", ["mean", "context"], ["seen"], axis=1),
        *layer("seen", "node", "node"),
        node("MatMul", ["node", "mix_node.weight"], ["from_node"]),
        node("Unsqueeze", ["from_node", "axis1"], ["from_node_rows"]),
        node("MatMul", ["hidden2", "mix_row.weight"], ["from_row"]),
        node("Add", ["from_row", "mix.bias"], ["from_row_biased"]),
        node("Add", ["from_row_biased", "from_node_rows"], ["mixed"]),
        node("Relu", ["mixed"], ["mixed_on"]),
        node("MatMul", ["mixed_on", "score.weight"], ["learned_column"]),
        node("Squeeze", ["learned_column", "axis2"], ["learned"]),
        node("Gather", ["rows", "prior_column"], ["regret"], axis=2),
        node("Mul", ["regret", "prior"], ["rule_units"]),
        node("Mul", ["rule_units", "prior_unit"], ["rule"]),
        node("Sub", ["learned", "rule"], [OUTPUT]),
    ]
