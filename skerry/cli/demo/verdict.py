"""The demo's reckoning: what was submitted, what took effect, what each side wrote down – task by task.

Pure. Owns the rules of agreement; knows nothing of processes or databases. The submission log and the witness
file are written outside the queue, so the queue's own word is checked and never taken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One id that an agent gave out, as the submitter wrote it down."""

    task_id: str
    node: str
    kind: str
    number: int  #: its place in its node's share


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the witness file: this attempt took effect."""

    task_id: str
    fence: str


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent's database says of a task. attempts: fence → how that attempt ended."""

    node: str
    state: str
    fence: str
    is_home: bool
    attempts: Mapping[str, str]


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator's ledger says of a task."""

    status: str
    fence: str
    node: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. problems: one sentence each, empty when everything agrees."""

    submitted: int
    done: int
    lost: int
    done_twice: int
    attempts_cut_short: int
    problems: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Nothing lost, nothing done twice, and every record agrees."""
        return not (self.lost or self.done_twice or self.problems) and self.done == self.submitted


def judge(
    submissions: Iterable[Submission],
    effects: Iterable[Effect],
    entries: Mapping[str, Iterable[NodeEntry]],
    ledger: Mapping[str, LedgerEntry],
) -> Verdict:
    """Compare the four records task by task.  entries: task id → what each agent that knows it says."""
    by_id = {s.task_id: s for s in submissions}
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    for effect in effects:
        lines[effect.task_id][effect.fence] += 1
    problems = [f"{task_id}: took effect but was never submitted" for task_id in lines.keys() - by_id.keys()]
    problems += [f"{task_id}: in the ledger but never submitted" for task_id in ledger.keys() - by_id.keys()]
    done = lost = twice = cut_short = 0
    for task_id, submission in by_id.items():
        known = tuple(entries.get(task_id, ()))
        home = next((e for e in known if e.is_home and e.node == submission.node), None)
        if home is None or home.state != "done":
            lost += 1
            problems.append(f"{task_id}: {home.state if home else 'unknown'} at its home {submission.node}")
            continue
        done += 1
        winners = {f for e in known for f, ended in e.attempts.items() if ended == "succeeded"}
        if len(winners) > 1 or lines[task_id][home.fence] > 1:
            twice += 1
        cut_short += sum(ended == "interrupted" for e in known for ended in e.attempts.values())
        problems += _disagreements(task_id, home, known, ledger.get(task_id), lines[task_id])
    return Verdict(
        submitted=len(by_id),
        done=done,
        lost=lost,
        done_twice=twice,
        attempts_cut_short=cut_short,
        problems=tuple(problems),
    )


def _disagreements(
    task_id: str,
    home: NodeEntry,
    known: tuple[NodeEntry, ...],
    ledger: LedgerEntry | None,
    lines: Counter[str],
) -> list[str]:
    found: list[str] = []
    if ledger is None:
        found.append("missing from the ledger")
    elif (ledger.status, ledger.fence) != ("succeeded", home.fence):
        found.append(f"the ledger has {ledger.status} under {ledger.fence}, its home {home.fence}")
    else:
        ran = next((e for e in known if e.node == ledger.node), None)
        if ran is None or ran.attempts.get(home.fence) != "succeeded":
            found.append(f"{ledger.node} has no successful attempt {home.fence}")
    if lines[home.fence] != 1:
        found.append(f"{lines[home.fence]} effects under its fence {home.fence}, not one")
    ended = {fence: how for entry in known for fence, how in entry.attempts.items()}
    for fence in lines.keys() - {home.fence}:
        if ended.get(fence) not in {"interrupted", "failed"}:
            found.append(f"an effect under {fence}, an attempt that ended {ended.get(fence, 'nowhere')}")
    return [f"{task_id}: {what}" for what in found]
