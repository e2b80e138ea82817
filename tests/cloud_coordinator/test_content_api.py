"""Content at the coordinator: who may put and get it, quota, and what is kept."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import msgspec

from cloud_coordinator.api.testing import KEY, Visitor, visit
from cloud_coordinator.ledger.values import LedgerTask, Moment, TaskState
from skerry.fence import Fence
from skerry.identity import PrivateKey
from skerry.signed_http import signed_headers
from skerry.task import OnnxSpec
from skerry.testing import a_task


def named(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_an_enrolled_node_puts_and_gets_content_with_its_signature(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    path = f"/v1/blobs/{named(data)}"

    async def story(visitor: Visitor) -> None:
        await visitor.enrol(await visitor.token())

        def signed(method: str, **more: str) -> dict[str, str]:
            return {**signed_headers(KEY, "n1", method, path), **more}

        recorded = signed("PUT")
        assert (await visitor.tcp("PUT", path, headers=recorded, data=data))[0] == 201
        assert (await visitor.tcp("PUT", path, headers=signed("PUT"), data=data))[0] == 200
        assert (await visitor.tcp("PUT", path, headers=recorded, data=data))[0] == 403
        assert await visitor.tcp("GET", path, headers=signed("GET")) == (200, data)
        part = await visitor.tcp("GET", path, headers=signed("GET", Range="bytes=1000-1999"))
        assert part == (206, data[1000:2000])
        beyond = await visitor.tcp("GET", path, headers=signed("GET", Range=f"bytes={len(data)}-"))
        assert beyond[0] == 416
        assert (await visitor.tcp("GET", path, headers=visitor.bearer))[1] == data

    visit(tmp_path, story)


def test_content_is_closed_to_everybody_else(tmp_path: Path) -> None:
    data = b"model"
    path = f"/v1/blobs/{named(data)}"

    async def story(visitor: Visitor) -> None:
        await visitor.enrol(await visitor.token())
        stranger = PrivateKey.generate()
        for headers, expected in (
            ({}, 401),
            (signed_headers(stranger, "n1", "PUT", path), 403),
            (signed_headers(KEY, "n2", "PUT", path), 403),
            (signed_headers(KEY, "n1", "GET", path), 403),
            (signed_headers(KEY, "n1", "PUT", path + "0"), 403),
        ):
            assert (await visitor.tcp("PUT", path, headers=headers, data=data))[0] == expected
        assert await visitor.counted("http_signature") >= 1
        assert not visitor.office.blobs.has(named(data))

    visit(tmp_path, story)


def test_content_under_a_wrong_name_or_above_the_quota_is_not_kept(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        path = f"/v1/blobs/{named(b'promised')}"
        status, problem = await visitor.ask("PUT", path, data=b"delivered")
        assert (status, problem["type"]) == (422, "urn:skerry:blob-corrupt")
        big = bytes(2 << 20)
        status, problem = await visitor.ask("PUT", f"/v1/blobs/{named(big)}", data=io.BytesIO(big))
        assert (status, problem["type"]) == (507, "urn:skerry:blob-quota")
        assert (await visitor.ask("PUT", "/v1/blobs/sha256:..%2F..%2Fx", data=b""))[0] == 422
        assert visitor.office.blobs.used_bytes == 0

    visit(tmp_path, story, content={"quota_bytes": 1 << 20})


def test_old_content_makes_room_but_never_what_a_task_waits_for(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        blobs, clock = visitor.office.blobs, visitor.office.clock
        needed, free, new = (bytes([n]) * 400_000 for n in range(3))
        for data in (needed, free):
            assert (await visitor.ask("PUT", f"/v1/blobs/{named(data)}", data=data))[0] == 201
        entry = LedgerTask(
            task_id="a" * 32,
            home_node="n1",
            kind="task",
            state=TaskState.PLACED,
            received=Moment(clock.now(), clock.wall_s()),
            task=msgspec.structs.replace(a_task(), spec=OnnxSpec(model=named(needed), inputs={})),
            fence=Fence((1, 1)),
            node="n2",
        )
        await visitor.office.ask(lambda core: core.ledger.put_task(entry))
        assert (await visitor.ask("PUT", f"/v1/blobs/{named(new)}", data=new))[0] == 201
        assert [blobs.has(named(data)) for data in (needed, free, new)] == [True, False, True]

    visit(tmp_path, story, content={"quota_bytes": 1 << 20, "keep_s": 1e-6})
