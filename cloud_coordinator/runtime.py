"""The coordinator's shell: broker, core thread, planner, timers. Performs what the core asks for.

Owns the process's parts and their order of starting and stopping; decides nothing about tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cloud_coordinator.core import actions as do
from cloud_coordinator.core import events as happened
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.figures import Figures
from cloud_coordinator.placement.planner import plan
from cloud_coordinator.senders import Senders
from cloud_coordinator.settings import CoordinatorSettings
from cloud_coordinator.shedding import Shedding
from cloud_coordinator.writer import CoreThread
from policy.port import Guard
from skerry.clock import Clock
from skerry.envelope import Speaker, is_birth_out_of_date
from skerry.errors import EnvelopeRefused, NotConnected, Rejected
from skerry.identity import PrivateKey
from skerry.logs import RateLimited
from skerry.topics import COORDINATOR, build, coordinator_filters
from skerry.transport.port import Message, Transport

log = logging.getLogger(__name__)

TICK_S = 1.0
#: One line a reason in so many seconds: a flood of forgeries must not fill the disk.
LOG_EVERY_S = 10.0


class Runtime:
    """A running coordinator without its HTTP interface. A transport's listener."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        core: CoordinatorCore,
        thread: CoreThread,
        transport: Transport,
        key: PrivateKey,
        guard: Guard,
        figures: Figures,
        clock: Clock,
    ) -> None:
        """core: read for its term only; everything else goes through the thread."""
        self._settings = settings
        self._profile = core.profile
        self._thread = thread
        self._transport = transport
        self._guard = guard
        self._figures = figures
        self._clock = clock
        self._speaker = Speaker(key, source=COORDINATOR, session=core.term)
        self._planner = ThreadPoolExecutor(1, "planner")
        self._ticks: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._bounded_log = RateLimited(log, LOG_EVERY_S, monotonic=lambda: clock.now().uptime_s)
        self.senders = Senders(core.nodes(), core.heard_upto())
        self.term = core.term
        self.shedding = Shedding()  #: touched by jobs only
        #: Called on the event loop whenever the core has answered a tick: the service is not stuck.
        self.on_tick: Callable[[], None] = lambda: None
        #: Called on the event loop when answers to training instructions are on disk.
        self.on_replies: Callable[[], None] = lambda: None

    @property
    def is_up(self) -> bool:
        """There is a connection to the broker."""
        return self._transport.is_up

    def start(self) -> None:
        """Begin connecting and ticking; returns at once."""
        for topic_filter in coordinator_filters(self._settings.fleet):
            self._transport.subscribe(topic_filter)
        self._transport.start(self)
        self._ticks = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Leave the broker, finish what waits, close the ledger."""
        if self._ticks is not None:
            self._ticks.cancel()
        if self._wake is not None:
            self._wake.cancel()
        await asyncio.to_thread(self._transport.stop)
        self._planner.shutdown(wait=False, cancel_futures=True)
        await self._thread.stop()

    # --- a transport's listener ---------------------------------------------------------------------------

    def on_up(self) -> None:
        """The broker is there."""
        log.info("connected to the broker %s", self._settings.mqtt.url)
        self.post(happened.BrokerUp())

    def on_down(self, reason: str) -> None:
        """The broker is gone; the transport tries again for ever."""
        log.warning("no connection to the broker %s: %s", self._settings.mqtt.url, reason)
        self.post(happened.BrokerDown())

    def on_message(self, message: Message) -> None:
        """Check an envelope and hand it to the core; what is refused is counted, not decoded."""
        try:
            opened = self.senders.open(message.topic, message.payload)
        except EnvelopeRefused as refused:
            node = self.senders.claimed(message.topic)
            self.refuse(node, refused.reason, str(refused))
            if is_birth_out_of_date(message.topic, refused):
                self.post(happened.BirthDisregarded(node))
        else:
            self.post(happened.Heard(opened.topic.node, opened.kind, opened.body, opened.counter))
        # Safe at once: whatever this message asked for stays in its sender's outbox until our own word.
        message.acknowledge()

    # --- the core -----------------------------------------------------------------------------------------

    def refuse(self, node: str, reason: str, detail: str) -> None:
        """Count something refused at the door, by claimed node and reason."""
        self._refusals[node, reason] += 1
        self._figures.refused(reason)
        extra = {"node": node, "reason": reason}
        self._bounded_log.warning(reason, "refused (%s): %s", reason, detail[:300], extra=extra)

    def post(self, event: happened.Event) -> None:
        """Give the core an event; its actions are performed after the commit.

        What a node says may be shed, for it says it again; what happens here happens once.
        """
        may_shed = isinstance(event, happened.Heard | happened.BirthDisregarded)
        if not self._thread.post(self._job(event), self._answered, may_shed=may_shed):
            self._refusals["", "overloaded"] += 1

    def perform(self, actions: list[do.Action]) -> None:
        """Do what the core asked for, in order."""
        for action in actions:
            self._perform(action)

    def _job(self, event: happened.Event) -> Callable[[CoordinatorCore], list[do.Action]]:
        clock = self._clock

        def job(core: CoordinatorCore) -> list[do.Action]:
            """What waits is looked at here, not where jobs are made: there the answer would wait too."""
            now, wall_s = clock.now(), clock.wall_s()
            retry_after_s = self.shedding.measured(self._thread.waiting, now)
            if retry_after_s is None:
                return core.handle(event, now, wall_s)
            told = core.handle(happened.PressureChanged(retry_after_s), now, wall_s)
            return told + core.handle(event, now, wall_s)

        return job

    def _ticked(self, actions: list[do.Action] | None, error: BaseException | None) -> None:
        """The core has answered a tick: it is not stuck, whatever the disk says."""
        self.on_tick()
        self._answered(actions, error)

    def _answered(self, actions: list[do.Action] | None, error: BaseException | None) -> None:
        if error is not None:
            # Its sender says it again; a full disk fails each of them, and the log is on a disk too.
            kind = type(error).__name__
            self._bounded_log.log(logging.ERROR, kind, "events are not handled: %s", error)
        else:
            self.perform(actions or [])

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.Say():
                self._say(action)
            case do.MakePlan():
                task = asyncio.get_running_loop().run_in_executor(self._planner, self._plan, action)
                task.add_done_callback(self._planned)
            case do.Wake(in_s):
                self._wake_in(in_s)
            case do.KeyChanged(record, counter):
                self.senders.learn(record, counter)
            case do.TermBegun(term):
                self.term = term
                self._speaker = self._speaker.in_session(term)
            case do.TaskPlacedFirst(_, _, waited_s):
                self._figures.placed(waited_s)
            case do.RepliesKept():
                self.on_replies()
            case do.Report(level, text, node):
                log.log(getattr(logging, level.upper()), "%s%s", f"{node}: " if node else "", text)

    def _say(self, action: do.Say) -> None:
        topic = build(self._settings.fleet, action.node, action.leaf)
        try:
            payload = self._speaker.seal(topic, action.kind, action.body)
            self._transport.publish(topic, payload, retain=action.retain)
        except NotConnected:
            log.debug("not said for want of a connection; it is said again: %s", topic)
        except Rejected as error:
            log.error("%s", error, extra={"node": action.node})

    def _plan(self, action: do.MakePlan) -> happened.Event:
        made = plan(
            action.requests,
            action.snapshot,
            self._settings.placement,
            guard=self._guard,
            profile=self._profile,
            wall_s=self._clock.wall_s(),
        )
        return happened.PlanMade(made)

    def _planned(self, done: asyncio.Future[happened.Event]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("the planner failed", exc_info=error)
        self.post(happened.PlanFailed(repr(error)) if error else done.result())

    def _wake_in(self, in_s: float) -> None:
        if in_s >= TICK_S:
            return  # the next tick comes earlier
        if self._wake is not None:
            self._wake.cancel()
        loop = asyncio.get_running_loop()
        self._wake = loop.call_later(in_s, self.post, happened.Ticked())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._refusals:
                self.post(happened.RefusalsCounted(dict(self._refusals)))
                self._refusals.clear()
            self._thread.post(self._job(happened.Ticked()), self._ticked)
