"""One connection: one paho client from connect to its end. Translates paho's answers and errors."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from skerry.errors import NotConnected, Rejected
from skerry.transport.port import Message, Will
from skerry.transport.settings import Address, MqttSettings, read_password, tls_context

log = logging.getLogger("skerry.transport")

SESSION_EXPIRY_S = 3600  # only spares subscribing anew; nothing relies on what a broker kept
RECEIVE_MAXIMUM = 64
MAX_IN_FLIGHT = 20
MAX_QUEUED = 2000  # beyond this the connection is backed up: say so instead of growing
_LOOP_S = 0.5
_SUSPEND_S = 2.0


class Session:
    """One try to connect and, when it works, the connection; `run` returns when it is over."""

    def __init__(
        self,
        settings: MqttSettings,
        address: Address,
        *,
        client: paho.Client,
        will: Will | None,
        filters: tuple[str, ...],
        in_flight: int,
        on_up: Callable[[Session], None],
        on_message: Callable[[Message], None],
    ) -> None:
        """client: fresh, manual_ack.  in_flight: unacknowledged messages at once.

        on_up, on_message: called on the thread that runs the session.
        """
        self._settings = settings
        self._address = address
        self._client = client
        self._will = will
        self._on_up = on_up
        self._on_message = on_message
        self._wanted_suback: int | None = None
        self._largest_packet = 0
        self._is_over = False
        self._is_leaving = False
        self.filters = filters
        self.in_flight = in_flight
        self.must_retry = False  #: in_flight was too high for this broker; nothing is wrong
        self.was_answered = False  #: somebody took the connection, whatever came of it
        self.was_up = False
        self.reason = ""
        self.reason_code = 0

    def run(self, stopping: threading.Event) -> None:
        """Connect and stay until the connection is gone; reason and reason_code say why."""
        try:
            self._prepare()
            self._client.reconnect()
            self.was_answered = True  # whoever took the connection bears its cost, also when no more is said
            self._stay(stopping)
        except (OSError, ValueError) as error:
            self.was_answered = self.was_answered or isinstance(error, ssl.SSLError)
            self.reason = _explain(error, self._address)
        finally:
            self._is_over = True
            self._close()

    def subscribe(self, filters: list[str]) -> None:
        """Subscribe to more, at QoS 1."""
        self._client.subscribe([(name, SubscribeOptions(qos=1)) for name in filters])

    def publish(self, topic: str, payload: bytes, retain: bool) -> None:
        """Queue one message at QoS 1.  Raises NotConnected, Rejected; never waits."""
        if self._largest_packet and len(payload) + len(topic) + 64 > self._largest_packet:
            raise Rejected(
                f"{len(payload)} bytes on {topic}; the broker takes at most {self._largest_packet}"
            )
        if self._is_over:
            raise NotConnected(f"the connection to {self._settings.url} has just ended")
        try:
            sent = self._client.publish(topic, payload, qos=1, retain=retain)
        except ValueError as error:
            raise Rejected(f"a message on {topic}: {error}") from error
        if sent.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            raise NotConnected(f"the connection to {self._settings.url} is backed up")
        if sent.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise NotConnected(f"the connection to {self._settings.url}: {paho.error_string(sent.rc)}")

    def disconnect(self) -> None:
        """Ask for an orderly end: what was handed over before is written first."""
        self.reason = self.reason or "stopped"
        self._is_leaving = self._client.is_connected()
        self._client.disconnect()

    def _prepare(self) -> None:
        client, settings = self._client, self._settings
        client.connect_timeout = settings.connect_timeout_s
        client.max_inflight_messages_set(self.in_flight)
        client.max_queued_messages_set(MAX_QUEUED)
        client.on_socket_open = _no_delay
        # Keeps paho from writing on the caller's thread: only this session's thread touches the socket.
        client.on_socket_register_write = _leave_to_the_loop
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_message = self._arrived
        client.on_publish = self._published
        client.on_disconnect = self._disconnected
        if self._address.is_tls:
            client.tls_set_context(tls_context(settings))
        if settings.username:
            client.username_pw_set(settings.username, read_password(settings))
        self._set_will()
        client.connect_async(
            self._address.host,
            self._address.port,
            keepalive=settings.keepalive_s,
            clean_start=False,
            properties=_connect_properties(),
        )

    def _set_will(self) -> None:
        if self._will is not None:
            properties = _properties(PacketTypes.WILLMESSAGE)
            properties.WillDelayInterval = self._settings.will_delay_s
            will = self._will
            self._client.will_set(will.topic, will.payload, qos=1, retain=will.retain, properties=properties)

    def _stay(self, stopping: threading.Event) -> None:
        deadline = time.monotonic() + self._settings.connect_timeout_s
        asleep_s = _suspended_s()
        while True:
            if stopping.is_set() and not self._is_leaving:  # asked to end while it was still connecting
                self.disconnect()
            code = self._client.loop(_LOOP_S)
            if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                self.reason = self.reason or paho.error_string(code)
                return
            if not self.was_up and time.monotonic() > deadline:
                self.reason = self.reason or "the broker does not answer"
                return
            # paho's keep-alive clock stands still while the machine sleeps: a dead link would look alive.
            if _suspended_s() - asleep_s > _SUSPEND_S:
                self.reason = "the machine was suspended"
                return

    def _close(self) -> None:
        # The client and this session refer to each other: parted, both go now and not at some collection.
        client = self._client
        client.on_socket_open = client.on_connect = client.on_subscribe = None
        client.on_message = client.on_publish = client.on_disconnect = None
        sock = client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    # --- paho's callbacks, on the session's thread ------------------------------------------------------

    def _connected(self, _c: Any, _u: Any, _f: Any, code: ReasonCode, properties: Properties | None) -> None:
        self.was_answered = True
        if code.is_failure:
            self._note(code)
            return
        allowed = max(1, getattr(properties, "ReceiveMaximum", MAX_IN_FLIGHT))
        if allowed < self.in_flight:
            # paho takes this limit only before it connects: begin again within it.
            self.in_flight, self.must_retry = allowed, True
            self.reason = f"the broker takes {allowed} messages at once"
            self._client.disconnect()
            return
        self._largest_packet = getattr(properties, "MaximumPacketSize", 0)
        if not self.filters:
            self._come_up()
            return
        _, self._wanted_suback = self._client.subscribe(
            [(name, SubscribeOptions(qos=1)) for name in self.filters]
        )

    def _subscribed(self, _c: Any, _u: Any, mid: int, codes: list[ReasonCode], _p: Any) -> None:
        refused = [str(code) for code in codes if code.is_failure]
        if refused:
            log.warning("the broker %s refused a subscription: %s", self._settings.url, ", ".join(refused))
        if mid == self._wanted_suback:
            self._come_up()

    def _come_up(self) -> None:
        self.was_up = True
        self._on_up(self)

    def _arrived(self, _c: Any, _u: Any, message: paho.MQTTMessage) -> None:
        mid, qos = message.mid, message.qos
        self._on_message(
            Message(
                topic=message.topic,
                payload=bytes(message.payload),
                retained=message.retain,
                acknowledge=_Acknowledge(self, mid, qos),
            )
        )

    def acknowledge(self, mid: int, qos: int) -> None:
        """Tell the broker that the application has a message, unless its connection is over."""
        if qos and not self._is_over:
            self._client.ack(mid, qos)

    def _published(self, _c: Any, _u: Any, _mid: int, code: ReasonCode, _p: Any) -> None:
        if code.is_failure:
            log.warning("the broker %s refused a message: %s", self._settings.url, code)

    def _disconnected(self, _c: Any, _u: Any, flags: Any, code: ReasonCode, _p: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._note(code)
        self.reason = self.reason or "the connection was lost"

    def _note(self, code: ReasonCode) -> None:
        if not self.reason:
            self.reason = str(code)
            self.reason_code = int(code.value)


class _Acknowledge:
    """Acknowledges one message once."""

    __slots__ = ("_is_done", "_mid", "_qos", "_session")

    def __init__(self, session: Session, mid: int, qos: int) -> None:
        self._session = session
        self._mid = mid
        self._qos = qos
        self._is_done = False

    def __call__(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._session.acknowledge(self._mid, self._qos)


def _connect_properties() -> Properties:
    properties = _properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = SESSION_EXPIRY_S
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    return properties


def _properties(packet: int) -> Properties:
    return Properties(packet)  # type: ignore[no-untyped-call]  # paho leaves it untyped


def _no_delay(_client: Any, _userdata: Any, sock: Any) -> None:
    # Without it small writes wait for the peer's delayed acknowledgement: 40 ms a round trip.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _leave_to_the_loop(_client: Any, _userdata: Any, _sock: Any) -> None:
    return


def _suspended_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def _explain(error: OSError | ValueError, address: Address) -> str:
    where = f"{address.host}:{address.port}"
    match error:
        case socket.gaierror():
            return f"the name {address.host} cannot be resolved ({error.strerror})"
        case ssl.SSLCertVerificationError():
            return f"the certificate of {where} is not trusted ({error.verify_message})"
        case ssl.SSLError():
            return f"no TLS with {where} ({error.reason or error})"
        case ConnectionRefusedError():
            return f"nothing listens on {where}"
        case TimeoutError():
            return f"{where} does not answer"
        case OSError(filename=str() as name):
            return f"{name} cannot be read ({error.strerror})"
        case _:
            return f"{where}: {error}"
