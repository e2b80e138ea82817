"""The coordinator's HTTP interface: enrolment, who may ask, what is listed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cloud_coordinator.api.testing import KEY, Visitor, visit
from cloud_coordinator.ledger.values import LedgerTask, Moment, Placement, TaskState
from skerry.decision import Decision
from skerry.enrolment import EnrolAnswer, check_answer, parse_token
from skerry.envelope import Speaker
from skerry.fence import Fence
from skerry.identity import PrivateKey
from skerry.signed_http import signed_headers
from skerry.testing import a_task


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


def test_a_page_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        for value in ("nan", "-1", "1e300", "9" * 30):
            for page in ("tasks?limit", "dead-letters?limit", "dead-letters?before"):
                status, body = await visitor.ask("GET", f"/v1/{page}={value}")
                assert (status, body["field"]) == (422, page.partition("?")[2]), (page, value)

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
