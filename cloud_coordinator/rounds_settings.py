"""What the coordinator's rounds may be told. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class FederationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Federated rounds; their workers are processes of the training environment (the extra `federation`)."""

    #: Its interpreter; empty: .venv-train/bin/python beside the program; "off": no rounds here.
    python: str = ""
    #: A finished run's policy is evaluated on these sizes of site, with commas, before it is offered …
    devices: str = "8"
    scenarios: Annotated[int, Meta(ge=2, le=100_000)] = 64  #: … on so many scenarios each
    export_s: Annotated[float, Meta(gt=0, le=86_400)] = 900.0  #: what making a policy may take
