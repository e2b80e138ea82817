"""The onnx executor: real models with known answers, wrong inputs, broken files, large outputs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import os
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devices.executors.process import ProcessExecutor
from devices.models import (
    decode_output,
    label_of,
    locate_builtin_models,
    magika_inputs,
    tone_of,
    tone_task_inputs,
)
from devices.port import Report
from devices.testing import a_model
from skerry.task import OnnxSpec, Tensor

if TYPE_CHECKING:
    from conftest import Bench

PDF = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\nxref\n0 1\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n"


def floats(*values: float, shape: tuple[int, ...] | None = None) -> Tensor:
    data = base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
    return Tensor(dtype="float32", shape=(len(values),) if shape is None else shape, base64=data)


def size(count: int) -> dict[str, Tensor]:
    return {
        "size": Tensor(dtype="int64", shape=(1,), base64=base64.b64encode(struct.pack("<q", count)).decode())
    }


def ask(bench: Bench, executor: ProcessExecutor, job: Any) -> Report:
    """Run one job to its end in a loop of its own."""
    reports: list[Report] = []

    async def scenario(executor: ProcessExecutor) -> None:
        reports.append(await executor.run(job))

    bench.play(scenario, executor)
    return reports[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "divide.onnx"
    path.write_bytes(a_model("divide"))
    return path


@pytest.fixture
def fill(tmp_path: Path) -> Path:
    path = tmp_path / "fill.onnx"
    path.write_bytes(a_model("fill"))
    return path


@pytest.mark.parametrize("board", [None, "coral-usb", "rk3588-npu"])
def test_swift_f0_hears_the_tone_it_is_given(bench: Bench, board: str | None) -> None:
    model = locate_builtin_models()["swift-f0"]

    async def scenario(executor: ProcessExecutor) -> None:
        for number, hz in enumerate((220.0, 440.0, 97.5), start=1):
            report = await executor.run(bench.onnx(model, tone_task_inputs(hz), number=number))
            assert report.status == "succeeded", report.error
            assert tone_of(report.result) == pytest.approx(hz, abs=2)

    bench.play(scenario, bench.executor("onnx", board=board))


def test_magika_knows_a_python_source_and_a_pdf(bench: Bench) -> None:
    model = locate_builtin_models()["magika"]
    files = {"python": Path(__file__).read_bytes(), "pdf": PDF}

    async def scenario(executor: ProcessExecutor) -> None:
        for label, data in files.items():
            report = await executor.run(bench.onnx(model, magika_inputs(data)))
            assert report.status == "succeeded", report.error
            assert label_of(report.result) == label

    bench.play(scenario, bench.executor("onnx"))


def test_the_witness_has_a_line_for_each_success_and_none_for_a_failure(bench: Bench, model: Path) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        good = {"a": floats(1), "b": floats(2)}
        await executor.run(bench.onnx(model, good, number=1))
        await executor.run(bench.onnx(model, {}, number=2))
        await executor.run(bench.onnx(model, good, number=3, fence="3.1.2"))

        device = executor.device.device_id
        assert bench.witness.read_text().splitlines() == [
            f"{1:032x} 0.1 onnx {device}",
            f"{3:032x} 3.1.2 onnx {device}",
        ]

    bench.play(scenario, bench.executor("onnx"))


def test_infinity_and_nan_come_back_as_they_are(bench: Bench, model: Path) -> None:
    report = ask(
        bench, bench.executor("onnx"), bench.onnx(model, {"a": floats(1, 0, -1, 6), "b": floats(0, 0, 0, 4)})
    )

    one, two, three, four = decode_output(report.result, "quotient")
    assert (one, three, four) == (math.inf, -math.inf, 1.5)
    assert math.isnan(two)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input a: missing; expected float32 [n]"),
        ({"a": floats(1)}, "input b: missing; expected float32 [n]"),
        (
            {"a": floats(1), "b": floats(1), "c": floats(1)},
            "input c: the model has no such input; it has a, b",
        ),
        (
            {"a": floats(1, shape=(1, 1)), "b": floats(1)},
            "input a: expected float32 [n], got float32 [1, 1]",
        ),
        (
            {"a": Tensor(dtype="int32", shape=(1,), base64="AAAAAA=="), "b": floats(1)},
            "input a: expected float32 [n], got int32 [1]",
        ),
        (
            {"a": floats(1, 2), "b": floats(1)},
            "input b: expected float32 [n], got float32 [1]; another input has 2 for n",
        ),
        (
            {"a": floats(1, shape=(3,)), "b": floats(1, shape=(3,))},
            "input a: float32 [3] is 12 bytes, got 4",
        ),
        (
            {"a": Tensor(dtype="float32", shape=(1,), base64="*"), "b": floats(1)},
            "input a: not valid base64",
        ),
    ],
)
def test_a_wrong_input_is_invalid_and_says_what_was_expected(
    bench: Bench, model: Path, inputs: dict[str, Tensor], message: str
) -> None:
    report = ask(bench, bench.executor("onnx"), bench.onnx(model, inputs))

    assert report.status == "invalid"
    assert message in report.error


def test_a_fixed_dimension_must_match(bench: Bench) -> None:
    short = {"bytes": Tensor(dtype="int32", shape=(1, 2), base64=base64.b64encode(bytes(8)).decode())}

    report = ask(bench, bench.executor("onnx"), bench.onnx(locate_builtin_models()["magika"], short))

    assert report.status == "invalid"
    assert "2048], got int32 [1, 2]" in report.error


@pytest.mark.parametrize("data", [b"", b"this is no model", a_model("divide")[:-9]])
def test_a_broken_model_file_is_invalid(bench: Bench, tmp_path: Path, data: bytes) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(data)

    report = ask(bench, bench.executor("onnx"), bench.onnx(broken, {"a": floats(1), "b": floats(1)}))

    assert report.status == "invalid"
    assert "the model cannot be loaded" in report.error


def test_a_model_that_does_not_match_its_hash_is_never_loaded(bench: Bench, model: Path) -> None:
    claimed = "sha256:" + "1" * 64
    job = bench.job(OnnxSpec(model=claimed, inputs={"a": floats(1), "b": floats(1)}), blobs={claimed: model})

    report = ask(bench, bench.executor("onnx"), job)

    assert report.status == "failed"
    assert "does not match its hash sha256:111111111111" in report.error


def test_a_model_that_is_not_here_is_named(bench: Bench, tmp_path: Path) -> None:
    absent = "sha256:" + "2" * 64
    spec = OnnxSpec(model=absent, inputs={})

    unknown = ask(bench, bench.executor("onnx"), bench.job(spec))
    gone = ask(bench, bench.executor("onnx"), bench.job(spec, blobs={absent: tmp_path / "gone"}))

    assert (unknown.status, gone.status) == ("failed", "failed")
    assert "model sha256:222222222222… is not on this node" in unknown.error
    assert "cannot be read: No such file" in gone.error


def test_an_input_may_come_as_content_and_is_verified(bench: Bench, model: Path, tmp_path: Path) -> None:
    data = struct.pack("<2f", 6, 8)
    content, path = f"sha256:{hashlib.sha256(data).hexdigest()}", tmp_path / "input"
    path.write_bytes(data)
    inputs = {"a": Tensor(dtype="float32", shape=(2,), blob=content), "b": floats(2, 2)}

    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(bench.onnx(model, inputs, blobs={content: path}))
        assert decode_output(report.result, "quotient") == [3.0, 4.0]
        path.write_bytes(b"12345678")
        damaged = await executor.run(bench.onnx(model, inputs, blobs={content: path}))
        assert "input a: the file does not match its hash" in damaged.error

    bench.play(scenario, bench.executor("onnx"))


def test_large_outputs_go_to_files_as_raw_numbers(bench: Bench, fill: Path) -> None:
    count = 100_000

    report = ask(bench, bench.executor("onnx"), bench.onnx(fill, size(count)))

    assert report.result["outputs"]["zeros"] == {
        "dtype": "float32",
        "shape": [count],
        "file": "zeros",
        "bytes": 4 * count,
    }
    path = report.files["zeros"]
    assert path.is_relative_to(bench.data_dir / "outputs")
    assert path.read_bytes() == bytes(4 * count)


def test_outputs_up_to_the_inline_limit_travel_inline(bench: Bench, fill: Path) -> None:
    report = ask(bench, bench.executor("onnx"), bench.onnx(fill, size(8192)))

    assert len(base64.b64decode(report.result["outputs"]["zeros"]["base64"])) == 32 * 1024
    assert report.files == {}


def test_outputs_above_the_limit_are_refused_with_its_name(bench: Bench, fill: Path) -> None:
    report = ask(bench, bench.executor("onnx", output_limit_bytes=1 << 20), bench.onnx(fill, size(1 << 20)))

    assert report.status == "invalid"
    assert "outputs of 4194304 bytes; the limit is 1048576 (output_limit_bytes)" in report.error


def test_an_inference_that_needs_more_memory_than_there_is_fails_alone(bench: Bench, fill: Path) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(bench.onnx(fill, size(1 << 55)))
        assert report.status in ("failed", "invalid")
        assert report.error
        assert (await executor.run(bench.onnx(fill, size(1)))).status == "succeeded"

    bench.play(scenario, bench.executor("onnx"))


def test_models_make_room_for_each_other(bench: Bench, model: Path, fill: Path) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        for number in range(4):
            job = bench.onnx(model, {"a": floats(1), "b": floats(1)}, number=number)
            other = bench.onnx(fill, size(2), number=number + 10)
            reports = await asyncio.gather(executor.run(job), executor.run(other))
            assert [report.status for report in reports] == ["succeeded", "succeeded"]

    bench.play(scenario, bench.executor("onnx", sessions=1))


def test_a_report_says_what_loading_took_and_what_is_loaded(bench: Bench, model: Path, fill: Path) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        divide = bench.onnx(model, {"a": floats(1), "b": floats(1)}, number=1)
        other = bench.onnx(fill, size(2), number=2)
        cold, warm = await executor.run(divide), await executor.run(divide)
        both, broken = await executor.run(other), await executor.run(bench.onnx(model, {}, number=3))

        assert 0 < cold.load_s < cold.runtime_s
        assert warm.load_s == 0
        names = (divide.spec.model, other.spec.model)  # type: ignore[union-attr]
        assert (cold.loaded, both.loaded) == (names[:1], names)
        assert broken.status == "invalid"
        assert broken.loaded == names[::-1], "the one used last stays longest"

    bench.play(scenario, bench.executor("onnx", sessions=2))


def test_what_was_loaded_goes_with_the_child(bench: Bench, fill: Path) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        running = asyncio.create_task(executor.run(bench.onnx(fill, size(2), number=1)))
        assert (await running).loaded
        assert executor.child_pid is not None
        os.kill(executor.child_pid, signal.SIGKILL)
        report = await executor.run(bench.onnx(fill, size(2), number=2))
        assert (report.status, report.loaded) == ("device_fault", ())

    bench.play(scenario, bench.executor("onnx"))


def test_an_emulated_board_never_claims_less_time_than_it_took(bench: Bench) -> None:
    model = locate_builtin_models()["swift-f0"]

    report = ask(bench, bench.executor("onnx", board="coral-usb"), bench.onnx(model, tone_task_inputs(220.0)))

    assert report.result["emulated"] is True
    assert report.runtime_s >= report.result["modelled_s"] >= 0.004
    assert report.result["modelled_energy_j"] == pytest.approx(report.result["modelled_s"] * 2.0)
