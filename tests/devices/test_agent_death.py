"""No child outlives its agent, however the agent ends, and the next agent finds what could not be ended."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devices.executors.descendants import children_of
from devices.executors.orphans import agent_marker, end_marked, end_orphans, marked
from devices.reader import SysReader

pytestmark = pytest.mark.chaos

PATIENCE_S = 20.0
DOOMED = Path(__file__).with_name("doomed_agent.py")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)  # nothing tells us; the condition looks at other processes


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:4]
    except FileNotFoundError:
        return False


def started(data_dir: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a doomed agent; return it with every process below it once all of them run."""
    agent = subprocess.Popen([sys.executable, str(DOOMED), str(data_dir)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    children = [int(pid) for pid in agent.stdout.readline().split()]
    pids = data_dir / "pids"
    until(
        lambda: pids.exists() and len(pids.read_text().split()) == 5, "the command has started all of its own"
    )
    return agent, children + [int(pid) for pid in pids.read_text().split()]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_nothing_outlives_an_agent_that_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    agent, below = started(tmp_path)
    assert len(below) == 7
    assert all(is_alive(pid) for pid in below)

    agent.send_signal(how)
    agent.communicate()

    until(lambda: not any(is_alive(pid) for pid in below), "every process below the agent is gone")
    until(lambda: marked(agent_marker(tmp_path)) == (), "no process carries the agent's marker")


def test_what_even_the_children_could_not_end_is_ended_by_the_next_agent(tmp_path: Path) -> None:
    agent, below = started(tmp_path)
    inference, commands = below[:2]
    os.kill(commands, signal.SIGSTOP)  # it cannot end its commands, and is killed before it can
    agent.kill()
    agent.communicate()
    os.kill(commands, signal.SIGKILL)
    until(lambda: not is_alive(inference), "the inference child is gone")
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / "left").touch()

    killed = end_orphans(tmp_path)

    assert killed >= 1
    assert marked(agent_marker(tmp_path)) == ()
    assert not (tmp_path / "work").exists()
    for pid in below:  # the one that wiped its environment: a service unit's control group would end it
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_only_what_carries_the_marker_is_killed(tmp_path: Path) -> None:
    ours, theirs = agent_marker(tmp_path / "ours"), agent_marker(tmp_path / "theirs")
    processes = []
    for entry in (ours, theirs):
        name, _, value = entry.partition("=")
        processes.append(subprocess.Popen(["sleep", "300"], env={name: value}))

    try:
        killed = end_marked(ours)

        assert killed == 1
        assert processes[0].wait() == -signal.SIGKILL
        assert processes[1].poll() is None
    finally:
        processes[1].kill()
        processes[1].wait()


def test_a_process_spares_itself_and_its_ancestors(tmp_path: Path) -> None:
    name, _, value = agent_marker(tmp_path).partition("=")
    code = f"from devices.executors.orphans import marked; print(marked('{name}={value}'))"

    answer = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{code}"; true'],
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.strip() == "()"


def test_the_marker_follows_the_directory_and_not_its_spelling(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")

    assert agent_marker(tmp_path / "link") == agent_marker(tmp_path / "data")
    assert agent_marker(tmp_path / "data") != agent_marker(tmp_path)


def test_children_are_found_with_and_without_the_kernels_list() -> None:
    own = os.getpid()
    child = subprocess.Popen(["sleep", "300"])
    try:
        listed = children_of(own, SysReader())
        looked_for = children_of(own, SysReader(faults={f"/proc/{own}/task/{own}/children": errno.ENOENT}))
    finally:
        child.kill()
        child.wait()

    assert child.pid in listed
    assert child.pid in looked_for
