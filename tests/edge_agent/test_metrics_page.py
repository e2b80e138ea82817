"""The page about figures for monitors has each figure of an agent, with its labels, and no other."""

from __future__ import annotations

import asyncio

from edge_agent.api.app import build_agent_app
from edge_agent.runtime_report import register_figures
from skerry.metrics import Metrics
from skerry.web import Access
from tests.docs.figures import on_the_page, shown
from tests.edge_agent.conftest import RunAgent

PREFIX = "skerry_agent"


def test_every_figure_of_an_agent_is_on_the_page_and_no_other(run_agent: RunAgent) -> None:
    async def story() -> dict[str, set[str]]:
        metrics = Metrics(PREFIX)
        async with run_agent() as agent:
            register_figures(metrics, agent)
            build_agent_app(agent, version="0", access=Access(), metrics=metrics)
            agent.core.count("device_faults")
            return shown(metrics.registry, PREFIX)

    there = asyncio.run(story())

    page = on_the_page(PREFIX)
    assert page.keys() == there.keys()
    assert all(labels <= page[name] for name, labels in there.items())
    assert there[f"{PREFIX}_tasks"] == {"state"}
    assert there[f"{PREFIX}_events"] == {"what"}
