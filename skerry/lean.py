"""What keeps a long-running process small. Owns import-time economies only; each says what it saves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOWHERE = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


@contextmanager
def no_system_certificates() -> Iterator[None]:
    """Import aiohttp inside this block: it then does not load the system's CA certificates at import (2 MB).

    Every TLS connection of ours brings a context of its own, made later, so the default one is never used.
    """
    before = {name: os.environ.get(name) for name in _NOWHERE}
    os.environ.update(_NOWHERE)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
