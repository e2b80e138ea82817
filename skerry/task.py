"""The task as submitted: typed, frozen, validated once at the border. Knows nothing of queues or devices."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skerry.decoding import MALFORMED, why_malformed
from skerry.errors import SpecError
from skerry.ids import check_name, is_content_hash
from skerry.nearest import name_nearest

#: A payload above this travels by content hash, bytes.
INLINE_LIMIT_BYTES = 32 * 1024
#: A whole task document above this is refused at the border, bytes.
DOCUMENT_LIMIT_BYTES = 128 * 1024

Seconds = Annotated[float, Meta(gt=0, le=366 * 86400)]
#: Idempotency keys of a recurring task's runs begin so; no other task's may.
RUN_KEY = "recurring:"
#: The shortest duration that is handed on.
LEAST_S = 0.001
Accelerator = Literal["none", "any", "gpu", "npu", "tpu"]
Effect = Literal["idempotent", "at_most_once"]
DType = Literal["float32", "float64", "int32", "int64", "uint8", "bool"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values from outside: an unknown field is a mistake the sender must hear of."""


class Resources(_Strict, frozen=True, kw_only=True):
    """What one attempt needs of a node."""

    cpu_millicores: Annotated[int, Meta(ge=1, le=1_024_000)] = 1000
    memory_bytes: Annotated[int, Meta(ge=1, le=1 << 44)] = 256 * 1024 * 1024
    #: none: the CPU.  any: whichever device is best, the CPU too.  gpu, npu, tpu: that class only.
    accelerator: Accelerator = "any"
    accelerator_count: Annotated[int, Meta(ge=1, le=64)] = 1


class Tensor(_Strict, frozen=True, kw_only=True):
    """One input array, little-endian, row-major: inline as base64, or by content hash."""

    dtype: DType
    shape: tuple[Annotated[int, Meta(ge=0, le=1 << 48)], ...] = ()
    base64: str | None = None
    blob: str | None = None


class OnnxSpec(_Strict, frozen=True, kw_only=True, tag_field="executor", tag="onnx"):
    """Run one inference of a model known by its hash."""

    model: str  #: sha256:<hex>
    inputs: dict[str, Tensor]


class CommandSpec(_Strict, frozen=True, kw_only=True, tag_field="executor", tag="command"):
    """Run a command without a shell."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1, max_length=256)]
    env: dict[str, str] = {}
    stdin: str = ""
    #: Runs as the agent's own user with no further limits; the rules say who may ask for it.
    privileged: bool = False


ExecutorSpec = OnnxSpec | CommandSpec


class DataSpec(_Strict, frozen=True, kw_only=True):
    """What the task's data are and where they belong."""

    labels: tuple[str, ...] = ()
    home_region: str | None = None
    size_bytes: Annotated[int, Meta(ge=0, le=1 << 60)] = 0


class Constraints(_Strict, frozen=True, kw_only=True):
    """Where the task may run; empty means anywhere."""

    regions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  #: device classes or ids


class TaskSpec(_Strict, frozen=True, kw_only=True):
    """A task as submitted. Durations count from acceptance, in powered-on seconds."""

    spec: ExecutorSpec
    kind: Annotated[str, Meta(min_length=1, max_length=128)] = "task"
    tenant: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    traceparent: Annotated[str, Meta(max_length=128)] | None = None
    resources: Resources = Resources()
    priority: Annotated[int, Meta(ge=0, le=9)] = 4
    sla: Annotated[str, Meta(max_length=32)] = "standard"
    delay_s: Seconds | None = None
    deadline_s: Seconds | None = None
    expires_after_s: Seconds | None = None
    max_runtime_s: Seconds = 300.0
    #: How often it may be tried again after a failure.
    retries: Annotated[int, Meta(ge=0, le=100)] = 2
    effect: Effect = "idempotent"
    data: DataSpec = DataSpec()
    constraints: Constraints = Constraints()
    ordering_key: Annotated[str, Meta(min_length=1, max_length=128)] | None = None


def with_time_left(task: TaskSpec, *, expires_in_s: float | None, deadline_in_s: float | None) -> TaskSpec:
    """Return the copy that is handed on: its durations count anew where it goes, so they are what is left.

    None: without a limit.  A deadline that has passed becomes one that cannot be met.
    """
    return msgspec.structs.replace(task, expires_after_s=_left(expires_in_s), deadline_s=_left(deadline_in_s))


def is_out_of_time(task: TaskSpec) -> bool:
    """Decide whether a copy that was handed on had no time left: it must not be begun."""
    return task.expires_after_s is not None and task.expires_after_s <= LEAST_S


def _left(seconds: float | None) -> float | None:
    return None if seconds is None else max(LEAST_S, seconds)


def blobs_of(task: TaskSpec) -> tuple[str, ...]:
    """Return the content hashes that a node must hold before it can start this task."""
    if not isinstance(task.spec, OnnxSpec):
        return ()
    tensors = (t.blob for t in task.spec.inputs.values() if t.blob is not None)
    return (task.spec.model, *tensors)


def parse_task(document: bytes) -> TaskSpec:
    """Return the task in a JSON document.  Raises SpecError that names the field at fault.

    The executor's fields stand under `spec`, its name under `spec.executor`.
    """
    if len(document) > DOCUMENT_LIMIT_BYTES:
        raise SpecError(
            f"the task is {len(document)} bytes, the limit is {DOCUMENT_LIMIT_BYTES}: "
            f"put payloads above {INLINE_LIMIT_BYTES} bytes into the content store and pass their hash"
        )
    try:
        return _check_given(msgspec.json.decode(document, type=TaskSpec))
    except msgspec.ValidationError as error:
        raise _spec_error(str(error)) from error
    except MALFORMED as error:
        raise SpecError(f"the task is not valid JSON: {why_malformed(error)}") from error


def convert_task(value: Any) -> TaskSpec:
    """Return the task in plain Python values (a TOML document's).  Raises SpecError like parse_task."""
    try:
        return _check_given(msgspec.convert(value, type=TaskSpec))
    except msgspec.ValidationError as error:
        raise _spec_error(str(error)) from error
    except MALFORMED as error:
        raise SpecError(f"the task is not valid: {why_malformed(error)}") from error


def _check_given(task: TaskSpec) -> TaskSpec:
    check_key(task.idempotency_key)
    return check_task(task)


def check_key(key: str | None) -> None:
    """Raise SpecError when a task may not be submitted under this idempotency key."""
    if key is not None and key.startswith(RUN_KEY):
        raise SpecError(
            f"idempotency_key: keys that begin with {RUN_KEY!r} are those of recurring tasks' runs",
            field="idempotency_key",
        )


def check_task(task: TaskSpec) -> TaskSpec:
    """Return task when the rules that span fields hold; else raise SpecError."""
    for region in (*task.constraints.regions, *filter(None, [task.data.home_region])):
        check_name(region, what="region")
    for node in task.constraints.nodes:
        check_name(node, what="node")
    if isinstance(task.spec, OnnxSpec):
        _check_onnx(task.spec)
    else:
        _check_command(task.spec)
    if "pii" in task.data.labels and task.data.home_region is None:
        raise SpecError("data labelled pii needs a home_region", field="data.home_region")
    return task


def _check_onnx(spec: OnnxSpec) -> None:
    if not is_content_hash(spec.model):
        raise SpecError(
            f"model {spec.model[:80]!r} is not of the form sha256:<64 hex digits>", field="spec.model"
        )
    for name, tensor in spec.inputs.items():
        if (tensor.base64 is None) == (tensor.blob is None):
            raise SpecError("give exactly one of base64 and blob", field=f"spec.inputs.{name}")
        if tensor.blob is not None and not is_content_hash(tensor.blob):
            raise SpecError(
                "blob is not of the form sha256:<64 hex digits>", field=f"spec.inputs.{name}.blob"
            )
        if tensor.base64 is not None and len(tensor.base64) > INLINE_LIMIT_BYTES * 4 // 3 + 4:
            raise SpecError(
                f"more than {INLINE_LIMIT_BYTES} bytes: put it into the content store and pass its hash",
                field=f"spec.inputs.{name}.base64",
            )


def _check_command(spec: CommandSpec) -> None:
    """Refuse what no process on any node can be given."""
    if not spec.argv[0]:
        raise SpecError("spec.argv[0]: the program's name is empty", field="spec.argv[0]")
    for number, word in enumerate(spec.argv):
        if "\0" in word:
            raise SpecError(f"spec.argv[{number}]: it holds a NUL character", field=f"spec.argv[{number}]")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise SpecError(
                f"spec.env: {name[:80]!r} and its value cannot be given to a process: the name is empty or "
                "holds '=', or one of them a NUL character",
                field="spec.env",
            )


def _spec_error(text: str) -> SpecError:
    message, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    if "unknown field" in message:
        return SpecError(name_nearest(TaskSpec, message, field), field=field)
    if field == "spec.executor" or ("Invalid value" in message and "executor" in path):
        message = f"unknown executor ({message}); this version has: command, onnx"
    return SpecError(f"{field or 'the task'}: {name_nearest(TaskSpec, message, field)}", field=field)
