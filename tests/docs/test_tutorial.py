"""The tutorial does what it says: its commands are run as they stand, with real processes, in a new home."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from skerry.cli.demo.brokers import free_port

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-task.md"
SBIN = "/usr/sbin"
#: `skerry` says so when no service listens: it may still be starting, as for a reader who types fast.
UNREACHABLE = 4
STEP_TIMEOUT_S = 60.0


def load_console() -> ModuleType:
    """The module beside this one; tests are no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("console", Path(__file__).with_name("console.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["console"] = module
    spec.loader.exec_module(module)
    return module


console = load_console()


@pytest.mark.chaos
@pytest.mark.mosquitto
@pytest.mark.timeout(240)
def test_every_command_of_the_tutorial_does_what_the_page_shows(tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"], SBIN))
    if shutil.which("mosquitto", path=path) is None:
        pytest.skip("mosquitto is not installed")
    ports = {"1883": str(free_port()), "8470": str(free_port())}
    environ = {"HOME": str(tmp_path), "PATH": path, "LANG": "C.UTF-8"}

    with console.Shell(tmp_path, environ) as shell:
        for step in console.steps_of(TUTORIAL.read_text()):
            command = step.command
            for written, free in ports.items():
                command = command.replace(written, free)
            status, printed = run_when_reachable(shell, command)
            assert status == 0, f"$ {command}\n{printed}"
            assert console.is_shown(step.shown, printed), f"$ {command}\n{printed}\nshown: {step.shown}"


def run_when_reachable(shell: console.Shell, command: str) -> tuple[int, str]:  # type: ignore[name-defined]
    """Run a command, again while its service is still starting."""
    deadline = time.monotonic() + STEP_TIMEOUT_S
    while True:
        status, printed = shell.run(command, STEP_TIMEOUT_S)
        if status != UNREACHABLE or time.monotonic() > deadline:
            return status, printed
        time.sleep(0.2)  # the service it asks was started a line before and says nothing when it is ready


def test_shown_lines_must_come_in_order_and_may_leave_things_out() -> None:
    assert console.is_shown(["a…c", "d"], "abbbc\nextra\nd\n")
    assert not console.is_shown(["d", "a"], "a\nd\n")
    assert not console.is_shown(["a"], "ab\n")


def test_steps_keep_their_continuation_lines_and_output() -> None:
    text = "```console\n$ cat <<'X'\n> one\n>\n> X\none\n```\n\n```sh\n$ not this\n```\n"

    [step] = console.steps_of(text)

    assert step.command == "cat <<'X'\none\n\nX"
    assert step.shown == ["one"]


def test_the_shell_keeps_variables_and_tells_the_exit_status(tmp_path: Path) -> None:
    with console.Shell(tmp_path, {"PATH": os.environ["PATH"]}) as shell:
        shell.run("A=1", 10)

        assert shell.run("echo $A; false", 10) == (1, "1\n")


def test_leaving_the_shell_ends_its_jobs(tmp_path: Path) -> None:
    with console.Shell(tmp_path, {"PATH": os.environ["PATH"]}) as shell:
        shell.run("sleep 600 &", 10)
        _, printed = shell.run("jobs -p", 10)

    with pytest.raises(ProcessLookupError):
        os.kill(int(printed), 0)
