"""The folder `queue/` never hides the standard library's `queue`, however Python is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = "import queue; queue.Queue; print(queue.__file__)"
PLACES = {"root": ROOT, "queue folder": ROOT / "queue", "elsewhere": Path("/")}


def run(*arguments: str, cwd: Path, pythonpath: str | None = None) -> str:
    """The standard output of one Python started with these arguments; a failure shows what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if pythonpath is not None:
        environment["PYTHONPATH"] = pythonpath
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def assert_standard(printed: str) -> None:
    """The file printed last is the one in the interpreter's own library."""
    assert Path(printed.splitlines()[-1]) == Path(os.__file__).with_name("queue.py")


def test_the_queue_folder_is_no_package() -> None:
    assert (ROOT / "queue" / "task_queue" / "__init__.py").is_file()
    assert not (ROOT / "queue" / "__init__.py").exists()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pythonpath", [None, ".", str(ROOT)])
def test_python_c_sees_the_standard_queue(place: str, pythonpath: str | None) -> None:
    assert_standard(run("-c", PROBE, cwd=PLACES[place], pythonpath=pythonpath))


def test_python_isolated_sees_the_standard_queue() -> None:
    assert_standard(run("-I", "-c", PROBE, cwd=ROOT))


def test_python_m_sees_the_standard_queue() -> None:
    printed = run("-m", "timeit", "-n", "1", "-r", "1", "-s", PROBE, "pass", cwd=ROOT)
    assert_standard("\n".join(line for line in printed.splitlines() if line.endswith(".py")))


def test_the_packages_import_beside_the_standard_queue() -> None:
    probe = "import edge_agent, cloud_coordinator, devices, policy, task_queue; " + PROBE
    assert_standard(run("-c", probe, cwd=ROOT))
    assert_standard(run("-c", probe, cwd=Path("/")))


@pytest.mark.parametrize("place", PLACES)
def test_a_script_sees_the_standard_queue(tmp_path: Path, place: str) -> None:
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    assert_standard(run(str(script), cwd=PLACES[place], pythonpath="."))


def test_pytest_sees_the_standard_queue_in_a_folder_of_the_same_name(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "queue"
    folder.mkdir(parents=True)
    (tmp_path / "queue").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (folder / "test_probe.py").write_text(f"def test_probe():\n    {PROBE}\n")
    printed = run("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "tests", cwd=tmp_path)
    assert str(Path(os.__file__).with_name("queue.py")) in printed


def test_this_pytest_run_has_the_standard_queue() -> None:
    import queue

    assert_standard(str(queue.__file__))


def test_no_test_folder_is_a_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))
