"""Enrolling: the token an operator hands out, what a node asks with it, and what the coordinator answers.

Token: `<id>.<secret>.<fingerprint>`; the fingerprint (16 hex digits of SHA-256 over the coordinator's key)
lets the node recognise the coordinator's answer before it has seen its key. Owns forms and signatures only.
"""

from __future__ import annotations

import hashlib

import msgspec

from skerry.errors import IdentityError
from skerry.identity import Enrolment, PrivateKey, parse_public_key, verify

ENROL_PATH = "/v1/enrol"
FINGERPRINT_DIGITS = 16
_ASK = b"skerry enrol 1\x00"
_ANSWER = b"skerry enrolled 1\x00"


class EnrolToken(msgspec.Struct, frozen=True, kw_only=True):
    """A one-use token taken apart; its secret is shown to nobody."""

    token_id: str
    secret: str
    fingerprint: str

    def __str__(self) -> str:
        """Return the token as the operator passes it on."""
        return f"{self.token_id}.{self.secret}.{self.fingerprint}"

    def __repr__(self) -> str:
        """Show everything but the secret."""
        return f"EnrolToken({self.token_id}, {self.fingerprint})"


class EnrolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a node asks. signature: hex, by the node's key, over everything else (see sign_request)."""

    token_id: str
    secret: str
    node: str
    public_key: str
    region: str = ""
    site: str = ""
    signature: str = ""


class EnrolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinator's answer. signature: hex, by its key, over the enrolment and the node's public key."""

    enrolment: Enrolment
    public_key: str  #: of the node: what the coordinator registered
    signature: str


def fingerprint_of(public_key_hex: str) -> str:
    """Return how a token names the coordinator's key."""
    return hashlib.sha256(parse_public_key(public_key_hex)).hexdigest()[:FINGERPRINT_DIGITS]


def parse_token(text: str) -> EnrolToken:
    """Return a token taken apart.  Raises IdentityError when it is not of the form, without repeating it."""
    parts = text.strip().split(".")
    if len(parts) != 3 or not all(parts) or len(parts[2]) != FINGERPRINT_DIGITS:
        raise IdentityError("the token is not complete: copy all of <id>.<secret>.<16 hex digits>")
    return EnrolToken(token_id=parts[0], secret=parts[1], fingerprint=parts[2].lower())


def sign_request(key: PrivateKey, token: EnrolToken, *, node: str, region: str, site: str) -> EnrolRequest:
    """Return the request of the holder of this key."""
    asked = EnrolRequest(
        token_id=token.token_id,
        secret=token.secret,
        node=node,
        public_key=key.public_hex,
        region=region,
        site=site,
    )
    return msgspec.structs.replace(asked, signature=key.sign(_asked(asked)).hex())


def is_request_signed(request: EnrolRequest) -> bool:
    """Decide whether the request was signed by the key it names."""
    try:
        return verify(parse_public_key(request.public_key), bytes.fromhex(request.signature), _asked(request))
    except (IdentityError, ValueError):
        return False


def sign_answer(key: PrivateKey, enrolment: Enrolment, node_public_key: str) -> EnrolAnswer:
    """Return the coordinator's answer; the enrolment names the coordinator's public key."""
    signature = key.sign(_answered(enrolment, node_public_key)).hex()
    return EnrolAnswer(enrolment=enrolment, public_key=node_public_key, signature=signature)


def check_answer(answer: EnrolAnswer, token: EnrolToken, key: PrivateKey) -> Enrolment:
    """Return the enrolment when the coordinator that made the token has signed it for this key.

    Raises IdentityError: somebody else has answered, or the answer was changed on its way.
    """
    coordinator = answer.enrolment.coordinator_public_key
    if fingerprint_of(coordinator) != token.fingerprint:
        raise IdentityError(
            "another coordinator than the one that made this token has answered: check the address; "
            "if it is right, somebody stands between"
        )
    if answer.public_key != key.public_hex:
        raise IdentityError("the answer is for another node's key")
    try:
        signature = bytes.fromhex(answer.signature)
    except ValueError as error:
        raise IdentityError("the answer's signature cannot be read") from error
    if not verify(parse_public_key(coordinator), signature, _answered(answer.enrolment, answer.public_key)):
        raise IdentityError("the answer's signature is not the coordinator's: it was changed on its way")
    return answer.enrolment


def _asked(request: EnrolRequest) -> bytes:
    return _ASK + msgspec.json.encode(msgspec.structs.replace(request, signature=""), order="sorted")


def _answered(enrolment: Enrolment, node_public_key: str) -> bytes:
    return _ANSWER + node_public_key.encode() + b"\x00" + msgspec.json.encode(enrolment, order="sorted")
