"""A name that a flipped bit changed in the schema hides no table: its rows tell which one it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_queue.damage.page_size import PAGE_BYTES
from tests.queue.broken_queue import a_whole_queue, broken_copy, check_what_comes_back


@pytest.mark.parametrize(
    ("written", "distorted"), [(b"tabletasktask", b"tablet!sktask"), (b"tablebody", b"tablebodx")]
)
def test_a_table_of_another_name_is_known_by_its_rows(
    tmp_path: Path, written: bytes, distorted: bytes
) -> None:
    whole = a_whole_queue(tmp_path / "queue", rounds=3, is_in_log=False)
    path = broken_copy(whole, tmp_path / "copy")
    content = path.read_bytes()
    at = content.rindex(written)  # what stands before it are pages that are used no more
    path.write_bytes(content[:at] + distorted + content[at + len(distorted) :])

    salvaged = check_what_comes_back(whole, tmp_path / "copy", {at // PAGE_BYTES + 1})

    assert "lost={}" in salvaged
