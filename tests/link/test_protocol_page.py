"""The page that describes the protocol says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from skerry.envelope import REFUSALS
from skerry.link.wire import KINDS
from skerry.topics import COORDINATOR, UP, Leaf, Topic

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "protocol.md").read_text()


def first_cells(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, line by line, header left out."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_lists_every_leaf_with_its_speaker() -> None:
    documented = {line[0]: line[1] for line in first_cells("Topics")}

    owners = {leaf.value: Topic("f", "node", leaf).owner for leaf in Leaf}
    assert documented == {
        leaf: COORDINATOR if owner == COORDINATOR else "node" for leaf, owner in owners.items()
    }
    assert {leaf for leaf, who in documented.items() if who == "node"} == {leaf.value for leaf in UP}


def test_the_page_lists_every_type_of_message() -> None:
    listed = (kind.strip("` ") for line in first_cells("Topics") for kind in line[2].split(","))
    assert set(listed) == set(KINDS.values())


def test_the_page_lists_the_refusals_in_the_order_of_the_checks() -> None:
    assert tuple(line[0] for line in first_cells("Refusals")) == REFUSALS


def test_the_pages_numbers_are_the_codes() -> None:
    from skerry.envelope import MAX_BODY_BYTES, MAX_PAYLOAD_BYTES
    from skerry.link.sender import BATCH_BYTES, BATCH_ROWS, MAX_ROW_BYTES, RESEND_S, WINDOW_BATCHES
    from skerry.replay import WINDOW

    numbers = {
        rf"at most {MAX_PAYLOAD_BYTES // 1024} KiB, a body at most {MAX_BODY_BYTES // 1024**2} MiB",
        rf"at most {BATCH_ROWS}, or {BATCH_BYTES // 1024} KiB",
        rf"above {MAX_ROW_BYTES // 1024} KiB",
        rf"{WINDOW_BATCHES} a lane",
        rf"after {RESEND_S:.0f} s, then {2 * RESEND_S:.0f} s, then every {4 * RESEND_S:.0f} s",
        rf"{WINDOW} or more behind",
    }
    assert [number for number in numbers if not re.search(number, PAGE)] == []
