"""The command executor: what a command sees, how it ends, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devices.executors.commands import TAIL_BYTES
from devices.executors.process import ProcessExecutor
from devices.port import Job, Report

if TYPE_CHECKING:
    from conftest import Bench

AS_ROOT = os.geteuid() == 0


def ask(bench: Bench, job: Job, **executor: str) -> Report:
    """Run one job to its end in a loop of its own."""
    reports: list[Report] = []

    async def scenario(running: ProcessExecutor) -> None:
        reports.append(await running.run(job))

    bench.play(scenario, bench.executor("command", **executor))
    return reports[0]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:4]
    except FileNotFoundError:
        return False


def test_a_command_gets_its_arguments_as_they_are_without_a_shell(bench: Bench) -> None:
    report = ask(bench, bench.command("printf", "%s|", "$HOME", "a b", "*", ";true"))

    assert report.result == {"exit_code": 0, "stdout": "$HOME|a b|*|;true|", "stderr": ""}


def test_a_command_sees_a_minimal_environment_its_own_entries_and_who_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "x")

    report = ask(bench, bench.command("env", env={"COLOUR": "blue", "LANG": "C"}))

    seen = dict(line.split("=", 1) for line in report.result["stdout"].splitlines())
    assert seen["COLOUR"] == "blue"
    assert seen["LANG"] == "C"
    assert seen["SKERRY_TASK_ID"] == f"{1:032x}"
    assert seen["SKERRY_FENCE"] == "0.1"
    assert seen["SKERRY_WITNESS"] == str(bench.witness)
    assert seen["HOME"] == seen["TMPDIR"] == seen.get("PWD", seen["HOME"])
    assert "SECRET_OF_THE_AGENT" not in seen


def test_a_command_runs_in_a_private_directory_that_is_gone_afterwards(bench: Bench) -> None:
    report = ask(bench, bench.command("sh", "-c", "touch here; pwd; stat -c %a ."))

    place, mode = report.result["stdout"].split()
    assert mode == "700"
    assert Path(place).parent == bench.data_dir / "work"
    assert not Path(place).exists()


def test_standard_input_reaches_the_command_and_need_not_be_read(bench: Bench) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        read = await executor.run(bench.command("cat", stdin="line é\n"))
        unread = await executor.run(bench.command("true", stdin="x" * 100_000))
        assert read.result["stdout"] == "line é\n"
        assert unread.status == "succeeded"

    bench.play(scenario, bench.executor("command"))


def test_of_long_output_the_end_is_kept_and_the_rest_is_counted(bench: Bench) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' a; echo end; head -c 40000 /dev/zero | tr '\\0' b >&2"

    report = ask(bench, bench.command("sh", "-c", script))

    assert report.result["stdout"].endswith("aaa\nend\n".replace("\n", "", 1))
    assert len(report.result["stdout"]) == TAIL_BYTES
    assert report.result["stdout_dropped_bytes"] == 100_004 - TAIL_BYTES
    assert report.result["stderr_dropped_bytes"] == 40_000 - TAIL_BYTES


def test_output_that_is_not_text_is_replaced(bench: Bench) -> None:
    report = ask(bench, bench.command("printf", "\\377\\376ok"))

    assert report.result["stdout"] == "��ok"


def test_a_non_zero_exit_code_is_a_failure_that_keeps_its_output(bench: Bench) -> None:
    report = ask(bench, bench.command("sh", "-c", "echo out; echo err >&2; exit 3"))

    assert report.status == "failed"
    assert report.error == "command 'sh' ended with exit code 3"
    assert report.result == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}


def test_a_command_killed_by_a_signal_says_which(bench: Bench) -> None:
    report = ask(bench, bench.command("sh", "-c", "kill -SEGV $$"))

    assert report.status == "failed"
    assert "was killed by SIGSEGV" in report.error
    assert report.result["exit_code"] == -11


def test_a_command_that_cannot_be_run_is_invalid_and_named(bench: Bench, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    odd = tmp_path / "odd"
    odd.write_bytes(b"\x7fELF no program")
    odd.chmod(0o755)
    expected = {
        "no-such-command": "command 'no-such-command' was not found on this node; looked in ",
        "./relative": "command './relative': there is no such file on this node",
        str(plain): f"command '{plain}' is not executable",
        str(tmp_path): f"command '{tmp_path}' is not executable",
        str(odd): f"command '{odd}' could not be started: ",
    }

    async def scenario(executor: ProcessExecutor) -> None:
        for name, message in expected.items():
            report = await executor.run(bench.command(name))
            assert report.status == "invalid"
            assert message in report.error
        assert executor.device.usable

    bench.play(scenario, bench.executor("command"))


@pytest.mark.parametrize("name", ["SKERRY_FENCE", "SKERRY_AGENT", "A=B", ""])
def test_an_environment_entry_that_cannot_be_is_invalid_and_named(bench: Bench, name: str) -> None:
    report = ask(bench, bench.command("true", env={name: "x"}))

    assert report.status == "invalid"
    assert report.error.startswith("env.")


def test_memory_is_limited_unless_the_command_is_privileged(bench: Bench) -> None:
    script = "ulimit -v"

    async def scenario(executor: ProcessExecutor) -> None:
        limited = await executor.run(bench.command("bash", "-c", script, memory=256 << 20))
        free = await executor.run(bench.command("bash", "-c", script, memory=256 << 20, privileged=True))
        greedy = await executor.run(
            bench.command("dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1", memory=64 << 20)
        )
        assert limited.result["stdout"] == f"{256 << 10}\n"
        assert free.result["stdout"] == "unlimited\n"
        assert greedy.status == "failed"

    bench.play(scenario, bench.executor("command"))


@pytest.mark.parametrize("signal_trap", ["", 'trap "" TERM; '])
def test_a_command_that_runs_too_long_is_ended_with_all_it_started(bench: Bench, signal_trap: str) -> None:
    pids = bench.data_dir / "pids"
    left = "sleep 300 & setsid sleep 300 & env -i sleep 300 &"
    script = f"{signal_trap}{left} jobs -p > {pids}; echo begun; wait; sleep 300"
    job = bench.command("bash", "-c", script)

    async def scenario(executor: ProcessExecutor) -> None:
        warm = await executor.run(bench.command("true", number=2))
        assert warm.status == "succeeded"
        report = await executor.run(Job(**{**_fields(job), "max_runtime_s": 1.0}))

        assert report.status == "timed_out"
        assert report.result["stdout"] == "begun\n"
        assert [pid for pid in pids.read_text().split() if is_alive(int(pid))] == []

    bench.play(scenario, bench.executor("command", kill_grace_s=0.3))


def _fields(job: Job) -> dict[str, object]:
    return {name: getattr(job, name) for name in job.__struct_fields__}


def test_what_a_command_leaves_in_the_background_ends_with_it_and_its_neighbour_lives(bench: Bench) -> None:
    pids, other = bench.data_dir / "pids", bench.data_dir / "other"
    leaver = bench.command("sh", "-c", f"setsid sleep 300 & echo $! > {pids}")
    stayer = bench.command("sh", "-c", f"(setsid sleep 300 & echo $! > {other}); sleep 300", number=2)

    async def scenario(executor: ProcessExecutor) -> None:
        neighbour = asyncio.create_task(executor.run(stayer))
        await bench.until(lambda: other.exists() and other.read_text() != "", "the neighbour runs")
        begun = time.monotonic()
        report = await executor.run(leaver)

        assert report.status == "succeeded"
        assert time.monotonic() - begun < 60  # it did not wait for the one that holds its output
        assert not is_alive(int(pids.read_text()))
        assert is_alive(int(other.read_text()))
        executor.cancel(stayer.task_id)
        assert (await neighbour).status == "cancelled"
        assert not is_alive(int(other.read_text()))

    bench.play(scenario, bench.executor("command"))


def test_the_death_of_the_executor_child_ends_its_commands_and_their_children(bench: Bench) -> None:
    pids = bench.data_dir / "pids"
    script = f'trap "" TERM; setsid sleep 300 & sleep 300 & jobs -p > {pids}; echo $$ >> {pids}; wait'

    async def scenario(executor: ProcessExecutor) -> None:
        task = asyncio.create_task(executor.run(bench.command("bash", "-c", script)))
        await bench.until(lambda: pids.exists() and len(pids.read_text().split()) == 3, "the command runs")
        assert executor.child_pid is not None

        os.kill(executor.child_pid, 9)
        report = await task

        assert report.status == "device_fault"
        # When the report is there, so is the proof that no attempt runs beside its successor.
        assert [pid for pid in pids.read_text().split() if is_alive(int(pid))] == []

    bench.play(scenario, bench.executor("command"))


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user")
def test_commands_run_as_the_user_that_the_settings_name(bench: Bench) -> None:
    nobody = pwd.getpwnam("nobody")

    async def scenario(executor: ProcessExecutor) -> None:
        plain = await executor.run(bench.command("sh", "-c", "id -u; id -G; touch x && stat -c %u x"))
        privileged = await executor.run(bench.command("id", "-u", privileged=True))
        assert plain.result["stdout"].split() == [str(nobody.pw_uid), str(nobody.pw_gid), str(nobody.pw_uid)]
        assert privileged.result["stdout"] == "0\n"

    bench.play(scenario, bench.executor("command", user="nobody"))


def test_a_user_that_does_not_exist_is_named(bench: Bench) -> None:
    report = ask(bench, bench.command("true"), user="no-such-user")

    assert report.status == "invalid"
    assert "no-such-user" in report.error


def test_a_set_user_id_program_gains_nothing(bench: Bench) -> None:
    report = ask(bench, bench.command("grep", "NoNewPrivs", "/proc/self/status"))

    assert report.result["stdout"].split() == ["NoNewPrivs:", "1"]


@pytest.mark.parametrize("number", [9, 34, 40, 64])
def test_a_command_that_any_signal_ended_is_told_at_once(bench: Bench, number: int) -> None:
    report = ask(bench, bench.command("sh", "-c", f"kill -{number} $$"))

    assert (report.status, report.result["exit_code"]) == ("failed", -number)
    assert "was killed by" in report.error
