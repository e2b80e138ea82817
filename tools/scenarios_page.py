"""Writes the page about scenarios from the scenarios that ship and the language they are written in."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from twin.scenario import expect, faults
from twin.scenario.language import Scenario
from twin.scenario.library import find, names

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "scenarios.md"
LIBRARY = "../../twin/scenario/library"
FIELD = re.compile(r"^    (\w+): .*?#: (.+)$", re.MULTILINE)
HEAD = """\
# Scenarios

What ships with `skerry twin run`, what can go wrong in a scenario, and what can be expected of it beside the
laws, which every run checks. To write one: [rehearse your own outage](../how-to/rehearse-your-own-outage.md).
Which of them shows what people met, and which tests go further, is on the page about
[promises](../explanation/promises.md#faults-that-people-met).

This page is written by `tools/scenarios_page.py`.
"""
WHEN = """
## What can go wrong

`at_s` is counted from when the load begins. `on` names whom it hits; a fault comes again with `every_s` and
`times`, and `spread_s` moves each time by a draw.
"""


def page() -> str:
    """The page as it should be."""
    parts = [
        HEAD,
        "## The scenarios that ship\n",
        *_table(
            ("scenario", "what happens", "met in the field as", "faults", "expected beside the laws"), _rows()
        ),
        WHEN,
        *_table(("kind", "what happens", "its own words"), map(_kind, faults.Fault.__args__)),
        "\n## What can be expected\n",
        *_table(("under `[expect]`", "what it asks for"), _expectations()),
    ]
    return "\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _rows() -> Iterator[Sequence[str]]:
    for name in names():
        scenario = find(name)
        kinds = dict.fromkeys(f"`{_tag(type(fault))}`" for fault in scenario.fault)
        asked = (f"`{field}` {value}" for field, value in _told(scenario.expect))
        yield (
            f"[{name}]({LIBRARY}/{name}.toml)",
            scenario.about,
            "; ".join(scenario.shows),
            ", ".join((*kinds, *_others(scenario))) or "none",
            ", ".join(asked) or "nothing",
        )


def _others(scenario: Scenario) -> Iterator[str]:
    """What stands in a scenario beside its load and its faults."""
    for what, parts in (("rounds", scenario.round), ("a rollout", scenario.rollout)):
        if parts:
            yield f"during {what}"


def _told(struct: msgspec.Struct) -> Iterator[tuple[str, str]]:
    for field, default in zip(struct.__struct_fields__, _defaults(type(struct)), strict=True):
        value = getattr(struct, field)
        if value == default:
            continue
        if isinstance(value, dict):
            yield field, "; ".join(f"{key}: {one}" for key, one in value.items())
        else:
            yield field, f"{value:g}" if isinstance(value, float) else str(value)


def _defaults(kind: type[msgspec.Struct]) -> Iterator[object]:
    for field in msgspec.structs.fields(kind):
        made = field.default_factory
        yield field.default if made is msgspec.NODEFAULT else made()


def _kind(fault: type[msgspec.Struct]) -> Sequence[str]:
    text = inspect.cleandoc(fault.__doc__ or "")
    what, _, fields = text.partition("\n\n")
    common = {field.name for field in msgspec.structs.fields(faults.SecondStart)}
    own = [f"`{field.name}`" for field in msgspec.structs.fields(fault) if field.name not in common]
    said = f". {_in_one_line(fields)}" if fields else ""
    return f"`{_tag(fault)}`", _in_one_line(what), ", ".join(own) + said or "none"


def _expectations() -> Iterator[Sequence[str]]:
    for field, meaning in FIELD.findall(inspect.getsource(expect.Expect)):
        yield f"`{field}`", meaning


def _tag(fault: type[msgspec.Struct]) -> str:
    return str(fault.__struct_config__.tag)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
