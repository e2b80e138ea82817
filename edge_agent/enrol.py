"""Enrolling this machine: its key is made here, one request with a one-use token, an answer that is checked.

Writes the enrolment only when the coordinator that made the token has signed it. Owns no message forms.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from edge_agent.settings import AgentSettings, default_node_name
from skerry.durable import write_whole
from skerry.endpoint import Endpoint
from skerry.enrolment import ENROL_PATH, EnrolAnswer, check_answer, parse_token, sign_request
from skerry.errors import IdentityError
from skerry.http import HttpConnection
from skerry.identity import Enrolment, PrivateKey
from skerry.lock import DirectoryLock
from skerry.topics import check_node_name


def enrol(
    settings: AgentSettings,
    coordinator_url: str,
    token: str,
    *,
    node: str = "",
    region: str = "",
    site: str = "",
) -> Enrolment:
    """Enrol this machine and return what it was told; a running agent of this data directory must be stopped.

    Empty names come from the settings, the node's at last from the host name.
    Raises IdentityError (token, signature), SpecError (a name that may not stand in a topic), DirectoryInUse,
    ServiceUnreachable, or the coordinator's own refusal in its words (token used or expired, name taken).
    """
    taken_apart = parse_token(token)
    name = check_node_name(node or settings.node.name or default_node_name())
    with DirectoryLock(settings.home):
        key = PrivateKey.load_or_create(settings.key_path, is_kept_twice=True)
        request = sign_request(
            key,
            taken_apart,
            node=name,
            region=region or settings.node.region,
            site=site or settings.node.site,
        )
        answer = _ask(settings, coordinator_url, msgspec.json.encode(request))
        enrolment = check_answer(answer, taken_apart, key)
        if enrolment.node != name:
            raise IdentityError(f"the coordinator enrolled {enrolment.node!r}, asked was {name!r}")
        if settings.coordinator.url or not enrolment.coordinator_url:
            enrolment = msgspec.structs.replace(
                enrolment, coordinator_url=settings.coordinator.url or coordinator_url
            )
        _write_password(settings.password_path, enrolment.broker_password)
        enrolment.save(settings.enrolment_path)
    return enrolment


def _ask(settings: AgentSettings, url: str, body: bytes) -> EnrolAnswer:
    ca = Path(settings.coordinator.ca_file).expanduser() if settings.coordinator.ca_file else None
    connection = HttpConnection(
        Endpoint(url=url.rstrip("/"), ca=ca),
        service="coordinator",
        start_hint="skerry coordinator run (or check the address)",
    )
    try:
        return connection.json(EnrolAnswer, "POST", ENROL_PATH, body=body)
    finally:
        connection.close()


def _write_password(path: Path, password: str) -> None:
    """The broker's client reads its password from a file; it holds one line and is for its owner only."""
    if not password:
        path.unlink(missing_ok=True)
        return
    write_whole(path, f"{password}\n".encode())
