"""A run's specification as Flower's flat run configuration, and back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from federation.values import CohortRule, RunSpec, Scalar
from skerry.errors import FederationError

_TRAINER = "config."
#: Settings of `flwr run` alone: where to write what came out.
RESULT = "result"


def to_run_config(spec: RunSpec) -> dict[str, Scalar]:
    """Return the specification as Flower passes it to the server: `max-staleness`, `config.size`, …"""
    flat = {
        name.replace("_", "-"): value
        for name, value in msgspec.structs.asdict(spec).items()
        if isinstance(value, bool | int | float | str)
    }
    trainer = {f"{_TRAINER}{name}": value for name, value in spec.config.items()}
    return {**flat, **trainer, "limit": spec.cohort.limit}


def from_run_config(config: Mapping[str, Scalar]) -> RunSpec:
    """Return the specification.  Raises FederationError, naming what is not valid."""
    own = {
        key.replace("-", "_"): v
        for key, v in config.items()
        if not key.startswith(_TRAINER) and key != RESULT
    }
    trainer = {key.removeprefix(_TRAINER): value for key, value in config.items() if key.startswith(_TRAINER)}
    limit = own.pop("limit", CohortRule().limit)
    fields = {"run_id": "simulation", **own, "cohort": {"limit": limit}, "config": trainer}
    unknown = sorted(fields.keys() - set(RunSpec.__struct_fields__))
    if unknown:
        raise FederationError(f"the run configuration has no setting {unknown[0]!r}")
    try:
        return msgspec.convert(fields, RunSpec)
    except msgspec.ValidationError as error:
        raise FederationError(f"the run configuration is not valid: {error}") from error
