"""Updates that are not merged yet survive a full content store."""

from __future__ import annotations

import sys
from pathlib import Path

from cloud_coordinator import rounds_inbox
from cloud_coordinator.api.testing import Visitor, visit
from federation.values import Instruction, Reply, instruction_id

_IDLE = f"#!{sys.executable}\nimport time\ntime.sleep(600)\n"


def test_what_letters_and_stored_replies_name_is_referenced(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(_IDLE)
    python.chmod(0o700)
    waiting, stored = f"sha256:{1:064x}", f"sha256:{2:064x}"

    async def story(visitor: Visitor) -> None:
        rounds = visitor.office.rounds
        assert (await visitor.ask("POST", "/v1/rounds", json={"name": "r1", "trainer": "null"}))[0] == 201
        service = await rounds.service()
        one = instruction_id("r1", 0, "n1")
        asked = Instruction(
            id=one, run_id="r1", version=0, node="n1", model="", trainer="null", config={}, ttl_s=1.0
        )
        now = visitor.office.clock.now()
        await service.call(lambda: service.office.ledger.push([asked], now))
        reply = Reply(instruction_id=one, run_id="r1", node="n1", base_version=0, update=stored)
        assert await service.on_reply([reply]) == [None]
        assert await rounds.referenced() == {stored}

        letter = Reply(instruction_id="f" * 32, run_id="r1", node="n2", base_version=0, update=waiting)
        await visitor.office.ask(lambda core: rounds_inbox.put(core.ledger, letter))
        assert await rounds.referenced() == {stored, waiting}

        await service.cancel("r1")
        assert await rounds.referenced() == {waiting}

    visit(tmp_path, story, federation={"python": str(python)})
