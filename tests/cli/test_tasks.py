"""Commands for tasks: what they print, to whom, and the exit status."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from edge_agent.api.testing import a_full_disk

Agent = Any
Skerry = Any
TOML = '[spec]\nexecutor = "command"\nargv = ["echo", "hi"]\n'
UNKNOWN_ID = "0" * 32


def submit(skerry: Skerry, *words: str) -> str:
    result = skerry("submit", "--command", *words, "--", "echo", "hi")
    assert result.exit_code == 0, result.output
    return str(result.stdout.strip())


def test_a_task_from_a_toml_file(agent: Agent, skerry: Skerry, tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(TOML)

    task_id = skerry("submit", "task.toml", "--kind", "greet").stdout.strip()

    shown = json.loads(skerry("tasks", "show", task_id, "--json").stdout)
    assert (shown["kind"], shown["task"]["spec"]["argv"]) == ("greet", ["echo", "hi"])


@pytest.mark.parametrize(
    "document", [TOML, json.dumps({"spec": {"executor": "command", "argv": ["echo", "hi"]}})]
)
def test_a_task_from_standard_input(agent: Agent, skerry: Skerry, document: str) -> None:
    result = skerry("submit", "-", "--json", stdin=document)

    assert json.loads(result.stdout)["is_new"] is True


def test_a_command_in_words_keeps_its_own_options(agent: Agent, skerry: Skerry) -> None:
    result = skerry("submit", "--command", "--key", "k1", "--", "ls", "-l", "--all")

    shown = json.loads(skerry("tasks", "show", result.stdout.strip(), "--json").stdout)
    assert shown["task"]["spec"]["argv"] == ["ls", "-l", "--all"]
    assert shown["task"]["idempotency_key"] == "k1"


def test_waiting_prints_what_the_command_wrote(agent: Agent, skerry: Skerry) -> None:
    with agent.facade.watch() as changes:
        ending = threading.Thread(
            target=lambda: _end_next(agent, changes, {"stdout": "hi\n", "exit_code": 0})
        )
        ending.start()
        result = skerry("submit", "--command", "--wait", "20", "--", "echo", "hi")
        ending.join(20)

    assert (result.exit_code, result.stdout) == (0, "hi\n")
    assert "done in 0.25 s on cpu-0 of edge-1" in result.stderr


def _end_next(agent: Agent, changes: Any, result: object) -> None:
    async def coming() -> Any:
        return await anext(changes)

    agent.succeed(agent.thread.call(coming()).task_id, result)


def test_a_task_that_failed_gives_one(agent: Agent, skerry: Skerry) -> None:
    task_id = submit(skerry)
    agent.fail(task_id, "no such command: echo")

    result = skerry("tasks", "show", task_id, "--wait", "5")

    assert result.exit_code == 1
    assert result.stderr == f"skerry: task {task_id} ended dead: no such command: echo\n"


def test_a_wait_that_is_over_gives_six(agent: Agent, skerry: Skerry) -> None:
    result = skerry("submit", "--command", "--wait", "0.05", "--", "sleep", "9")

    assert result.exit_code == 6
    assert "it is ready" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.toml", "[spec\n", "t.toml is not valid TOML"),
        ("t.json", "{", "not valid JSON"),
        ("t.toml", TOML + 'enviro = "x"\n', "did you mean spec.env?"),
        ("t.toml", TOML.replace('"command"', '"podman"'), "unknown executor"),
    ],
)
def test_a_wrong_document_gives_two(
    agent: Agent, skerry: Skerry, tmp_path: Path, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)

    result = skerry("submit", name)

    assert result.exit_code == 2
    assert result.stderr.startswith("skerry: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_a_file_that_is_not_there_is_named_with_the_other_way(agent: Agent, skerry: Skerry) -> None:
    result = skerry("submit", "echo")

    assert result.exit_code == 2
    assert "--command -- echo" in result.stderr


def test_several_words_without_command_are_refused(agent: Agent, skerry: Skerry) -> None:
    assert skerry("submit", "echo", "hi").exit_code == 2


def test_no_agent_gives_four_and_says_how_to_start_one(
    skerry: Skerry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKERRY_SOCKET", raising=False)
    assert skerry("tasks", "list").exit_code == 4

    result = skerry("tasks", "list", "--socket", "gone.sock")

    assert result.exit_code == 4
    assert "no agent listens on gone.sock; start one with: skerry agent run" in result.stderr


def test_a_refusal_gives_five_in_the_agents_words(agent: Agent, skerry: Skerry) -> None:
    agent.facade.breaks = a_full_disk()

    result = skerry("submit", "--command", "--", "true")

    assert result.exit_code == 5
    assert "free space in the data directory" in result.stderr


@pytest.mark.parametrize("words", [("tasks", "show"), ("tasks", "cancel"), ("tasks", "replay"), ("explain",)])
def test_a_task_that_is_not_there_gives_three(agent: Agent, skerry: Skerry, words: tuple[str, ...]) -> None:
    result = skerry(*words, UNKNOWN_ID)

    assert result.exit_code == 3
    assert UNKNOWN_ID in result.stderr


@pytest.mark.parametrize("words", [("tasks", "show"), ("tasks", "cancel"), ("tasks", "story"), ("explain",)])
@pytest.mark.parametrize("task_id", ["", "x?reason=y", "../node", "a\nb", "\udcff"])
def test_what_is_no_task_id_never_becomes_another_request(
    agent: Agent, skerry: Skerry, words: tuple[str, ...], task_id: str
) -> None:
    result = skerry(*words, task_id)

    assert (result.exit_code, "is not a task id" in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key", "\udcff", "--", "true"), "UTF-8"),
        (("--", "echo", "\udcff\udcfe"), "UTF-8"),
        (("--key", "", "--", "true"), "idempotency_key"),
        (("--key", "recurring:x@on5.000", "--", "true"), "idempotency_key"),
    ],
)
def test_words_that_cannot_be_sent_are_named(
    agent: Agent, skerry: Skerry, words: tuple[str, ...], said: str
) -> None:
    result = skerry("submit", "--command", *words)

    assert result.exit_code == 2, result.output
    assert said in result.stderr


def test_tasks_are_listed_in_columns_when_piped(agent: Agent, skerry: Skerry) -> None:
    first, second = submit(skerry), submit(skerry, "--kind", "other")
    agent.fail(first, "a\tb\nc")

    lines = skerry("tasks", "list").stdout.splitlines()
    dead = skerry("tasks", "list", "--state", "dead", "--json").stdout

    assert [line.split("\t")[0] for line in lines] == ["id", second, first]
    assert lines[2].split("\t")[1:4] == ["command", "dead", "1"]
    assert lines[2].endswith("a b c")
    assert [task["task_id"] for task in json.loads(dead)["tasks"]] == [first]


def test_pages_are_announced(agent: Agent, skerry: Skerry) -> None:
    ids = [submit(skerry) for _ in range(3)]

    result = skerry("tasks", "list", "--limit", "2")

    assert f"--before {ids[1]}" in result.stderr
    assert ids[0] in skerry("tasks", "list", "--before", ids[1]).stdout


def test_an_empty_list_is_said_beside_the_output(agent: Agent, skerry: Skerry) -> None:
    result = skerry("tasks", "list")

    assert (result.stdout, result.stderr) == ("", "no tasks\n")


def test_one_task_is_shown_with_its_tries(agent: Agent, skerry: Skerry) -> None:
    task_id = submit(skerry)
    agent.fail(task_id, "broken")

    shown = skerry("tasks", "show", task_id).stdout

    assert "state     dead" in shown
    assert "try -/1" in shown
    assert "failed: broken" in shown


def test_cancel_and_replay_print_the_new_state(agent: Agent, skerry: Skerry) -> None:
    cancelled, dead = submit(skerry), submit(skerry)
    agent.fail(dead, "broken")

    assert skerry("tasks", "cancel", cancelled).stdout == f"{cancelled}  cancelled\n"
    assert skerry("tasks", "replay", dead).stdout == f"{dead}  ready\n"
    again = skerry("tasks", "cancel", cancelled)
    assert again.exit_code == 5
    assert "cancelled" in again.stderr


def test_an_explanation_is_in_words(agent: Agent, skerry: Skerry) -> None:
    task_id = submit(skerry)
    agent.succeed(task_id)

    assert "rule:by-hand chose cpu-0 on edge-1: the test said so" in skerry("explain", task_id).stdout
    assert json.loads(skerry("explain", task_id, "--json").stdout)["decisions"]


def test_watching_prints_each_change_until_the_agent_stops(agent: Agent, skerry: Skerry) -> None:
    results: list[Any] = []
    watching = threading.Thread(target=lambda: results.append(skerry("tasks", "watch", "--json")))
    watching.start()
    while not agent.facade._changes._listeners:
        assert watching.is_alive()

    async def submit_and_wait() -> None:
        from skerry.testing import a_task

        await agent.facade.submit(a_task())

    agent.thread.call(submit_and_wait())
    agent.thread.stop()
    watching.join(20)

    assert [json.loads(line)["state"] for line in results[0].stdout.splitlines()] == ["ready"]
    assert results[0].exit_code == 0
