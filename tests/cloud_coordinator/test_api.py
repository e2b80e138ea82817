"""The coordinator's HTTP interface and its door for messages: a real server on loopback, its broker away."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from cloud_coordinator.api.office import Office
from cloud_coordinator.core.turn import NodeNow
from cloud_coordinator.ledger.values import LedgerTask, Moment, Placement, TaskState
from cloud_coordinator.service import running
from cloud_coordinator.settings import CoordinatorSettings
from cloud_coordinator.testing import an_inventory
from skerry.decision import Decision
from skerry.enrolment import EnrolAnswer, check_answer, parse_token, sign_request
from skerry.envelope import Speaker
from skerry.fence import Fence
from skerry.identity import PrivateKey
from skerry.messages import Birth
from skerry.node import NodeRecord
from skerry.signed_http import signed_headers
from skerry.task import OnnxSpec
from skerry.testing import a_task
from skerry.transport.port import Message

KEY = PrivateKey.generate()
Story = Callable[["Visitor"], Awaitable[None]]


class Visitor:
    """Speaks to a running coordinator: `ask` on its Unix socket, `tcp` with the headers given."""

    def __init__(self, office: Office, bare: aiohttp.ClientSession, unix: aiohttp.ClientSession) -> None:
        self.office = office
        self.url = office.http_url
        self.bare = bare
        self.unix = unix
        token = office.settings.token_path.read_text().strip()
        self.bearer = {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
        async with self.unix.request(method, f"http://localhost{path}", **arguments) as answer:
            return answer.status, await answer.json()

    async def tcp(self, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
        async with self.bare.request(method, f"{self.url}{path}", **arguments) as answer:
            has_body = answer.content_type.endswith("json")
            return answer.status, await answer.json(content_type=None) if has_body else await answer.read()

    async def token(self, **fields: Any) -> str:
        status, made = await self.ask("POST", "/v1/tokens", json=fields)
        assert status == 201, made
        return str(made["token"])

    async def enrol(
        self, token: str, *, node: str = "n1", key: PrivateKey = KEY, **changes: Any
    ) -> tuple[int, Any]:
        asked = sign_request(key, parse_token(token), node=node, region="north", site="")
        document = msgspec.to_builtins(msgspec.structs.replace(asked, **changes))
        return await self.tcp("POST", "/v1/enrol", json=document)

    async def counted(self, reason: str) -> int:
        """How often something was refused for this reason, once the core has counted it."""
        async with asyncio.timeout(10):
            while True:
                _, found = await self.ask("GET", "/v1/counters")
                total = sum(c["count"] for c in found["counters"] if c["reason"] == reason)
                if total:
                    return total
                await asyncio.sleep(0.05)  # counts are handed over with the next tick

    def message(self, topic: str, payload: bytes) -> None:
        self.office.runtime.on_message(
            Message(topic=topic, payload=payload, retained=False, acknowledge=lambda: None)
        )


def settings_in(path: Path, **fields: Any) -> CoordinatorSettings:
    values = {
        "data_dir": str(path),
        "fleet": "test",
        "api": {"listen": "127.0.0.1:0"},
        "mqtt": {"url": "mqtt://127.0.0.1:1"},
        "rules": {"enabled": False},
        **fields,
    }
    return msgspec.convert(values, CoordinatorSettings)


def visit(path: Path, story: Story, **fields: Any) -> None:
    """Run a coordinator in path and play a story against it."""

    async def play() -> None:
        settings = settings_in(path, **fields)
        async with running(settings) as office:
            connector = aiohttp.UnixConnector(str(settings.socket_path))
            async with aiohttp.ClientSession() as bare, aiohttp.ClientSession(connector=connector) as unix:
                await story(Visitor(office, bare, unix))

    asyncio.run(play())


# --- enrolment ------------------------------------------------------------------------------------------


def test_a_node_enrols_once_with_a_token_and_knows_its_coordinator(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        token = await visitor.token()
        status, answer = await visitor.enrol(token)
        assert status == 200, answer
        enrolment = check_answer(msgspec.convert(answer, EnrolAnswer), parse_token(token), KEY)
        assert (enrolment.node, enrolment.region, enrolment.fleet) == ("n1", "north", "test")
        assert (enrolment.broker_url, enrolment.coordinator_url) == ("mqtt://127.0.0.1:1", visitor.url)

        repeated, _ = await visitor.enrol(token)
        assert repeated == 200, "its answer may have been lost on the way"
        used, problem = await visitor.enrol(token, node="n2", key=PrivateKey.generate())
        assert used == 403
        assert "used already, by n1" in problem["detail"]

    visit(tmp_path, story)


def test_a_wrong_token_is_refused_and_counted(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        token = parse_token(await visitor.token())
        status, problem = await visitor.enrol(str(msgspec.structs.replace(token, secret="wrong")))
        assert (status, "not known" in problem["detail"]) == (403, True)
        assert await visitor.counted("enrol_token") == 1
        assert (await visitor.enrol(str(token)))[0] == 200, "a refusal uses no token up"

    visit(tmp_path, story)


@pytest.mark.parametrize(
    "changes",
    [{"signature": "00" * 64}, {"region": "south"}, {"public_key": PrivateKey.generate().public_hex}],
)
def test_an_enrolment_that_its_key_did_not_sign_is_refused_and_counted(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    async def story(visitor: Visitor) -> None:
        status, problem = await visitor.enrol(await visitor.token(), **changes)
        assert (status, "not signed" in problem["detail"]) == (403, True)
        assert (await visitor.ask("GET", "/v1/nodes"))[1] == {"nodes": []}
        assert await visitor.counted("enrol_signature") == 1

    visit(tmp_path, story)


def test_tokens_are_bound_to_node_region_and_time(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        for fields, words in (
            ({"node": "n7"}, "enrols n7"),
            ({"region": "south"}, "region south"),
            ({"valid_s": 1e-6}, "expired"),
        ):
            status, problem = await visitor.enrol(await visitor.token(**fields))
            assert (status, words in problem["detail"]) == (403, True), problem

    visit(tmp_path, story)


def test_another_key_for_a_known_name_needs_a_token_made_for_that_name(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        assert (await visitor.enrol(await visitor.token()))[0] == 200
        thief = PrivateKey.generate()
        status, problem = await visitor.enrol(await visitor.token(), key=thief)
        assert (status, "enrolled with another key" in problem["detail"]) == (403, True)
        assert (await visitor.enrol(await visitor.token(node="n1"), key=thief))[0] == 200

    visit(tmp_path, story)


def test_enrolments_above_the_rate_are_asked_to_come_later(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        token = await visitor.token()
        statuses = [(await visitor.enrol(token))[0] for _ in range(4)]
        assert statuses == [200, 200, 200, 429]

    visit(tmp_path, story, nodes={"enrol_per_minute": 3})


def test_a_name_that_may_not_stand_in_a_topic_is_refused(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        for name in ("coordinator", "a/b", "+", ""):
            status, _ = await visitor.enrol(await visitor.token(), node=name)
            assert status == 422

    visit(tmp_path, story)


# --- who may ask ----------------------------------------------------------------------------------------


def test_tcp_needs_the_token_and_the_right_host(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        assert (await visitor.tcp("GET", "/v1/nodes"))[0] == 401
        wrong = {"Authorization": "Bearer wrong"}
        assert (await visitor.tcp("GET", "/v1/nodes", headers=wrong))[0] == 401
        assert (await visitor.tcp("POST", "/v1/tokens", json={}))[0] == 401
        assert (await visitor.tcp("GET", "/v1/nodes", headers=visitor.bearer))[0] == 200
        rebound = {**visitor.bearer, "Host": "evil.example"}
        assert (await visitor.tcp("GET", "/v1/nodes", headers=rebound))[0] == 421

    visit(tmp_path, story)


def test_it_serves_while_the_broker_is_away_and_says_so(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        assert (await visitor.ask("GET", "/healthz"))[0] == 200
        status, body = await visitor.ask("GET", "/readyz")
        assert (status, "broker" in body["reasons"][0]) == (503, True)
        _, glance = await visitor.ask("GET", "/v1/status")
        assert (glance["term"], glance["is_broker_up"], glance["fleet"]) == (1, False, "test")
        _, document = await visitor.ask("GET", "/v1/openapi.json")
        assert {"/v1/nodes/{name}", "/v1/tasks/{id}", "/v1/blobs/{hash}"} <= set(document["paths"])
        figures = (await visitor.tcp("GET", "/metrics", headers=visitor.bearer))[1].decode()
        assert "skerry_coordinator_placement_seconds" in figures

    visit(tmp_path, story)


def test_a_revoked_node_is_refused_from_then_on(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        await visitor.enrol(await visitor.token())
        name = "sha256:" + "0" * 64
        signed = signed_headers(KEY, "n1", "HEAD", f"/v1/blobs/{name}")
        assert (await visitor.tcp("HEAD", f"/v1/blobs/{name}", headers=signed))[0] == 404
        status, node = await visitor.ask("DELETE", "/v1/nodes/n1")
        assert (status, node["status"], node.get("public_key", "")) == (200, "quarantined", "")
        assert (await visitor.tcp("HEAD", f"/v1/blobs/{name}", headers=signed))[0] == 403
        visitor.message(
            "skerry/1/test/n1/birth", Speaker(KEY, source="n1", session=1).seal("t", "birth", b"{}")
        )
        assert await visitor.counted("unknown_sender") == 1
        assert (await visitor.ask("POST", "/v1/nodes/n1/release"))[0] == 409
        assert (await visitor.ask("DELETE", "/v1/nodes/n2"))[0] == 404

    visit(tmp_path, story)


# --- what is listed -------------------------------------------------------------------------------------


def test_a_task_is_shown_with_its_placements_and_their_decisions(tmp_path: Path) -> None:
    task_id = "a" * 32

    async def story(visitor: Visitor) -> None:
        clock = visitor.office.clock
        entry = LedgerTask(
            task_id=task_id,
            home_node="n1",
            kind="task",
            state=TaskState.PLACED,
            received=Moment(clock.now(), clock.wall_s()),
            task=a_task(),
            fence=Fence((1, 1)),
            node="n2",
        )
        decision = Decision(task_id=task_id, decided_by="coordinator:score", node="n2", reason="nearest")
        made = Placement(
            task_id=task_id, fence=Fence((1, 1)), node="n2", placed_wall_s=1.0, decision=decision
        )
        await visitor.office.ask(lambda core: core.ledger.put_task(entry))
        await visitor.office.ask(lambda core: core.ledger.add_placement(made))

        _, shown = await visitor.ask("GET", f"/v1/tasks/{task_id}")
        assert (shown["state"], shown["node"], shown["task"]["spec"]["executor"]) == (
            "placed",
            "n2",
            "command",
        )
        assert shown["placements"][0]["decision"]["reason"] == "nearest"
        _, page = await visitor.ask("GET", "/v1/tasks?state=placed&limit=1")
        assert (len(page["tasks"]), page["before"]) == (1, task_id)
        assert (await visitor.ask("GET", f"/v1/tasks/{'b' * 32}"))[0] == 404
        assert (await visitor.ask("GET", "/v1/tasks/x"))[0] == 422
        status, problem = await visitor.ask("GET", "/v1/tasks?stat=placed")
        assert (status, "did you mean state" in problem["detail"]) == (422, True)

    visit(tmp_path, story)


def test_a_token_request_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        assert (await visitor.ask("POST", "/v1/tokens", json={"nod": "n1"}))[0] == 422
        assert (await visitor.ask("POST", "/v1/tokens", data=b"{"))[0] == 400

    visit(tmp_path, story)


# --- content --------------------------------------------------------------------------------------------


def named(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_an_enrolled_node_puts_and_gets_content_with_its_signature(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    path = f"/v1/blobs/{named(data)}"

    async def story(visitor: Visitor) -> None:
        await visitor.enrol(await visitor.token())
        put = signed_headers(KEY, "n1", "PUT", path)
        assert (await visitor.tcp("PUT", path, headers=put, data=data))[0] == 201
        assert (await visitor.tcp("PUT", path, headers=put, data=data))[0] == 200
        get = signed_headers(KEY, "n1", "GET", path)
        assert await visitor.tcp("GET", path, headers=get) == (200, data)
        part = await visitor.tcp("GET", path, headers={**get, "Range": "bytes=1000-1999"})
        assert part == (206, data[1000:2000])
        beyond = await visitor.tcp("GET", path, headers={**get, "Range": f"bytes={len(data)}-"})
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


# --- the door for messages ------------------------------------------------------------------------------


def a_birth(session: int = 1) -> bytes:
    inventory = an_inventory(hardware_id="hw")
    return msgspec.json.encode(
        Birth(boot_id="b", session=session, inventory=inventory, region="north", store_epoch="e")
    )


def test_refused_envelopes_are_counted_by_reason_and_change_nothing(tmp_path: Path) -> None:
    topic = "skerry/1/test/n1/birth"

    async def story(visitor: Visitor) -> None:
        await visitor.enrol(await visitor.token())
        speaker = Speaker(KEY, source="n1", session=1)
        good = speaker.seal(topic, "birth", a_birth())
        stranger = Speaker(PrivateKey.generate(), source="n1", session=1)
        reasons: list[str] = []
        for payload, where, reason in (
            (b"hello", topic, "malformed"),
            (stranger.seal(topic, "birth", a_birth()), topic, "bad_signature"),
            (good, "skerry/1/test/n2/birth", "not_owner"),
            (Speaker(KEY, source="n3", session=1).seal(topic, "birth", b""), topic, "unknown_sender"),
            (good[:-1] + b"x", topic, "bad_signature"),
            (good, "skerry/1/test/n1/state", "bad_signature"),
            (good, "other/topic", "wrong_topic"),
            (bytes(600 * 1024), topic, "too_large"),
        ):
            visitor.message(where, payload)
            reasons.append(reason)
        for reason in reasons:
            assert await visitor.counted(reason) >= 1
        _, node = await visitor.ask("GET", "/v1/nodes/n1")
        assert node.get("session", 0) == 0

        visitor.message(topic, good)
        visitor.message(topic, good)
        assert await visitor.counted("replayed") == 1
        _, node = await visitor.ask("GET", "/v1/nodes/n1")
        assert (node["session"], node["status"]) == (1, "online")

    visit(tmp_path, story)


def test_an_old_session_is_refused_after_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    topic = "skerry/1/test/n1/birth"

    async def before(visitor: Visitor) -> None:
        await visitor.enrol(await visitor.token())
        visitor.message(topic, Speaker(KEY, source="n1", session=5).seal(topic, "birth", a_birth(5)))
        await visitor.office.ask(lambda core: core.nodes())

    async def after(visitor: Visitor) -> None:
        visitor.message(topic, Speaker(KEY, source="n1", session=4).seal(topic, "birth", a_birth(4)))
        assert await visitor.counted("old_session") == 1
        assert visitor.office.runtime.term == 2

    visit(tmp_path, before)
    visit(tmp_path, after)


def test_a_job_that_fails_inside_is_undone_and_the_others_go_on(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        core_now = visitor.office.clock.now()

        def fail(core: Any) -> None:
            core.ledger.count("written")
            core.memory.nodes["ghost"] = NodeNow(NodeRecord(name="ghost", fleet="f", region="r"), core_now)
            raise ZeroDivisionError

        failing = visitor.office.ask(fail)
        fine = visitor.office.ask(lambda core: core.ledger.count("kept"))
        results = await asyncio.gather(failing, fine, return_exceptions=True)
        assert isinstance(results[0], ZeroDivisionError)
        names = [c["name"] for c in (await visitor.ask("GET", "/v1/counters"))[1]["counters"]]
        assert (names.count("kept"), names.count("written")) == (1, 0)
        assert (await visitor.ask("GET", "/v1/nodes"))[1] == {"nodes": []}

    visit(tmp_path, story)
