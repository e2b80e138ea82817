"""The witness: a file in which every effect leaves a line.

Owns the line's form; nobody here reads it back.
"""

from __future__ import annotations

import os


def bear_witness(path: str, task_id: str, fence: str, executor: str, device_id: str) -> None:
    """Append `<task id> <fence> <executor> <device id>` and wait until it is on disk.

    One write of a short line in append mode: writers in different processes never mix.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, f"{task_id} {fence} {executor} {device_id}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
