"""What each part of the exhaustive check does in each of its states, found out once.

A part is deterministic: the same state, told the same, does the same. So every pair of the two is run on the
real cores a single time, and global states are made of the numbers of their parts' states. Owns these tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from skerry.task import TaskSpec
from twin.faithful.exhaustive_agent import AgentPart
from twin.faithful.exhaustive_cloud import CloudPart
from twin.faithful.exhaustive_form import Press, same_as
from twin.faithful.exhaustive_laws import Facts, facts_of
from twin.faithful.exhaustive_setting import WAIT_S, Setting
from twin.faithful.exhaustive_values import Sent, Told

Part = AgentPart | CloudPart


class Done(NamedTuple):
    """What a part did. after: the number of its state.  cuts: the commits before which its end is a choice.

    Before the first one it is none, where nothing had left the part yet: that is as if it had not been told.
    """

    after: int
    sent: tuple[int, ...]
    seen: tuple[tuple[str, ...], ...]
    cuts: range


class Parts:
    """The states of all parts by number, the messages by number, and what was found out."""

    def __init__(self, setting: Setting) -> None:
        """setting: whose parts they are."""
        self._setting = setting
        self._press = Press()
        self._pressed: list[bytes] = []
        self._by_bytes: dict[bytes, int] = {}
        self._by_form: dict[bytes, int] = {}
        self._done: dict[tuple[int, int, int, Told], Done] = {}
        self._messages: dict[Sent, int] = {}
        self.facts: list[Facts] = []
        self.messages: list[Sent] = []

    def __len__(self) -> int:
        """Return how many states parts were found in."""
        return len(self._pressed)

    @property
    def steps(self) -> int:
        """How many steps were run on the real cores."""
        return len(self._done)

    def add(self, part: Part) -> int:
        """Return the number of a part's state."""
        part.outlet.said.clear()
        part.seen.clear()
        pressed = self._press.press(part)
        known = self._by_bytes.get(pressed)
        if known is None:
            form = same_as(part)
            known = self._by_form.get(form)
            if known is None:
                known = self._by_form[form] = len(self._pressed)
                self._pressed.append(pressed)
                self.facts.append(facts_of(part))
            self._by_bytes[pressed] = known
        return known

    def keep(self, topic: str, payload: bytes) -> int:
        """Return the number of a message that the broker retains."""
        return self._message(topic, payload, is_retained=True)

    def part(self, number: int) -> Any:
        """Return a copy of a part in a state."""
        return self._press.make(self._pressed[number])

    def told(self, number: int, waits: int, told: Told, cut_off_at: int = 0) -> Done:
        """Return what a part does that is told something after so many waits.

        cut_off_at: the commit before which its process ends, 0: it does not.
        """
        key = (number, waits, cut_off_at, told)
        done = self._done.get(key)
        if done is None:
            done = self._done[key] = self._run(number, waits, told, cut_off_at)
        return done

    def _run(self, number: int, waits: int, told: Told, cut_off_at: int) -> Done:
        part: Part = self.part(number)
        part.clock.uptime_s = 1000.0 + waits * WAIT_S
        cuts = range(0)
        try:
            _tell(part, self.messages, self._setting.tasks, told)
            if isinstance(part, AgentPart):
                part.settle(cut_off_at)
                cuts = range(1 if part.spoke_first else 2, part.loop.commits + 1)
        except Exception as error:  # whatever breaks a core is a find, shown with its trace
            part.seen.append(("broke", f"{type(error).__name__}: {error}"))
            return Done(number, (), tuple(part.seen), cuts)
        sent = tuple(self._message(said[0], said[1], is_retained=said[2]) for said in part.outlet.said)
        seen = tuple(part.seen)
        return Done(self.add(part), sent, seen, cuts)

    def _message(self, topic: str, payload: bytes, *, is_retained: bool) -> int:
        message = Sent(self._setting.place_of(topic), topic, payload, is_retained)
        number = self._messages.get(message)
        if number is None:
            number = self._messages[message] = len(self.messages)
            self.messages.append(message)
        return number


def _tell(part: Part, messages: list[Sent], tasks: tuple[TaskSpec, ...], told: Told) -> None:
    match told:
        case ("hear", number):
            part.hear(messages[number].topic, messages[number].payload)
        case ("wait",):
            part.time_passed()
        case ("crash",):
            part.restart()
        case ("submit", task_id, number) if isinstance(part, AgentPart):
            part.submit(task_id, tasks[number])
        case ("end", task_id) if isinstance(part, AgentPart):
            part.end(task_id)
        case ("plan",) if isinstance(part, CloudPart):
            part.make_plan()
        case _:
            raise AssertionError(f"{told} is nothing to tell a part")
