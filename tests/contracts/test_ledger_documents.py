"""Documents in a ledger: kept by kind and name, and part of its transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_coordinator.ledger.port import Ledger


def test_documents_are_kept_by_kind_and_name(reopen: Callable[[], Ledger]) -> None:
    ledger = reopen()
    with ledger.transaction():
        ledger.put_document("policy", "b", b"1")
        ledger.put_document("policy", "a", b"2")
        ledger.put_document("rollout", "a", b"3")
        ledger.put_document("policy", "b", b"4")

    again = reopen()
    assert again.documents("policy") == [("a", b"2"), ("b", b"4")]
    assert again.document("rollout", "a") == b"3"
    assert again.document("rollout", "b") is None


def undone(ledger: Ledger, change: Callable[[], None]) -> None:
    """Make the change in a transaction that then fails."""
    with ledger.transaction():
        change()
        raise KeyError("undo")


def test_a_dropped_document_is_gone_and_an_undone_drop_is_not(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.put_document("policy", "a", b"1")
        ledger.put_document("policy", "b", b"2")
        ledger.put_document("rollout", "a", b"3")
    with ledger.transaction():
        ledger.drop_document("policy", "a")
        ledger.drop_document("policy", "unknown")
    with pytest.raises(KeyError, match="undo"):
        undone(ledger, lambda: ledger.drop_document("policy", "b"))

    assert ledger.documents("policy") == [("b", b"2")]
    assert ledger.documents("rollout") == [("a", b"3")]


def test_a_document_of_an_undone_commit_is_not_there(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.put_document("policy", "a", b"1")
    with pytest.raises(KeyError, match="undo"):
        undone(ledger, lambda: ledger.put_document("policy", "a", b"2"))

    assert ledger.documents("policy") == [("a", b"1")]
