"""The pages about the coordinator say what there is: every route, every figure."""

from __future__ import annotations

import re
from pathlib import Path

from cloud_coordinator.api.testing import Visitor, visit
from tests.docs.figures import on_the_page, shown

PAGES = Path(__file__).parents[2] / "docs" / "reference"
PREFIX = "skerry_coordinator"
ROW = re.compile(r"^\| ((?:`[A-Z]+` ?)+)\| `(/[^`]+)` \|", re.MULTILINE)


def test_every_route_is_on_a_page_and_no_other(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        _, document = await visitor.ask("GET", "/v1/openapi.json")
        there = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}

        assert routes_on_the_pages() == there | {("GET", "/v1/openapi.json")}

    visit(tmp_path, story)


def test_every_figure_of_a_coordinator_is_on_the_page_and_no_other(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        await visitor.ask("GET", "/v1/status")
        visitor.message("skerry/1/test/n1/birth", b"noise")
        await visitor.counted("malformed")
        there = shown(visitor.office.figures.metrics.registry, PREFIX)

        page = on_the_page(PREFIX)
        assert page.keys() == there.keys()
        assert all(labels <= page[name] for name, labels in there.items())
        assert there[f"{PREFIX}_refused_total"] == {"reason"}
        assert there[f"{PREFIX}_http_requests_total"] == page[f"{PREFIX}_http_requests_total"]

    visit(tmp_path, story)


def routes_on_the_pages() -> set[tuple[str, str]]:
    """Return method and path of each row of the three pages about the coordinator's HTTP."""
    text = "\n".join(
        (PAGES / f"{name}.md").read_text() for name in ("coordinator-api", "rollout-api", "rounds")
    )
    return {
        (method, path) for methods, path in ROW.findall(text) for method in re.findall(r"[A-Z]+", methods)
    }
