"""The coordinator's door for messages: what is refused is counted and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from cloud_coordinator.api.testing import KEY, Visitor, visit
from cloud_coordinator.core.turn import NodeNow
from cloud_coordinator.testing import an_inventory
from skerry.envelope import Speaker
from skerry.identity import PrivateKey
from skerry.messages import Birth
from skerry.node import NodeRecord


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


def test_after_a_release_the_original_is_heard_though_its_copy_had_a_newer_session(tmp_path: Path) -> None:
    topic = "skerry/1/test/n1/birth"

    def born(speaker: Speaker, hardware_id: str, session: int) -> bytes:
        inventory = an_inventory(hardware_id=hardware_id)
        birth = Birth(boot_id=hardware_id, session=session, inventory=inventory, region="north")
        return speaker.seal(topic, "birth", msgspec.json.encode(birth))

    async def story(visitor: Visitor) -> None:
        await visitor.enrol(await visitor.token())
        original = Speaker(KEY, source="n1", session=1)
        first = born(original, "hw-1", 1)
        visitor.message(topic, first)
        visitor.message(topic, born(Speaker(KEY, source="n1", session=2), "hw-2", 2))
        assert (await visitor.ask("GET", "/v1/nodes/n1"))[1]["status"] == "quarantined"
        visitor.message(topic, born(original, "hw-1", 1))
        assert await visitor.counted("old_session") == 1

        await visitor.ask("POST", "/v1/nodes/n1/release")
        visitor.message(topic, first)
        assert await visitor.counted("replayed") == 1
        visitor.message(topic, born(original, "hw-1", 1))
        _, node = await visitor.ask("GET", "/v1/nodes/n1")
        assert (node["session"], node["status"]) == (1, "online")

        visitor.message(topic, born(Speaker(KEY, source="n1", session=3), "hw-2", 3))
        assert (await visitor.ask("POST", "/v1/nodes/n1/release?moved=perhaps"))[0] == 422
        await visitor.ask("POST", "/v1/nodes/n1/release?moved=true")
        visitor.message(topic, born(Speaker(KEY, source="n1", session=4), "hw-2", 4))
        _, node = await visitor.ask("GET", "/v1/nodes/n1")
        assert (node["session"], node["status"], node["inventory"]["hardware_id"]) == (4, "online", "hw-2")

    visit(tmp_path, story)
