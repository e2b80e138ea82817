"""Rounds carried by the real link: coordinator, mosquitto, and many null nodes in one process beside them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.federation_nodes import REGION, Place
from benchmarks.harness import BenchmarkError
from cloud_coordinator.api.office import Office
from cloud_coordinator.core.events import NodeEnrolled
from cloud_coordinator.service import running
from cloud_coordinator.settings import ApiSettings, CoordinatorSettings, RulesTable
from federation.rounds.service import RoundService
from skerry.cli.demo.brokers import start_broker
from skerry.identity import PrivateKey
from skerry.node import NodeRecord

FLEET = "bench"
#: How long so many nodes may take to connect.
CONNECT_S = 60.0


@asynccontextmanager
async def over_mqtt(directory: Path, nodes: int) -> AsyncIterator[RoundService]:
    """Yield the coordinator's round service, with that many nodes connected."""
    broker = start_broker(directory / "broker", prefer="mosquitto")
    try:
        settings = CoordinatorSettings(
            data_dir=str(directory / "coordinator"),
            fleet=FLEET,
            api=ApiSettings(listen="127.0.0.1:0"),
            mqtt=broker.settings,
            rules=RulesTable(enabled=False),
        )
        keys = directory / "keys"
        keys.mkdir(mode=0o700)
        async with running(settings) as office:
            place = await _enrol(office, keys, broker.url, nodes)
            file = directory / "place.json"
            file.write_bytes(msgspec.json.encode(place))
            words = (sys.executable, "-m", "benchmarks.federation_nodes", str(file))
            process = await asyncio.create_subprocess_exec(*words)
            try:
                await _connected(office, process, nodes)
                yield await office.rounds.service()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
    finally:
        broker.stop()


async def _enrol(office: Office, keys: Path, broker: str, count: int) -> Place:
    names = tuple(f"n{n}" for n in range(count))
    for name in names:
        key = PrivateKey.load_or_create(keys / f"{name}.key")
        record = NodeRecord(name=name, fleet=FLEET, region=REGION, public_key=key.public_hex)
        await office.handle(NodeEnrolled(record))
    return Place(
        fleet=FLEET,
        broker=broker,
        url=office.http_url,
        coordinator_key=office.key.public_hex,
        keys=str(keys),
        nodes=names,
    )


async def _connected(office: Office, process: asyncio.subprocess.Process, count: int) -> None:
    async with asyncio.timeout(CONNECT_S):
        while True:
            found = await office.ask(lambda core: core.nodes())
            if sum(node.status == "online" for node in found) == count:
                return
            if process.returncode is not None:
                raise BenchmarkError("the process with the nodes ended")
            await asyncio.sleep(0.05)
