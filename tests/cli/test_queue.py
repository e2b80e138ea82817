"""Commands for the queue: batches, dead letters, stories, recurring tasks, what it holds, checks, backups."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from edge_agent.api.testing import a_full_disk
from skerry.queue_documents import QueueCheck
from skerry.testing import ManualClock, a_task
from task_queue.operations import Enqueue
from task_queue.testing import QueueDriver, sqlite_opener

Agent = Any
Skerry = Any
LINE = '{"spec": {"executor": "command", "argv": ["echo", "hi"]}, "kind": "%s"}\n'


def lines(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def listed(skerry: Skerry, *words: str) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = json.loads(skerry("tasks", "list", "--json", *words).stdout)["tasks"]
    return tasks


# --- batches


@pytest.mark.parametrize("is_file", [True, False])
def test_a_batch_of_lines_gives_an_id_a_line(
    agent: Agent, skerry: Skerry, tmp_path: Path, is_file: bool
) -> None:
    text = "".join(LINE % f"k{number}" for number in range(30))
    (tmp_path / "tasks.jsonl").write_text(text)

    result = (
        skerry("submit", "--batch", "tasks.jsonl")
        if is_file
        else skerry("submit", "--batch", "-", stdin=text)
    )

    ids = result.stdout.split()
    assert (result.exit_code, len(set(ids))) == (0, 30)
    assert "30 accepted, 0 known before, 0 refused" in result.stderr
    assert [task["kind"] for task in reversed(listed(skerry))] == [f"k{number}" for number in range(30)]


def test_a_batch_above_what_one_commit_takes_is_sent_in_several(agent: Agent, skerry: Skerry) -> None:
    result = skerry("submit", "--batch", "-", "--json", stdin=LINE % "a" * 1201)

    answers = lines(result.stdout)
    assert (len(answers), {answer["status"] for answer in answers}) == (1201, {201})
    assert [answer["line"] for answer in answers] == list(range(1, 1202))


def test_a_line_with_a_mistake_is_named_and_the_others_are_accepted(agent: Agent, skerry: Skerry) -> None:
    result = skerry("submit", "--batch", "-", stdin=LINE % "a" + '{"spec": 3}\n\n{\n' + LINE % "b")

    assert (result.exit_code, len(result.stdout.split())) == (2, 2)
    assert "line 2: " in result.stderr
    assert "line 4: " in result.stderr


def test_a_batch_that_the_disk_refuses_says_so(agent: Agent, skerry: Skerry) -> None:
    agent.facade.breaks = a_full_disk()
    result = skerry("submit", "--batch", "-", stdin=LINE % "a")
    agent.facade.breaks = None

    assert result.exit_code == 5
    assert "nothing was accepted" in result.stderr


def test_a_batch_stands_alone(agent: Agent, skerry: Skerry) -> None:
    result = skerry("submit", "--batch", "-", "--key", "k", stdin="")

    assert (result.exit_code, "stands alone" in result.stderr) == (2, True)


# --- filters, stories, dead letters


def test_tasks_are_listed_by_key_priority_and_time(agent: Agent, skerry: Skerry) -> None:
    skerry("submit", "--command", "--key", "order-7", "--", "echo", "hi")
    skerry("submit", "--command", "--", "echo", "hi")

    assert len(listed(skerry, "--key", "order-7")) == 1
    assert len(listed(skerry, "--priority", "4")) == 2
    assert len(listed(skerry, "--until", "2020-01-01")) == 0
    assert len(listed(skerry, "--since", "2020-01-01T00:00Z")) == 2
    wrong = skerry("tasks", "list", "--since", "yesterday-ish")
    assert (wrong.exit_code, "--since" in wrong.stderr) == (2, True)


def dead(agent: Agent, skerry: Skerry, kind: str = "a") -> str:
    task_id = str(skerry("submit", "--command", "--kind", kind, "--", "false").stdout.strip())
    agent.fail(task_id, "exit status 1")
    return task_id


def test_dead_letters_are_listed_and_shown_with_their_error(agent: Agent, skerry: Skerry) -> None:
    task_id = dead(agent, skerry)

    assert "exit status 1" in skerry("dead", "list").stdout
    assert "exit status 1" in skerry("dead", "show", task_id).stdout
    assert "no dead letters" in skerry("dead", "list", "--kind", "other").output


def test_dead_letters_are_counted_then_replayed(agent: Agent, skerry: Skerry) -> None:
    ids = [dead(agent, skerry, kind) for kind in ("a", "b", "b")]

    assert skerry("dead", "replay", "--kind", "b", "--dry-run").stdout == "2 would be replayed\n"
    assert skerry("dead", "replay", "--kind", "b").stdout == "2 of 2 are ready again\n"
    assert json.loads(skerry("dead", "replay", "--all", "--json").stdout)["task_ids"] == [ids[0]]
    assert skerry("dead", "replay", "--all").stdout == "0 of 0 are ready again\n"


def test_a_replay_must_say_which(agent: Agent, skerry: Skerry) -> None:
    assert skerry("dead", "replay").exit_code == 2
    assert skerry("dead", "replay", "--all", "--kind", "a").exit_code == 2


def test_a_replay_of_which_something_was_refused_gives_five(agent: Agent, skerry: Skerry) -> None:
    unknown = [f"{number:032x}" for number in range(1, 1002)]  # more than one request takes
    result = skerry("dead", "replay", dead(agent, skerry), *unknown)

    assert (result.exit_code, result.stdout) == (5, "1 of 1002 are ready again\n")
    assert unknown[-1] in result.stderr


@pytest.mark.parametrize("when", ["0001-01-01", "soon", "2026-13-45", "-5"])
def test_what_is_no_moment_is_named(agent: Agent, skerry: Skerry, when: str) -> None:
    result = skerry("dead", "list", f"--since={when}")

    assert (result.exit_code, when in result.stderr) == (2, True), result.output


def test_a_story_is_a_line_a_happening(agent: Agent, skerry: Skerry) -> None:
    task_id = dead(agent, skerry)

    told = skerry("tasks", "story", task_id).stdout.splitlines()

    assert re.search(r"\baccepted\b", told[1])
    assert re.search(r"\bstarted\b.*cpu-0", told[2])
    assert "exit status 1" in " ".join(told[3:])
    assert json.loads(skerry("tasks", "story", task_id, "--json").stdout)["state"] == "dead"


# --- recurring tasks


def test_a_recurring_task_is_added_listed_shown_and_removed(agent: Agent, skerry: Skerry) -> None:
    added = skerry(
        "recurring", "add", "report", "--every", "1h", "--missed", "once", "--command", "--", "true"
    )

    assert added.stdout == "report: every 3600 s, next in 1 h\n"
    assert "report" in skerry("recurring", "list").stdout
    assert json.loads(skerry("recurring", "show", "report", "--json").stdout)["spec"]["missed"] == "once"
    assert re.search(r"missed runs +once", skerry("recurring", "show", "report").stdout)
    assert skerry("recurring", "remove", "report").stdout == "report: removed after 0 runs\n"
    assert skerry("recurring", "show", "report").exit_code == 3


def test_a_cron_schedule_says_when_it_comes(agent: Agent, skerry: Skerry) -> None:
    added = skerry("recurring", "add", "nightly", "--cron", "30 2 * * *", "--command", "--", "true")

    assert re.fullmatch(r"nightly: 30 2 \* \* \* \(UTC\), next at \d{4}-\d\d-\d\d 02:30:00Z\n", added.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--every", "soon"), "--every"),
        ((), "exactly one"),
        (("--cron", "61 * * * *"), "61 * * * *"),
        (("--every", "1h", "--missed", "never"), "missed"),
    ],
)
def test_a_wrong_schedule_is_named(agent: Agent, skerry: Skerry, words: tuple[str, ...], said: str) -> None:
    result = skerry("recurring", "add", "report", *words, "--command", "--", "true")

    assert result.exit_code == 2
    assert said in result.stderr


# --- the queue of a running agent, and of a stopped one


def test_the_queue_of_a_running_agent_is_told(agent: Agent, skerry: Skerry) -> None:
    skerry("submit", "--command", "--", "echo", "hi")

    shown = skerry("queue", "show").stdout

    assert re.search(r"tasks ready +1", shown)
    assert re.search(r"ready at priority 4 +1", shown)
    assert re.search(r"level +free", shown)
    assert re.search(r"last check +never", shown)
    assert json.loads(skerry("queue", "--json").stdout)["by_state"]["ready"] == 1


def test_a_check_of_a_running_agent_tells_what_is_wrong(agent: Agent, skerry: Skerry) -> None:
    assert skerry("queue", "check").exit_code == 0
    agent.facade.check = QueueCheck(
        is_whole=False, findings=("table task: row 3 missing from index task_due",)
    )

    result = skerry("queue", "check")

    assert result.exit_code == 5
    assert "row 3 missing" in result.stderr


def a_stopped_queue(home: Path, tasks: int = 3) -> None:
    home.mkdir(exist_ok=True)
    q = QueueDriver(sqlite_opener(home), ManualClock())
    q.apply(*(Enqueue(task_id=q.ids.next(), task=a_task(), wall_s=q.clock.wall_s()) for _ in range(tasks)))
    q.store.close()


def test_the_queue_of_a_stopped_agent_is_read_and_left_as_it_is(skerry: Skerry, tmp_path: Path) -> None:
    home = tmp_path / "data"
    a_stopped_queue(home)
    before = {path.name: path.read_bytes() for path in home.iterdir()}

    shown = skerry("queue", "show", "--data-dir", "data", "--json")
    checked = skerry("queue", "check", "--data-dir", "data")

    assert json.loads(shown.stdout)["by_state"]["ready"] == 3
    assert "whole, 3 tasks" in checked.stdout
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


def test_the_queue_of_a_killed_agent_is_read_with_what_is_only_in_its_log(
    skerry: Skerry, tmp_path: Path
) -> None:
    home = tmp_path / "data"
    home.mkdir()
    q = QueueDriver(sqlite_opener(home), ManualClock())
    q.enqueue()
    shutil.copytree(home, tmp_path / "killed")
    q.store.close()
    assert (tmp_path / "killed" / "queue.db-wal").stat().st_size > 0

    assert (
        json.loads(skerry("queue", "show", "--data-dir", "killed", "--json").stdout)["by_state"]["ready"] == 1
    )
    assert "whole, 1 tasks" in skerry("queue", "check", "--data-dir", "killed").stdout


@pytest.mark.parametrize(("change", "said"), [(1, "install the newer version"), (-1, "when it starts")])
def test_a_queue_of_another_schema_is_not_guessed_at(
    skerry: Skerry, tmp_path: Path, change: int, said: str
) -> None:
    a_stopped_queue(tmp_path / "data")
    db = apsw.Connection(str(tmp_path / "data" / "queue.db"))
    db.pragma("user_version", db.pragma("user_version") + change)
    db.close()

    result = skerry("queue", "show", "--data-dir", "data")

    assert (result.exit_code, said in result.stderr) == (5, True)


def test_a_settings_file_leads_to_a_stopped_agents_queue(skerry: Skerry, tmp_path: Path) -> None:
    a_stopped_queue(tmp_path / "data")
    (tmp_path / "agent.toml").write_text(f'data_dir = "{tmp_path / "data"}"\n')

    result = skerry("queue", "show")

    assert (result.exit_code, "no agent answers" in result.stderr) == (0, True)
    assert re.search(r"tasks ready +3", result.stdout)


def test_a_directory_without_a_queue_is_named(skerry: Skerry, tmp_path: Path) -> None:
    result = skerry("queue", "show", "--data-dir", "nothing")

    assert (result.exit_code, "there is no queue" in result.stderr) == (2, True)


def test_damage_in_a_stopped_agents_queue_is_found(skerry: Skerry, tmp_path: Path) -> None:
    a_stopped_queue(tmp_path / "data", tasks=400)
    path = tmp_path / "data" / "queue.db"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(content)

    result = skerry("queue", "check", "--data-dir", "data")

    assert result.exit_code == 5
    assert "damaged" in result.stderr


def test_a_stopped_agents_queue_is_backed_up_verified_and_restored(skerry: Skerry, tmp_path: Path) -> None:
    a_stopped_queue(tmp_path / "data")

    made = skerry("backup", "create", "copy.zip", "--data-dir", "data", "--json")
    verified = skerry("backup", "verify", "copy.zip")
    restored = skerry("backup", "restore", "copy.zip", "--data-dir", "other", "--json")

    assert json.loads(made.stdout)["manifest"]["tasks"] == {"ready": 3}
    assert re.search(r"state +whole", verified.stdout)
    assert json.loads(restored.stdout)["epoch"] != json.loads(made.stdout)["manifest"]["epoch"]
    shown = skerry("queue", "show", "--data-dir", "other", "--json")
    assert json.loads(shown.stdout)["by_state"]["ready"] == 3


def test_a_restore_to_where_no_directory_can_be_says_so(skerry: Skerry, tmp_path: Path) -> None:
    a_stopped_queue(tmp_path / "data")
    skerry("backup", "create", "copy.zip", "--data-dir", "data")

    result = skerry("backup", "restore", "copy.zip", "--data-dir", str(tmp_path / "copy.zip" / "data"))

    assert result.exit_code == 5
    assert "cannot be used as a data directory" in result.stderr


def test_a_backup_does_not_overwrite_a_file(skerry: Skerry, tmp_path: Path) -> None:
    a_stopped_queue(tmp_path / "data")
    (tmp_path / "copy.zip").write_text("mine")

    result = skerry("backup", "create", "copy.zip", "--data-dir", "data")

    assert (result.exit_code, (tmp_path / "copy.zip").read_text()) == (2, "mine")
    assert skerry("backup", "create", "copy.zip", "--data-dir", "data", "--force").exit_code == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
