"""A parent that runs an endless inference and an endless command: `doomed_agent.py DATA_DIR`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
import sys
from pathlib import Path

from devices.discovery import build_executors, discover
from devices.port import Job
from devices.settings import DeviceSettings
from devices.testing import a_model
from skerry.task import CommandSpec, OnnxSpec, Tensor

#: A child and a grandchild that ignore SIGTERM, one that left the group, one that wiped its environment.
SCRIPT = """
trap "" TERM
sleep 300 & setsid sleep 300 & env -i setsid sleep 300 & (trap "" TERM; sleep 300; true) &
jobs -p > "$1"; echo $$ >> "$1"
while true; do sleep 1; done
"""


async def main(data_dir: Path) -> None:
    settings = DeviceSettings()
    inventory = discover(settings)
    executors = build_executors(inventory, settings, data_dir=data_dir)
    cpu = inventory.devices[0].device_id
    model = data_dir / "spin.onnx"
    model.write_bytes(a_model("spin"))
    content = f"sha256:{hashlib.sha256(model.read_bytes()).hexdigest()}"
    times = Tensor(dtype="int64", base64=base64.b64encode(struct.pack("<q", 1 << 60)).decode())
    jobs = {
        "onnx": Job(
            task_id="1" * 32,
            fence="0.1",
            spec=OnnxSpec(model=content, inputs={"times": times}),
            max_runtime_s=600,
            memory_bytes=1 << 30,
            blobs={content: model},
        ),
        "command": Job(
            task_id="2" * 32,
            fence="0.1",
            spec=CommandSpec(argv=("bash", "-c", SCRIPT, "bash", str(data_dir / "pids"))),
            max_runtime_s=600,
            memory_bytes=1 << 30,
        ),
    }
    running = [asyncio.create_task(executors[cpu, kind].run(job)) for kind, job in jobs.items()]
    while any(executors[cpu, kind].child_pid is None for kind in jobs):  # noqa: ASYNC110 — nothing tells
        await asyncio.sleep(0.01)
    print(*(executors[cpu, kind].child_pid for kind in jobs), flush=True)
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    print("an endless attempt ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
