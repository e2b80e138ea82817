"""The guard that evaluates Rego rules, and fails closed: what cannot be evaluated is denied, and says why.

Owns the cache of static verdicts and the reading of what rules return. Must not know of schedulers or queues.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from policy.decide import LIVE_PREFIX
from policy.guard.engine import Engines
from policy.guard.facts import (
    DeviceFacts,
    LiveFacts,
    NodeFacts,
    TaskFacts,
    device_facts,
    input_document,
    key_of,
    live_facts,
    node_facts,
    task_facts,
)
from policy.guard.lint import LIVE, STATIC, Report, lint
from policy.guard.metadata import Enforcement
from policy.guard.sources import RuleSet
from policy.port import DeviceView, NodeView
from skerry.decision import Verdict
from skerry.errors import RulesError
from skerry.node import Device
from skerry.task import CommandSpec, TaskSpec

#: Distinct (task class, node class, device class) whose verdicts are kept, for each thread.
CACHE_LIMIT = 8192
UNAVAILABLE = "rules-unavailable"
Verdicts = tuple[Verdict, ...]


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a `deny` set, as rules return it."""

    rule: str
    msg: str
    details: Mapping[str, Any] = {}


class _Thread(threading.local):
    """What each thread has for itself beside its engine."""

    task: tuple[TaskSpec, TaskFacts] | None = None

    def __init__(self) -> None:
        self.cache: OrderedDict[tuple[Any, ...], Verdicts] = OrderedDict()


class RegoGuard:
    """Evaluates one set of rules; made once, usable from any thread."""

    def __init__(self, rules: RuleSet) -> None:
        """Load and check the rules.  Raises RulesError with file, line and column."""
        self._enforcements: Mapping[str, Enforcement] = rules.enforcements
        self._engines = Engines(rules)
        self._own = _Thread()
        report = _checked(self._engines.here().tree())
        self._task_key = key_of(_below("task", report.static_facts))
        self._node_key = key_of(_below("node", report.static_facts))
        self._device_key = key_of(_below("device", report.static_facts))
        self.has_live_rules = LIVE in report.heads
        self.revision = rules.revision
        self._try(report)
        self._engines.forget()  # who makes a guard is often not the thread that uses it

    def verdicts(self, task: TaskSpec, node: NodeView, devices: Sequence[Device]) -> list[Verdicts]:
        """Return what the rules say on each device, in order; cached by the facts that the rules read."""
        of_task, of_node = self._facts(task), node_facts(node)
        class_key = (self._task_key(of_task), self._node_key(of_node))
        return [self._static(class_key, of_task, of_node, device_facts(device)) for device in devices]

    def live_verdicts(self, task: TaskSpec, node: NodeView, devices: Sequence[Device]) -> list[Verdicts]:
        """Return what the rules about this moment say on each device, in order; never cached."""
        of_task, of_node = task_facts(task), node_facts(node)
        views = {view.device.device_id: view for view in node.devices}
        found = []
        for device in devices:
            live = live_facts(node, views.get(device.device_id) or DeviceView(device=device))
            found.append(self._evaluate(LIVE, of_task, of_node, device_facts(device), live)[0])
        return found

    def _facts(self, task: TaskSpec) -> TaskFacts:
        """The facts of a task, kept while one task is put to many nodes."""
        kept = self._own.task
        if kept is None or kept[0] is not task:
            kept = self._own.task = (task, task_facts(task))
        return kept[1]

    def _static(
        self, key: tuple[Any, ...], task: TaskFacts, node: NodeFacts, device: DeviceFacts
    ) -> Verdicts:
        cache = self._own.cache
        key = (*key, self._device_key(device))
        kept = cache.get(key)
        if kept is not None:
            cache.move_to_end(key)
            return kept
        verdicts, is_lasting = self._evaluate(STATIC, task, node, device, None)
        if is_lasting:
            cache[key] = verdicts
            if len(cache) > CACHE_LIMIT:
                cache.popitem(last=False)
        return verdicts

    def _evaluate(
        self, rule: str, task: TaskFacts, node: NodeFacts, device: DeviceFacts, live: LiveFacts | None
    ) -> tuple[Verdicts, bool]:
        """The verdicts of one rule set, and whether they may be kept."""
        try:
            document = input_document(task, node, device, live)
        except (msgspec.ValidationError, msgspec.EncodeError) as error:
            return (_denied("input-schema", f"the facts for the rules are not valid: {error}"),), False
        try:
            said = self._engines.here().evaluate(rule, document)
            denials = msgspec.json.decode(said, type=list[Denial])
        except (RulesError, msgspec.DecodeError) as error:
            self._engines.forget()  # after a panic an engine is not to be trusted
            return (_denied(UNAVAILABLE, f"the rules could not be evaluated: {error}"),), False
        return tuple(self._verdict(denial, rule) for denial in sorted(denials, key=_order)), True

    def _verdict(self, denial: Denial, rule: str) -> Verdict:
        name = f"{LIVE_PREFIX}{denial.rule}" if rule == LIVE else denial.rule
        match self._enforcements.get(denial.rule, "deny"):
            case "deny":
                return _denied(name, denial.msg)
            case "warn":
                return Verdict(rule=name, allowed=True, message=f"warning: {denial.msg}")
            case "dryrun":
                return Verdict(rule=name, allowed=True, message=f"would be denied: {denial.msg}")

    def _try(self, report: Report) -> None:
        """Evaluate once on an ordinary task: unsafe variables and unknown functions show only then."""
        for rule in sorted({STATIC, LIVE} & report.heads):
            self._engines.here().evaluate(rule, _SAMPLE)


def _checked(tree: list[Any]) -> Report:
    report = lint(tree)
    if report.findings:
        first, *others = report.findings
        raise RulesError(f"{first} (and {len(others)} more)" if others else str(first))
    if STATIC not in report.heads:
        raise RulesError(f"the rules have no `{STATIC}`: they would allow everything")
    return report


def _below(part: str, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(path.removeprefix(f"{part}.") for path in paths if path.startswith(f"{part}."))


def _order(denial: Denial) -> tuple[str, str]:
    return denial.rule, denial.msg


def _denied(rule: str, message: str) -> Verdict:
    return Verdict(rule=rule, allowed=False, message=message)


def _sample() -> str:
    device = Device(device_id="cpu-0", device_class="cpu", name="sample", executors=("command",))
    view = NodeView(node="sample", region="sample")
    task = TaskSpec(spec=CommandSpec(argv=("true",)))
    live = live_facts(view, DeviceView(device=device))
    return input_document(task_facts(task), node_facts(view), device_facts(device), live)


_SAMPLE = _sample()
