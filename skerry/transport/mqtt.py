"""MQTT 5 by paho-mqtt. Owns one thread, in which one paho client at a time lives; keeps no message.

Every attempt to connect gets a fresh client: names are resolved, certificates and password read again, and
nothing that an old connection had in flight is said twice. The owner's event loop sees only callbacks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from skerry.errors import NotConnected, Rejected
from skerry.link.backoff import Backoff
from skerry.transport.network import NetworkWatch, Watch
from skerry.transport.port import Listener, Message, Will
from skerry.transport.session import MAX_IN_FLIGHT, Session
from skerry.transport.settings import MqttSettings, parse_address

log = logging.getLogger("skerry.transport")

#: After these answers the broker will not change its mind soon: wait at least so long. MQTT 5 reason codes.
#: A connection that another took over (0x8E) comes back sooner: only so can a copied identity be found out.
SLOW_REASONS = {0x86: 60.0, 0x87: 60.0, 0x8A: 60.0, 0x8E: 15.0}
#: Between two looks whether the network has come back, seconds.
LOOK_S = 0.5
#: News of the network shortens the wait this often at most: some machines gain addresses all the time.
NEWS_EVERY_S = 30.0
_JOIN_S = 1.0


class MqttTransport:
    """A connection to an MQTT 5 broker that is made again for ever until stopped."""

    def __init__(
        self,
        settings: MqttSettings,
        *,
        client_id: str,
        will: Callable[[], Will] | None = None,
        rng: Random | None = None,
        client_class: type[paho.Client] = paho.Client,
        watch: Callable[[], Watch] = NetworkWatch,
    ) -> None:
        """client_id: one of its own per process.  will: made at each connect, on the transport's thread.

        watch: tells of a network that has come back.
        Raises SettingsError when the broker's address cannot be read.
        """
        self._settings = settings
        self._address = parse_address(settings.url)
        self._client_id = client_id
        self._will = will
        self._client_class = client_class
        self._make_watch = watch
        self._backoff = Backoff(rng or Random(), cap_s=settings.backoff_cap_s)
        self._filters: list[str] = []
        self._listener: Listener | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._session: Session | None = None  # set and read on the loop only
        self._attempt: Session | None = None  # written by the thread; the loop only asks it to end
        self._in_flight = MAX_IN_FLIGHT
        self._said = ""
        self._rests_until_s = 0.0
        self._heeds_after_s = 0.0  #: when news of the network counts again
        self._refused_until_s = 0.0  # a network that comes back does not change a refusal

    def start(self, listener: Listener) -> None:
        """Begin connecting; call it on the event loop that shall hear the listener's calls."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{self._client_id}", daemon=True)
        self._thread.start()

    def subscribe(self, topic_filter: str) -> None:
        """Ask for messages on a filter, now and after every reconnect."""
        self._filters.append(topic_filter)
        if self._session is not None:
            self._session.subscribe([topic_filter])

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand one message to the connection.  Raises NotConnected, Rejected (too large); never waits."""
        if len(payload) > self._settings.max_payload_bytes:
            limit = self._settings.max_payload_bytes
            raise Rejected(f"a message of {len(payload)} bytes on {topic}; the limit is {limit}")
        if self._session is None:
            raise NotConnected(f"there is no connection to {self._settings.url}")
        self._session.publish(topic, payload, retain)

    @property
    def is_up(self) -> bool:
        """There is a connection right now."""
        return self._session is not None

    def wake(self) -> None:
        """Try to connect now, whatever the back-off says."""
        self._backoff.wake()
        self._rests_until_s = 0.0
        self._woken.set()

    def hint(self, spread_s: float) -> None:
        """Draw no delay before a reconnect from less than spread_s (fleet size ÷ allowed rate)."""
        self._backoff.hint(spread_s)

    def rest(self, for_s: float) -> None:
        """Stay away for so long once the present connection is lost; `wake` ends it."""
        self._rests_until_s = _boottime_s() + for_s

    def stop(self) -> None:
        """Disconnect in order and stop for good; nothing is said to the listener after this."""
        self._listener = None
        self._session = None
        self._stopping.set()
        self._woken.set()
        attempt = self._attempt
        if attempt is not None:
            attempt.disconnect()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    # --- the transport's thread ------------------------------------------------------------------------

    def _run(self) -> None:
        with closing(self._make_watch()) as watch:
            while not self._stopping.is_set():
                try:
                    delay_s = self._try_once()
                except Exception as error:  # whatever it is, it must not end reconnecting for good
                    self._report(f"internal fault: {error!r}", 0)
                    log.debug("the fault of the transport's own", exc_info=True)
                    delay_s = self._backoff.next_delay_s()
                self._pause(delay_s, watch)

    def _pause(self, delay_s: float, watch: Watch) -> None:
        """Wait until the next try is due: sooner when the network comes back, at once when woken."""
        due_s = _boottime_s() + delay_s
        while not self._stopping.is_set() and (left_s := due_s - _boottime_s()) > 0:
            if self._woken.wait(min(left_s, LOOK_S)):
                break
            if watch.has_come_up() and _boottime_s() >= self._heeds_after_s:
                self._heeds_after_s = _boottime_s() + NEWS_EVERY_S
                self._backoff.wake()
                soon_s = _boottime_s() + self._backoff.next_delay_s(was_answered=False)
                due_s = min(due_s, max(soon_s, self._rests_until_s, self._refused_until_s))
        self._woken.clear()

    def _try_once(self) -> float:
        """Connect and stay until it is over; return how long to wait before the next try."""
        began = _boottime_s()
        session = self._connect_and_stay()
        self._in_flight = session.in_flight
        if session.must_retry or self._stopping.is_set():
            return 0.0
        self._report(session.reason, session.reason_code)
        if session.was_up:
            self._backoff.session_ended(_boottime_s() - began)
        return self._delay_s(session)

    def _connect_and_stay(self) -> Session:
        session = Session(
            self._settings,
            self._address,
            client=self._client_class(
                CallbackAPIVersion.VERSION2,
                client_id=self._client_id,
                protocol=paho.MQTTv5,
                manual_ack=True,
                reconnect_on_failure=False,
            ),
            will=self._will() if self._will else None,
            filters=tuple(self._filters),
            in_flight=self._in_flight,
            on_up=lambda session: self._call(self._up, session),
            on_message=lambda message: self._call(self._deliver, message),
        )
        self._attempt = session
        try:
            session.run(self._stopping)
        finally:
            self._attempt = None
            if session.was_up:
                self._call(self._down, session, session.reason or "internal fault")
        return session

    def _delay_s(self, session: Session) -> float:
        delay_s = self._backoff.next_delay_s(was_answered=session.was_answered)
        floor_s = SLOW_REASONS.get(session.reason_code, 0.0)
        self._refused_until_s = _boottime_s() + min(self._settings.backoff_cap_s, floor_s)
        if floor_s:
            delay_s = min(self._settings.backoff_cap_s, floor_s + delay_s)
        return max(delay_s, self._rests_until_s - _boottime_s())

    def _report(self, reason: str, reason_code: int) -> None:
        if reason != self._said:
            self._said = reason
            log.warning(
                "no connection to the broker %s: %s; trying again until it works",
                self._settings.url,
                reason,
                extra={"reason_code": reason_code},
            )

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        loop = self._loop
        if loop is None or self._stopping.is_set():
            return
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop was closed before the transport was stopped
            self._stopping.set()

    # --- the owner's event loop ------------------------------------------------------------------------

    def _up(self, session: Session) -> None:
        if self._listener is None:
            return
        self._session = session
        missed = [name for name in self._filters if name not in session.filters]
        if missed:
            session.subscribe(missed)
        self._said = ""
        log.info("connected to the broker %s", self._settings.url)
        self._listener.on_up()

    def _down(self, session: Session, reason: str) -> None:
        if self._session is session:
            self._session = None
            if self._listener is not None:
                self._listener.on_down(reason)

    def _deliver(self, message: Message) -> None:
        if self._listener is not None:
            self._listener.on_message(message)


def _boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
