"""The steps of an exhaustive check as lines for people. Reads messages without checking them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from skerry.envelope import MAGIC
from skerry.identity import SIGNATURE_BYTES
from skerry.topics import UP, parse
from twin.faithful.exhaustive_setting import WAIT_S
from twin.faithful.exhaustive_values import Choice, Sent


def words_of(choice: Choice, name: str, messages: Sequence[Sent]) -> str:
    """Return a step as a line.  name: of the part that it happens to."""
    after = (
        f", and ends before commit {choice.cut_off_at} of it, and begins again" if choice.cut_off_at else ""
    )
    match choice.told:
        case ("hear", number):
            again = " (which comes once more)" if choice.is_kept else ""
            return f"{name} hears {_message(messages[number])}{again}{after}"
        case ("wait",):
            return f"{WAIT_S:g} s pass"
        case ("crash",):
            return f"{name} ends and begins again"
        case ("submit", task_id, _):
            return f"{name} is given task {task_id[-1]}{after}"
        case ("end", task_id):
            return f"the attempt of task {task_id[-1]} at {name} succeeds{after}"
        case _:
            return f"{name} has its plan"


def _message(message: Sent) -> str:
    """Return what a message says; its number is its session's and its own."""
    where, payload = parse(message.topic), message.payload
    whose = f"{where.leaf.value} of {where.node}" if where.leaf in UP else where.leaf.value
    header_at = len(MAGIC) + SIGNATURE_BYTES + 3
    length = int.from_bytes(payload[header_at - 2 : header_at], "big")
    header = msgspec.json.decode(payload[header_at : header_at + length])
    body = payload[header_at + length :]
    said = _said(zlib.decompress(body) if payload[header_at - 3] else body)
    return f"{whose} {header['session']}-{header['counter']}{said}"


def _said(body: bytes) -> str:
    document = msgspec.json.decode(body)
    if rows := document.get("rows"):
        told = (
            f"{row['seq']} {row['kind'].removeprefix('skerry.')} {str(row.get('key', ''))[-1:]}"
            for row in rows
        )
        return f" [{', '.join(told)}]"
    if "upto" in document:
        return (
            f" [{document.get('lane')} up to {document['upto']}{', gap' if document.get('is_gap') else ''}]"
        )
    return " [offline]" if document.get("online") is False else ""
