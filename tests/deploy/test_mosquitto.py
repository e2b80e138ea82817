"""The broker configuration that ships, started as it is but for paths and port, and tried by clients."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skerry.cli.demo.brokers import RunningBroker, find_mosquitto, free_port
from skerry.topics import DOWN, UP, Leaf, build, coordinator_filters, node_filters
from skerry.transport.mqtt import MqttTransport
from skerry.transport.port import Message
from skerry.transport.settings import MqttSettings

pytestmark = pytest.mark.mosquitto
CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "mosquitto"
USERS = ("demo/north-1", "demo/south-1", "demo/coordinator")
PATIENCE_S = 15.0


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        certificate = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        self.file = self._write("ca.crt", certificate.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, file: str) -> tuple[Path, Path]:
        """Certificate and key for a common name; valid for the loopback address."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = self._builder(subject, key).add_extension(address, critical=False)
        key_file = self._directory / f"{file}.key"
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return self._write(f"{file}.crt", certificate.sign(self._key, hashes.SHA256())), key_file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self._directory / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path


class Recorder:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.is_up = False
        self.heard: list[tuple[str, bytes]] = []

    def on_up(self) -> None:
        self.is_up = True

    def on_down(self, reason: str) -> None:
        self.is_up = False

    def on_message(self, message: Message) -> None:
        self.heard.append((message.topic, message.payload))
        message.acknowledge()


class Site:
    """The shipped configuration, running, with a password for each user."""

    def __init__(self, directory: Path, *, extra: str = "", without: str = "") -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.authority.issue("broker", "server")
        passwords = directory / "passwords"
        passwords.touch()
        for user in USERS:
            subprocess.run(["mosquitto_passwd", "-b", str(passwords), user, f"secret of {user}"], check=True)
            self.password_file(user).write_text(f"secret of {user}\n")
        (directory / "acl").write_text((CONFIGURATION / "acl").read_text())
        self.port = free_port()
        self.broker = RunningBroker("mosquitto", directory, self.port, self._command(extra, without))

    def password_file(self, user: str) -> Path:
        return self.directory / f"password-{user.replace('/', '-')}"

    def settings(self, user: str = "") -> MqttSettings:
        return MqttSettings(
            url=f"mqtts://127.0.0.1:{self.port}",
            ca_file=str(self.authority.file),
            username=user,
            password_file=str(self.password_file(user)) if user else "",
            backoff_cap_s=0.2,
        )

    def _command(self, extra: str, without: str) -> list[str]:
        text = (CONFIGURATION / "mosquitto.conf").read_text()
        text = text.replace("/etc/mosquitto/skerry", str(self.directory))
        text = text.replace("listener 8883", f"listener {self.port} 127.0.0.1")
        kept = [line for line in text.splitlines() if not without or not line.startswith(without)]
        path = self.directory / "mosquitto.conf"
        if os.geteuid() == 0:  # it would give root up, and then could not read a test's private folder
            kept.append("user root")
        path.write_text("\n".join([*kept, extra, ""]))
        program = find_mosquitto()
        assert program is not None
        return [program, "-c", str(path)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    running = Site(tmp_path)
    yield running
    running.broker.stop()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)  # a real broker: there is nothing else to wait for


class Client:
    """A connected client, and what it hears; a context manager."""

    def __init__(self, settings: MqttSettings, *filters: str) -> None:
        self.recorder = Recorder()
        self.transport = MqttTransport(settings, client_id=settings.username or "stranger")
        for topic_filter in filters:
            self.transport.subscribe(topic_filter)

    async def __aenter__(self) -> Client:
        self.transport.start(self.recorder)
        await until(lambda: self.recorder.is_up)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.transport.stop()

    def say(self, node: str, leaf: Leaf, payload: bytes) -> None:
        self.transport.publish(build("demo", node, leaf), payload)


def test_a_node_speaks_on_its_own_topics_and_the_coordinator_hears_it(site: Site) -> None:
    async def story() -> tuple[Recorder, Recorder]:
        async with (
            Client(site.settings("demo/coordinator"), *coordinator_filters("demo")) as hub,
            Client(site.settings("demo/north-1"), *node_filters("demo", "north-1")) as north,
        ):
            for leaf in sorted(UP):
                north.say("north-1", leaf, b"up")
            for leaf in sorted(DOWN):
                hub.say("north-1", leaf, b"down")
            await until(lambda: len(hub.recorder.heard) == len(UP) and len(north.recorder.heard) == len(DOWN))
            return hub.recorder, north.recorder

    hub, north = asyncio.run(story())

    assert {topic for topic, _ in hub.heard} == {build("demo", "north-1", leaf) for leaf in UP}
    assert {topic for topic, _ in north.heard} == {build("demo", "north-1", leaf) for leaf in DOWN}


def test_a_node_can_neither_speak_for_another_nor_as_the_coordinator(site: Site) -> None:
    async def story() -> Recorder:
        everything = ("skerry/1/demo/+/+", *coordinator_filters("demo"))
        async with (
            Client(site.settings("demo/coordinator"), *everything) as hub,
            Client(site.settings("demo/south-1"), *node_filters("demo", "south-1")) as south,
            Client(site.settings("demo/north-1")) as north,
        ):
            for leaf in Leaf:
                north.say("south-1", leaf, b"forged")
            for leaf in sorted(DOWN):
                north.say("north-1", leaf, b"forged")
            north.say("north-1", Leaf.EVENTS, b"true")
            hub.say("south-1", Leaf.HINT, b"true")
            # Behind the forged ones on the same connections: what is not there now never comes.
            await until(lambda: bool(hub.recorder.heard) and bool(south.recorder.heard))
            hub.recorder.heard += south.recorder.heard
            return hub.recorder

    heard = asyncio.run(story()).heard

    assert {payload for _, payload in heard} == {b"true"}


def test_a_node_cannot_read_what_is_anothers(site: Site) -> None:
    async def story() -> Recorder:
        async with (
            Client(site.settings("demo/coordinator")) as hub,
            Client(site.settings("demo/south-1"), "skerry/1/demo/+/+", "#") as south,
            Client(site.settings("demo/north-1")) as north,
        ):
            for leaf in sorted(DOWN):
                hub.say("north-1", leaf, b"secret")
            for leaf in sorted(UP):
                north.say("north-1", leaf, b"secret")
            north.say("north-1", Leaf.EVENTS, b"secret")
            await asyncio.sleep(0.1)  # the other node's words are on their way; south has one to wait for
            hub.say("south-1", Leaf.ACK, b"mine")
            await until(lambda: bool(south.recorder.heard))
            return south.recorder

    heard = asyncio.run(story()).heard

    assert {payload for _, payload in heard} == {b"mine"}


@pytest.mark.parametrize("case", ["anonymous", "wrong password", "unknown user"])
def test_a_stranger_is_refused_with_a_clear_word(
    site: Site, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = site.settings("" if case == "anonymous" else "demo/north-1")
    if case == "wrong password":
        site.password_file("demo/north-1").write_text("guess\n")
    if case == "unknown user":
        settings = msgspec.structs.replace(settings, username="demo/west-9")

    async def story() -> Recorder:
        client = Client(settings, "#")
        client.transport.start(client.recorder)
        await until(lambda: "no connection" in caplog.text)
        client.transport.stop()
        return client.recorder

    recorder = asyncio.run(story())

    assert "Not authorized" in caplog.text
    assert not recorder.is_up


def test_a_broker_whose_certificate_is_not_trusted_is_not_spoken_to(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    settings = msgspec.structs.replace(site.settings("demo/north-1"), ca_file=str(Authority(other).file))

    async def story() -> None:
        client = Client(settings)
        client.transport.start(client.recorder)
        await until(lambda: "no connection" in caplog.text)
        client.transport.stop()

    asyncio.run(story())

    assert "is not trusted" in caplog.text


def test_a_client_certificate_can_stand_for_the_password(tmp_path: Path) -> None:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    extra = "require_certificate true\nuse_identity_as_username true"
    site = Site(tmp_path, extra=extra, without="password_file")
    certificate, key = site.authority.issue("demo/north-1", "north")
    settings = msgspec.structs.replace(
        site.settings(), cert_file=str(certificate), key_file=str(key), username=""
    )

    async def story() -> Recorder:
        hub_certificate, hub_key = site.authority.issue("demo/coordinator", "hub")
        hub_settings = msgspec.structs.replace(
            settings, cert_file=str(hub_certificate), key_file=str(hub_key)
        )
        hub = Client(hub_settings, *coordinator_filters("demo"))
        hub.transport = MqttTransport(hub_settings, client_id="hub")
        for topic_filter in coordinator_filters("demo"):
            hub.transport.subscribe(topic_filter)
        async with hub, Client(settings) as north:
            north.say("south-1", Leaf.EVENTS, b"forged")
            north.say("north-1", Leaf.EVENTS, b"true")
            await until(lambda: bool(hub.recorder.heard))
        return hub.recorder

    try:
        heard = asyncio.run(story()).heard
    finally:
        site.broker.stop()

    assert heard == [(build("demo", "north-1", Leaf.EVENTS), b"true")]
