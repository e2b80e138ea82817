"""The same app under Flower's own command and simulation engine: the same model as on our grids."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from federation.flower import internals
from federation.flower.client_app import app as client_app
from federation.flower.environment import SWITCHES
from federation.flower.journal import MemoryJournal
from federation.flower.server_app import app as server_app
from federation.flower.server_app import summary_of
from federation.flower.settings import to_run_config
from federation.grid.local import LocalGrid, numbered
from federation.values import RunSpec

ROOT = Path(__file__).resolve().parents[2]
NODES = 3


@pytest.fixture
def flower_home(tmp_path: Path) -> Iterator[Path]:
    """A home of Flower's own; what the command leaves running there is ended."""
    home = tmp_path / "flwr"
    home.mkdir()
    yield home
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("FLWR_HOME") == str(home):
            process.kill()


@pytest.mark.timeout(240)
def test_the_app_makes_the_same_model_under_flwr_run(tmp_path: Path, flower_home: Path) -> None:
    spec = RunSpec(run_id="simulation", trainer="toy", rounds=3, patience_s=120.0)
    journal = MemoryJournal(spec)
    grid = LocalGrid(client_app, numbered(f"n{n}" for n in range(NODES)), journal=journal)
    server_app(grid, internals.context(1, {}, to_run_config(spec)))
    app = tmp_path / "app"
    app.mkdir()
    shutil.copy(ROOT / "federation" / "flower" / "pyproject.toml", app)
    result = tmp_path / "result.json"

    run_under_flower(app, flower_home, f'rounds=3 trainer="toy" patience-s=120.0 result="{result}"')

    outcome = msgspec.json.decode(result.read_bytes())
    assert len(outcome.pop("took_s")) == 3
    assert outcome == summary_of(journal.load())


def run_under_flower(app: Path, home: Path, config: str) -> None:
    """Run the app with `flwr run` in simulation; fails with what it said."""
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = ":local:"\n'
    )
    command = Path(sys.executable).with_name("flwr")
    path = f"{command.parent}:{os.environ['PATH']}"  # the engine starts programs beside itself
    environment = {**os.environ, **SWITCHES, "FLWR_HOME": str(home), "PATH": path}
    done = subprocess.run(
        [
            command,
            "run",
            str(app),
            "here",
            "--stream",
            "--run-config",
            config,
            "--federation-config",
            f"num-supernodes={NODES} client-resources-num-cpus=1",
        ],
        capture_output=True,
        text=True,
        timeout=220,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
