"""Randomness that the shells take from the system, drawn from the seed instead while a world runs.

Cores are given their randomness; names of ledgers, stores and runs are made by `secrets` where they are
needed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch


@contextmanager
def seeded_secrets(rng: Random) -> Iterator[None]:
    """Have every name that is drawn inside the block come from rng. Nothing secret is made in a world."""
    with (
        patch.object(secrets, "token_hex", lambda nbytes=32: rng.randbytes(nbytes).hex()),
        patch.object(secrets, "token_urlsafe", lambda nbytes=32: rng.randbytes(nbytes).hex()),
        patch.object(secrets, "randbits", rng.getrandbits),
    ):
        yield
