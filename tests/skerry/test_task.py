"""The border: a task document is taken whole or refused with the field at fault."""

from __future__ import annotations

import json

import pytest

from skerry.errors import SpecError
from skerry.task import DOCUMENT_LIMIT_BYTES, CommandSpec, OnnxSpec, blobs_of, convert_task, parse_task

HASH = "sha256:" + "a" * 64
COMMAND = {"executor": "command", "argv": ["true"]}


def document(**fields: object) -> bytes:
    return json.dumps({"spec": COMMAND, **fields}).encode()


def test_a_minimal_command_gets_the_documented_defaults() -> None:
    task = parse_task(document())

    assert isinstance(task.spec, CommandSpec)
    assert (task.priority, task.retries, task.effect) == (4, 2, "idempotent")


def test_a_model_and_its_large_inputs_are_the_content_a_node_must_hold() -> None:
    inputs = {"x": {"dtype": "float32", "shape": [1], "blob": HASH}}
    task = parse_task(json.dumps({"spec": {"executor": "onnx", "model": HASH, "inputs": inputs}}).encode())

    assert isinstance(task.spec, OnnxSpec)
    assert blobs_of(task) == (HASH, HASH)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"{}", "spec"),
        (document(priority=12), "priority"),
        (document(nonsense=1), "nonsense"),
        (document(resources={"memory_bytes": -1}), "resources.memory_bytes"),
        (document(constraints={"regions": ["North Sea"]}), "North Sea"),
        (document(data={"labels": ["pii"]}), "home_region"),
        (document(max_runtime_s=0), "max_runtime_s"),
        (json.dumps({"spec": {"executor": "docker", "image": "x"}}).encode(), "command, onnx"),
        (json.dumps({"spec": {"executor": "command", "argv": []}}).encode(), "argv"),
        (json.dumps({"spec": {"executor": "onnx", "model": "yolo", "inputs": {}}}).encode(), "yolo"),
        (b" " * (DOCUMENT_LIMIT_BYTES + 1), "content store"),
        (b"null", "the task: Expected"),
        (b'{"spec": {"argv": ' + b"[" * 50_000, "nested too deeply"),
        (b'{"spec": {"inputs": ' + b'{"a":' * 20_000, "nested too deeply"),
        (document(resources={"accelerator": "qpu"}), "known here: none, any, gpu, npu, tpu"),
        (document(data={"size_bytes": 10**30}), "data.size_bytes"),
        (document(spec={**COMMAND, "argv": ["a", "b\0"]}), r"spec\.argv\[1\]"),
        (document(spec={**COMMAND, "argv": [""]}), r"spec\.argv\[0\]"),
        (document(spec={**COMMAND, "env": {"A=B": "x"}}), "'A=B'"),
        (document(spec={**COMMAND, "env": {"A": "\0"}}), "'A'"),
    ],
)
def test_a_bad_document_is_refused_with_what_is_wrong(body: bytes, names: str) -> None:
    with pytest.raises(SpecError, match=names):
        parse_task(body)


def test_an_input_is_inline_or_by_hash_but_never_both_or_neither() -> None:
    for tensor in ({"dtype": "float32"}, {"dtype": "float32", "base64": "", "blob": HASH}):
        with pytest.raises(SpecError, match="exactly one"):
            convert_task({"spec": {"executor": "onnx", "model": HASH, "inputs": {"x": tensor}}})


def test_an_oversized_inline_input_is_sent_to_the_content_store() -> None:
    tensor = {"dtype": "uint8", "shape": [40000], "base64": "A" * 60000}

    with pytest.raises(SpecError, match="content store"):
        convert_task({"spec": {"executor": "onnx", "model": HASH, "inputs": {"x": tensor}}})


def test_a_shape_that_no_machine_can_count_is_refused() -> None:
    tensor = {"dtype": "uint8", "shape": [10**30], "base64": "AA=="}

    with pytest.raises(SpecError, match="shape"):
        convert_task({"spec": {"executor": "onnx", "model": HASH, "inputs": {"x": tensor}}})
