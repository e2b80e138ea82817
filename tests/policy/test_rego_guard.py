"""The Rego guard on the real engine: verdicts, enforcement, the cache, threads, and failing closed."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from typing import Any

import pytest

from policy.guard.engine import Engine
from policy.guard.registry import make_guard
from policy.guard.rego import CACHE_LIMIT, RegoGuard
from policy.guard.rule_tests import run_rule_tests
from policy.guard.sources import RuleSet, read_rules
from policy.port import LiveGuard
from policy.testing import a_device, a_guard, a_view
from skerry.decision import Verdict
from skerry.errors import RulesError, SettingsError
from skerry.task import CommandSpec, DataSpec, Resources, TaskSpec
from skerry.testing import a_task

CPU = a_device("cpu", "cpu-1")
NODE = a_view(CPU)
PII = a_task(data=DataSpec(labels=("pii",), home_region="us"))


def said(guard: Any, task: TaskSpec, **node: Any) -> tuple[Verdict, ...]:
    """The verdicts on the one cpu of n1 in eu."""
    ((verdicts),) = guard.verdicts(task, a_view(CPU, **node), [CPU])
    return tuple(verdicts)


@pytest.fixture(scope="module")
def shipped() -> RegoGuard:
    """The guard over the rules that ship."""
    return RegoGuard(read_rules())


@pytest.mark.parametrize("test", run_rule_tests(read_rules()), ids=lambda test: test.name)
def test_the_shipped_rules_pass_their_own_tests(test: Any) -> None:
    assert test.passed, test.message


def test_a_rule_test_that_fails_is_told_from_one_that_passes() -> None:
    rules = RuleSet(
        rules={"own.rego": "package skerry.guard\ndeny contains {} if false"},
        tests={"own_test.rego": "package skerry.guard\ntest_yes if true\ntest_no if count(deny) == 1"},
    )

    assert [(test.name, test.passed) for test in run_rule_tests(rules)] == [
        ("test_yes", True),
        ("test_no", False),
    ]


def test_personal_data_are_kept_in_their_home_region(shipped: RegoGuard) -> None:
    (verdict,) = said(shipped, PII)

    assert verdict.rule == "residency"
    assert not verdict.allowed
    assert verdict.message == "data labelled pii may only be processed in us, this node is in eu"
    assert said(shipped, PII, region="us") == ()


def test_memory_and_privilege_are_limited(shipped: RegoGuard) -> None:
    greedy = a_task(tenant="ann", resources=Resources(memory_bytes=9 << 30))
    privileged = a_task(tenant="ann", spec=CommandSpec(argv=("reboot",), privileged=True))

    assert [v.message for v in said(shipped, greedy)] == [
        "asks for 9663676416 bytes of memory, tenant ann may have 8589934592"
    ]
    assert [v.message for v in said(shipped, privileged)] == ["tenant ann may not run privileged commands"]
    assert said(shipped, a_task()) == ()


def test_an_own_directory_brings_data_and_keeps_the_shipped_rules(tmp_path: Any) -> None:
    limits = {"default": {"memory_bytes": 1}}
    data = {"resident_labels": ["pii"], "privileged_tenants": ["ops"], "limits": limits}
    (tmp_path / "data.json").write_text(json.dumps(data))

    guard = make_guard("rego", tmp_path)

    assert guard.revision != make_guard().revision
    assert [v.rule for v in said(guard, PII)] == ["memory-cap", "residency"]
    privileged = a_task(tenant="ops", spec=CommandSpec(argv=("reboot",), privileged=True))
    assert [v.rule for v in said(guard, privileged)] == ["memory-cap"]


@pytest.mark.parametrize(
    ("enforcement", "allowed", "message"),
    [
        ("deny", False, "no guests"),
        ("warn", True, "warning: no guests"),
        ("dryrun", True, "would be denied: no guests"),
    ],
)
def test_enforcement_decides_whether_a_rule_denies(enforcement: str, allowed: bool, message: str) -> None:
    guard = a_guard(
        f"# METADATA\n# custom:\n#   rule: guests\n#   enforcement: {enforcement}\n"
        'deny contains {"rule": "guests", "msg": "no guests"} if input.task.tenant == "guest"'
    )

    assert said(guard, a_task(tenant="guest")) == (Verdict(rule="guests", allowed=allowed, message=message),)
    assert said(guard, a_task()) == ()


def test_one_rules_enforcement_does_not_touch_another() -> None:
    guard = a_guard(
        "# METADATA\n# custom:\n#   rule: a\n#   enforcement: warn\n"
        'deny contains {"rule": "a", "msg": "a"} if input.task.priority >= 0\n'
        'deny contains {"rule": "b", "msg": "b"} if input.task.priority >= 0'
    )

    assert [(v.rule, v.allowed) for v in said(guard, a_task())] == [("a", True), ("b", False)]


# --- what is not sound is refused when it is loaded, with its place ---------------------------------------

BAD_RULES = [
    ("deny contains x if { y }", "own.rego:2:22: use of undefined variable `y` is unsafe"),
    ("deny contains x { true }", "own.rego:2:17: `if` keyword is required"),
    ('deny contains {"a": 1} if inputt.task.tenant', "own.rego:2:27: use of undefined variable `inputt`"),
    ("allow := true", "the rules have no `deny`: they would allow everything"),
    (
        'deny contains {"a": 1} if input.task.tenent == "x"',
        "own.rego:2:27: there is no input.task.tenent; did you mean input.task.tenant?",
    ),
    ('deny contains {"a": 1} if input.task["data"].lables[_] == "x"', "did you mean input.task.data.labels?"),
    ('deny contains {"a": 1} if input.task == {}', "input.task is a group of facts"),
    ('deny contains {"a": 1} if count(input) == 0', "input is a group of facts"),
    ('deny contains {"a": 1} if { some k; input.task[k] == 1 }', "there is no input.task.[…]"),
    ('deny contains {"a": 1} if http.send({"url": "x"}).ok', "http.send is not allowed in rules"),
    ('deny contains {"a": 1} if opa.runtime().env.X', "opa.runtime is not allowed in rules"),
    ('deny contains {"a": 1} if time.now_ns() > 5', "time.now_ns is not allowed in rules"),
    ('deny contains {"a": 1} if rand.intn("x", 5) > 2', "rand.intn is not allowed in rules"),
    ('deny contains {"a": 1} if count(numbers.range(1, 9)) > 2', "numbers.range is not allowed"),
    (
        'deny contains {"a": 1} if is_busy\nis_busy if input.live.running > 1',
        "own.rego:3:12: deny is cached and cannot depend on input.live: use deny_now",
    ),
    (
        'deny contains {"a": 1} if data.skerry.guard.is_busy\nis_busy if input.live.running > 1',
        "own.rego:3:12: deny is cached",
    ),
    (
        "# METADATA\n# custom:\n#   rule: a\n#   enforcement: sometimes\ndeny contains 1 if false",
        "own.rego:2: a has",
    ),
    (
        "# METADATA\n# custom:\n#   rule: a\n#   enforcement: warn\n#   safety: true\ndeny contains 1",
        "own.rego:2: a is a safety rule: its enforcement can only be deny",
    ),
    ("import input.task as t\ndeny contains 1 if t.x == 1", "own.rego:2:8: import input.task is not allowed"),
    ("import data.skerry.guard as g\ndeny contains 1 if g.x", "import data.skerry.guard is not allowed"),
    ("deny contains 1 if { some k; data[k].is_busy }", "data.[…].is_busy is computed"),
    ("deny contains 1 if { some k; data.skerry.guard[k] }", "data.skerry.guard.[…] is computed"),
    ("# METADATA\n# custom:\n#   enforcement: warn\ndeny contains 1 if false", "has no custom.rule"),
]


@pytest.mark.parametrize(("body", "message"), BAD_RULES, ids=[str(i) for i in range(len(BAD_RULES))])
def test_rules_that_are_not_sound_are_refused_with_place_and_reason(body: str, message: str) -> None:
    with pytest.raises(RulesError) as refused:
        a_guard(body)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_another_package_is_refused() -> None:
    with pytest.raises(RulesError, match=r"own\.rego:1:1: the package must be skerry\.guard"):
        RegoGuard(RuleSet(rules={"own.rego": "package mine\ndeny contains 1 if false"}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.json", b"{", "data.json is not valid JSON"),
        ("data.json", b"[]", "data.json is not a JSON object"),
        ("own.rego", b"\xff", "own.rego is not UTF-8 text"),
    ],
)
def test_a_rules_directory_that_is_not_sound_is_refused(
    tmp_path: Any, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(RulesError, match=message):
        make_guard("rego", tmp_path)


def test_a_missing_rules_directory_and_an_unknown_engine_are_refused(tmp_path: Any) -> None:
    with pytest.raises(RulesError, match="there is no rules directory"):
        make_guard("rego", tmp_path / "none")
    with pytest.raises(SettingsError, match=r"no rules engine 'regoo'; did you mean rego\?"):
        make_guard("regoo")


# --- failing closed ---------------------------------------------------------------------------------------


def test_without_the_engine_every_task_is_denied_and_told_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr("policy.guard.registry.is_installed", lambda: False)

    (verdict,) = said(make_guard("rego"), a_task())

    assert (verdict.rule, verdict.allowed) == ("rules-unavailable", False)
    assert (
        verdict.message
        == "the rules engine is not installed: in the checkout, pip install -r constraints/rules.txt"
    )


def test_no_rules_at_all_takes_an_explicit_word() -> None:
    assert said(make_guard("off"), PII) == ()


def test_a_rule_that_fails_while_it_runs_denies_and_is_not_cached() -> None:
    guard = a_guard(
        'deny contains {"rule": "a", "msg": "a"} if to_number(replace(input.task.kind, "task", "1")) > 3'
    )

    first, fine = said(guard, a_task(kind="many")), said(guard, a_task(kind="2"))

    assert first[0].rule == "rules-unavailable"
    assert first[0].message.startswith("the rules could not be evaluated: own.rego:2:")
    assert fine == ()


@pytest.mark.parametrize("value", ['"text"', "3", '{"rule": "a"}', '{"rule": "a", "msg": 3}'])
def test_a_rule_that_returns_something_else_denies(value: str) -> None:
    guard = a_guard(f'deny contains {value} if input.task.tenant == "guest"')

    (verdict,) = said(guard, a_task(tenant="guest"))

    assert (verdict.rule, verdict.allowed) == ("rules-unavailable", False)


def test_facts_that_are_missing_deny_before_any_rule_sees_them(shipped: RegoGuard) -> None:
    (verdict,) = said(shipped, PII, region="")

    assert (verdict.rule, verdict.allowed) == ("input-schema", False)
    assert "$.node.region" in verdict.message


def test_a_panic_inside_the_engine_denies_and_the_next_task_is_served(capfd: Any) -> None:
    guard, made = RegoGuard(read_rules()), []
    ready, go_on = threading.Event(), threading.Event()

    def lend_an_engine() -> None:
        made.append(Engine(read_rules()))
        ready.set()
        go_on.wait(10)
        made.clear()  # it may only be dropped by the thread that made it

    thread = threading.Thread(target=lend_an_engine)
    thread.start()
    ready.wait(10)
    guard._engines.keep(made[0])  # using another thread's engine is a panic

    (verdict,) = said(guard, a_task())
    go_on.set()
    thread.join()

    assert verdict.rule == "rules-unavailable"
    assert "the rules engine failed" in verdict.message
    assert said(guard, a_task()) == ()
    assert "panicked" in capfd.readouterr().err


# --- the cache, and threads -------------------------------------------------------------------------------


def test_verdicts_are_cached_by_the_facts_that_rules_read(monkeypatch: Any) -> None:
    guard = RegoGuard(read_rules())
    asked: list[str] = []
    evaluate = Engine.evaluate
    monkeypatch.setattr(
        Engine, "evaluate", lambda self, rule, document: asked.append(rule) or evaluate(self, rule, document)
    )

    for number in range(50):
        said(guard, a_task(argv=("echo", str(number)), priority=number % 10), node=f"n{number}")
    said(guard, a_task(), region="us")
    said(guard, a_task(tenant="other"))

    assert asked == ["deny"] * 3


def test_the_cache_is_bounded() -> None:
    guard = a_guard('deny contains {"rule": "a", "msg": "a"} if input.task.kind == "x"')
    guard._own.cache.update({(number,): () for number in range(CACHE_LIMIT)})

    said(guard, a_task(kind="one more"))

    assert len(guard._own.cache) == CACHE_LIMIT


def test_rules_about_the_moment_are_evaluated_each_time() -> None:
    guard = a_guard(
        'deny contains {"rule": "never", "msg": "n"} if input.task.tenant == "nobody"\n'
        'deny_now contains {"rule": "full", "msg": "full"} if input.live.free_memory_bytes < 1000'
    )

    assert isinstance(guard, LiveGuard)
    assert guard.has_live_rules
    assert guard.live_verdicts(a_task(), a_view(CPU), [CPU]) == [()]
    assert guard.live_verdicts(a_task(), a_view(CPU, free_memory_bytes=1), [CPU]) == [
        (Verdict(rule="now:full", allowed=False, message="full"),)
    ]


def test_one_guard_serves_several_threads(shipped: RegoGuard) -> None:
    found: list[tuple[Verdict, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(said(shipped, PII))) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [verdicts[0].rule for verdicts in found] == ["residency"] * 4


@pytest.fixture
def unraisable(monkeypatch: Any) -> list[str]:
    """What nobody could be told of: the engine's complaint when another thread drops it is of that kind."""
    found: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda said: found.append(str(said.exc_value)))
    return found


def test_a_guard_may_be_dropped_while_other_threads_that_used_it_live_on(unraisable: list[str]) -> None:
    guards, used, go_on = [RegoGuard(read_rules())], threading.Event(), threading.Event()

    def use() -> None:
        said(guards[0], PII)
        used.set()
        go_on.wait(10)

    thread = threading.Thread(target=use)
    thread.start()
    assert used.wait(10)
    guards.clear()
    gc.collect()
    go_on.set()
    thread.join()

    assert unraisable == []


def test_a_guard_may_be_dropped_by_another_thread_than_made_it(unraisable: list[str]) -> None:
    guards = [RegoGuard(read_rules())]
    said(guards[0], PII)

    thread = threading.Thread(target=guards.clear)
    thread.start()
    thread.join()

    assert unraisable == []


def test_a_thread_keeps_no_engine_of_guards_that_are_gone() -> None:
    guards = [RegoGuard(read_rules()) for _ in range(5)]
    seen = [weakref.ref(guard._engines.here()) for guard in guards]

    guards.clear()
    said(RegoGuard(read_rules()), PII)

    assert [ref() for ref in seen] == [None] * 5


def test_the_revision_names_rules_and_data() -> None:
    one, same = (
        RuleSet(rules={"a": "x"}, data={"p": 1, "q": 2}),
        RuleSet(rules={"a": "x"}, data={"q": 2, "p": 1}),
    )

    assert one.revision == same.revision
    assert one.revision != RuleSet(rules={"a": "x"}, data={"p": 2, "q": 2}).revision
    assert one.revision != RuleSet(rules={"a": "y"}, data={"p": 1, "q": 2}).revision
