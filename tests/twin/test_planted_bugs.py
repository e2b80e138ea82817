"""The search finds bugs that are planted in the product; a patch that does not apply any more says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.twin.planting import PATCHES, ROOT, apply_patch, copy_product, search

#: Found soon enough for every run of the tests: with which seed, in so many scenarios at most. With seed 1
#: all are found, in 35 at most (`python -m tests.chaos.fuzz`).
SOON = {
    "acknowledged-before-commit": (1, 3),
    "acknowledged-by-the-socket": (1, 3),
    "attempt-under-an-old-fence": (2, 4),
    "expired-by-the-wall-clock": (1, 5),
    "inbox-mark-apart-from-its-rows": (4, 4),
    "leases-by-the-wall-clock": (1, 5),
    "mark-moved-though-nothing-was-applied": (1, 5),
    "no-fence-at-commit": (1, 15),
    "old-session-closes-the-newer": (3, 3),
    "once-only-tried-again": (4, 4),
    "report-apart-from-the-end": (4, 4),
    "requests-not-recognised": (4, 4),
    "running-for-ever-after-a-restart": (2, 4),
    "taken-from-a-node-that-is-cut-off": (1, 6),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_product(tmp_path_factory.mktemp("untouched") / "product")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_every_planted_bug_still_fits_the_product(patch: Path, untouched: Path) -> None:
    assert apply_patch(patch, untouched, only_check=True) == ""


@pytest.mark.parametrize("seed", sorted({seed for seed, _ in SOON.values()}))
def test_where_bugs_are_found_the_product_as_it_is_has_none(seed: int, untouched: Path) -> None:
    most = max(most for each, most in SOON.values() if each == seed)

    found = search(untouched, most=most, seconds=240, seed=seed)

    assert (found["find"], found["scenarios"]) == (None, most)


@pytest.mark.parametrize("patch", [p for p in PATCHES if p.stem in SOON], ids=lambda patch: patch.stem)
def test_the_search_finds_a_planted_bug(
    patch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copy_product(tmp_path / "product")
    assert apply_patch(patch, copy) == ""

    seed, most = SOON[patch.stem]
    found = search(copy, most=most, seconds=240, seed=seed)

    assert found["find"] is not None
    with capsys.disabled():
        law, what = found["find"]["broken"][0]["law"], found["find"]["broken"][0]["what"]
        print(f"\n{patch.stem}: found in scenario {found['scenarios']}, law {law}: {what}")


def test_what_is_found_is_told_so_that_it_can_be_run_again(tmp_path: Path) -> None:
    from twin.scenario.language import parse_scenario

    copy = copy_product(tmp_path / "product")
    (patch,) = (p for p in PATCHES if p.stem == "acknowledged-before-commit")
    assert apply_patch(patch, copy) == ""

    find = search(copy, most=3, seconds=120, seed=1)["find"]

    assert parse_scenario(find["scenario"]).group
    assert find["log"]
    assert find["broken"][0]["task_id"]


def test_a_search_without_a_find_says_what_it_did_and_nothing_else() -> None:
    words = ["twin", "fuzz", "--most", "4", "--seconds", "240", "--json"]

    done = subprocess.run(
        [sys.executable, "-m", "skerry.cli", *words], cwd=ROOT, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["scenarios"], told["find"]) == (4, None)
