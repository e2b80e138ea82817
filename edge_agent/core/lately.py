"""What each device did lately, kept as the learned policy saw it in training: see policy.history.

Owns when a figure moves: with a task's first device, with the start and with the end of a run.
"""

from __future__ import annotations

from devices.port import SAYS_NOTHING, Report
from edge_agent.core.entry import Entry
from edge_agent.core.state import Lane, State, Turn
from policy.history import after_choice, after_run


def placed(state: State, entry: Entry) -> None:
    """Count a task for its device, once: deciding it again does not make it another task."""
    if entry.has_been_placed:
        return
    entry.has_been_placed = True
    for device_id, lane in state.lanes.items():
        lane.history = after_choice(lane.history, is_chosen=device_id == entry.device_id)


def begun(lane: Lane, entry: Entry) -> None:
    """Take a model as loaded from the moment on at which a task that needs it begins."""
    entry.has_to_load = bool(entry.model) and entry.model not in lane.loaded
    if entry.has_to_load:
        lane.loaded = (*lane.loaded, entry.model)


def has_run(turn: Turn, entry: Entry, report: Report) -> None:
    """Take in how a run went, and what its executor holds now.

    Only a run time that was expected from runs on this device tells how far expectations can be trusted.
    """
    lane = turn.state.lanes.get(entry.device_id or "")
    if lane is None:
        return
    if report.loaded is not None:
        lane.loaded = report.loaded
    if report.status in SAYS_NOTHING:
        return
    is_telling = report.status == "succeeded" and entry.is_measured and entry.runtime_s > 0
    lane.history = after_run(
        lane.history,
        ratio=(report.runtime_s - report.load_s) / entry.runtime_s if is_telling else None,
        has_missed=entry.deadline_at is not None and turn.uptime_s > entry.deadline_at,
    )
