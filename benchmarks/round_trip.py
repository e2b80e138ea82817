"""A plain MQTT request and response between two clients on one broker: what the network itself costs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.harness import BenchmarkError

_ASK, _ANSWER = "benchmark/ask", "benchmark/answer"
_TIMEOUT_S = 10.0


def mqtt_round_trips(host: str, port: int, count: int) -> list[float]:
    """Return the durations of `count` round trips at QoS 1, one after another, seconds."""
    answered = threading.Event()

    def echo(client: Client, _: object, message: MQTTMessage) -> None:
        client.publish(_ANSWER, message.payload, qos=1)

    def arrived(client: Client, _: object, message: MQTTMessage) -> None:
        answered.set()

    with _client(host, port, _ASK) as server, _client(host, port, _ANSWER) as asker:
        server.on_message, asker.on_message = echo, arrived
        samples = []
        for _ in range(count):
            answered.clear()
            began = time.perf_counter()
            asker.publish(_ASK, b"where?", qos=1)
            if not answered.wait(_TIMEOUT_S):
                raise BenchmarkError(f"the broker on port {port} did not carry a message in {_TIMEOUT_S:g} s")
            samples.append(time.perf_counter() - began)
        return samples


@contextmanager
def _client(host: str, port: int, topic: str) -> Iterator[Client]:
    """A client in a thread of its own, subscribed, its socket without Nagle's delay."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    subscribed = threading.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(host, port)
    own = client.socket()
    if isinstance(own, socket.socket):
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.loop_start()
    try:
        client.subscribe(topic, qos=1)
        if not subscribed.wait(_TIMEOUT_S):
            raise BenchmarkError(f"the broker on port {port} accepted no subscription")
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
