"""The coordinator as a process: what it says to a user's mistake, how it stops, what it imports."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloud_coordinator.settings import CoordinatorSettings, check_settings, example_toml
from skerry.errors import SettingsError
from skerry.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
#: Starting takes a second or two; a machine under load gets more.
PATIENCE_S = 40.0


def write(path: Path, **values: str) -> Path:
    """A settings file in path; `api__listen` stands for api.listen."""
    given = {
        "data_dir": str(path / "data"),
        "api__listen": "127.0.0.1:0",
        "mqtt__url": "mqtt://127.0.0.1:1",
        **values,
    }
    lines = [f"{name.replace('__', '.')} = {json.dumps(value)}" for name, value in given.items()]
    file = path / "coordinator.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def start(config: Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cloud_coordinator", "--config", str(config)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


def refusal(config: Path) -> tuple[int, str]:
    """The exit status of a coordinator that does not start, and the one line that it says."""
    process = start(config)
    _, said = process.communicate(timeout=PATIENCE_S)
    lines = said.strip().splitlines()
    assert "Traceback" not in said
    return process.returncode, lines[-1]


@contextmanager
def service(config: Path) -> Iterator[subprocess.Popen[str]]:
    """A coordinator that answers on its socket."""
    process = start(config)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not ask(config.parent / "data" / "coordinator.sock"):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.05)  # polling another process
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(path: Path, target: str = "/v1/status") -> Any:
    """The JSON at a path of the API, None while nobody answers."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(path))
        connection.request("GET", target)
        return json.loads(connection.getresponse().read())
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    finally:
        connection.close()


def test_it_stops_in_order_and_begins_a_new_term_after_a_kill(tmp_path: Path) -> None:
    config = write(tmp_path)
    path = tmp_path / "data" / "coordinator.sock"
    with service(config) as process:
        assert ask(path)["term"] == 1
        process.kill()
    with service(config) as process:
        assert ask(path)["term"] == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not path.exists()


def test_mistakes_of_a_user_are_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, said = refusal(write(tmp_path, api__listen=f"127.0.0.1:{port}"))
    assert (status, f"port {port}" in said, "api.listen" in said) == (2, True, True)

    status, said = refusal(write(tmp_path, api__listn="127.0.0.1:0"))
    assert (status, "did you mean api.listen" in said) == (2, True)

    config = write(tmp_path)
    with service(config) as process:
        status, said = refusal(config)
    assert (status, f"in use by process {process.pid}" in said) == (3, True)

    (tmp_path / "data" / "ledger.db").write_bytes(b"\0" * 4096)
    status, said = refusal(config)
    assert (status, "ledger.db is damaged" in said) == (2, True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"api": {"listen": "0.0.0.0:8470"}}, "api.tls_certificate"),
        ({"api": {"listen": "8470"}}, "not host:port"),
        ({"api": {"tls_certificate": "a.pem"}}, "given together"),
        ({"api": {"listen": "0.0.0.0:1", "tls_certificate": "a", "tls_key": "b"}}, "advertise.http_url"),
        ({"fleet": "my fleet"}, "fleet"),
        ({"mqtt": {"url": "http://x"}}, "broker url"),
        ({"advertise": {"mqtt_url": "tcp://x"}}, "broker url"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        check_settings(msgspec.convert(fields, CoordinatorSettings))


def test_the_example_file_is_valid_and_says_the_defaults(tmp_path: Path) -> None:
    text = example_toml({"fleet": "coast", "placement.lease_s": 60.0})
    file = tmp_path / "coordinator.toml"
    file.write_text(text)

    assert load_settings(CoordinatorSettings, path=file) == msgspec.convert(
        {"fleet": "coast", "placement": {"lease_s": 60.0}}, CoordinatorSettings
    )
    uncommented = "\n".join(line.removeprefix("#") if line[:2] > "# " else line for line in text.splitlines())
    every = tomllib.loads(uncommented)
    assert check_settings(msgspec.convert(every, CoordinatorSettings)).fleet == "coast"
    assert set(every["placement"]) == set(CoordinatorSettings().placement.__struct_fields__)


def test_it_needs_neither_numpy_nor_a_training_framework() -> None:
    probe = (
        "import sys, cloud_coordinator.__main__; "
        "heavy = {'numpy', 'scipy', 'torch', 'flwr', 'pydantic', 'typer', 'onnxruntime'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
