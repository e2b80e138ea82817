"""Two small real models that come as packages, and tasks for them whose right answer is known beforehand.

Owns their input and output conventions. The packages are never imported, only their files are found; numpy is
not needed either, so that an agent or a command line can build such a task.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from array import array
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from skerry.task import Tensor

#: Name → (distribution, end of the file's path in it).
_PACKAGED = {
    "swift-f0": ("swift-f0", "model.onnx"),
    "magika": ("magika", "standard_v3_3/model.onnx"),
}
_SAMPLE_RATE_HZ = 16_000
#: The range in which swift-f0 looks for a pitch, from its description.
_PITCH_RANGE_HZ = (46.875, 2093.75)
#: Frames below this confidence are not voiced.
_VOICED = 0.5
_TYPE_CODES = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint8": "B", "bool": "B"}


def locate_builtin_models() -> dict[str, Path]:
    """Return the model files of the installed packages, by name: swift-f0 (pitch), magika (file type)."""
    found = {name: _packaged(*place) for name, place in _PACKAGED.items()}
    return {name: path for name, path in found.items() if path is not None}


def tone_task_inputs(hz: float, seconds: float = 0.4) -> dict[str, Tensor]:
    """Return swift-f0's inputs for a pure tone. Up to 0.5 s travels inline."""
    count = int(seconds * _SAMPLE_RATE_HZ)
    samples = [0.6 * math.sin(2 * math.pi * hz * n / _SAMPLE_RATE_HZ) for n in range(count)]
    low, high = _PITCH_RANGE_HZ
    return {
        "audio": _tensor("float32", samples, (1, count)),
        "fmin": _tensor("float32", [low], ()),
        "fmax": _tensor("float32", [high], ()),
    }


def tone_of(result: Mapping[str, Any]) -> float:
    """Return the pitch in Hz that swift-f0 found: the median of its voiced frames.

    result: a report's, with its outputs inline.  Raises ValueError when no frame is voiced.
    """
    pitch, confidence = decode_output(result, "pitch"), decode_output(result, "confidence")
    voiced = sorted(hz for hz, sure in zip(pitch, confidence, strict=True) if sure >= _VOICED)
    if not voiced:
        raise ValueError("no voiced frame: the model heard no tone")
    return float(voiced[len(voiced) // 2])


def magika_inputs(data: bytes) -> dict[str, Tensor]:
    """Return magika's inputs for a file: its first and last bytes without outer white space, padded."""
    settings = _magika_settings()
    block, pad = int(settings["block_size"]), int(settings["padding_token"])
    first, last = int(settings["beg_size"]), int(settings["end_size"])
    head = list(data[:block].lstrip()[:first])
    tail = list(data[-block:].rstrip()[-last:])
    numbers = head + [pad] * (first - len(head)) + [pad] * (last - len(tail)) + tail
    return {"bytes": _tensor("int32", numbers, (1, first + last))}


def label_of(result: Mapping[str, Any]) -> str:
    """Return the file type that magika found most likely, for example `python` or `pdf`."""
    scores = decode_output(result, "target_label")
    labels: list[str] = _magika_settings()["target_labels_space"]
    return labels[max(range(len(scores)), key=scores.__getitem__)]


def decode_output(result: Mapping[str, Any], name: str) -> list[float]:
    """Return an inline output of a report as flat numbers.  Raises ValueError when it lies in a file."""
    output = result["outputs"][name]
    if "base64" not in output:
        raise ValueError(f"output {name} lies in a file")
    values = array(_TYPE_CODES[output["dtype"]], base64.b64decode(output["base64"]))
    if sys.byteorder == "big":
        values.byteswap()
    return list(values)


def _tensor(dtype: str, values: list[float] | list[int], shape: tuple[int, ...]) -> Tensor:
    packed = array(_TYPE_CODES[dtype], values)
    if sys.byteorder == "big":
        packed.byteswap()
    text = base64.b64encode(packed.tobytes()).decode("ascii")
    return Tensor(dtype=dtype, shape=shape, base64=text)  # type: ignore[arg-type] # one of _TYPE_CODES


def _packaged(distribution: str, ending: str) -> Path | None:
    try:
        listed = files(distribution) or []
    except PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in listed if file.as_posix().endswith(ending))
    return next((path for path in paths if path.is_file()), None)


@cache
def _magika_settings() -> dict[str, Any]:
    model = locate_builtin_models().get("magika")
    if model is None:
        raise FileNotFoundError(
            "the magika package is not installed: in the checkout, pip install -e '.[demo]'"
        )
    settings: dict[str, Any] = json.loads((model.parent / "config.min.json").read_text(encoding="utf-8"))
    return settings
