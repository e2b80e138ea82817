"""`skerry policy status`: the learned policy on this machine, and how far its gate lets it decide."""

from __future__ import annotations

from skerry.cli.connect import JsonOption, with_agent
from skerry.cli.output import print_fields, print_json, print_table
from skerry.client import Client
from skerry.documents import PolicyStatus

_ROWS = {
    "tasks": "tasks compared",
    "cost": "cost a task",
    "missed": "missed",
    "latency": "latency, in deadlines",
}


@with_agent
def status(client: Client, *, as_json: JsonOption = False) -> None:
    """Show which policy this machine tries, who decides how much, and how both have done.

    Example: skerry policy status
    """
    found = client.policy()
    if as_json:
        print_json(found)
        return
    print_fields(
        {
            "policy": found.version or "none",
            "state": found.state,
            "reason": found.reason,
            "rollout": found.rollout,
            "fallback": found.fallback,
            "decisions": ", ".join(f"{who} {count}" for who, count in found.decisions.items() if count),
            "not taken": ", ".join(f"{kind} {count}" for kind, count in found.failures.items()),
        }
    )
    if found.evidence:
        print_table(("", "candidate", "fallback"), _rows(found), empty="")


def _rows(found: PolicyStatus) -> list[tuple[str, ...]]:
    evidence = found.evidence
    return [
        (words, *(f"{evidence.get(f'{who}_{name}', 0.0):.4g}" for who in ("candidate", "fallback")))
        for name, words in _ROWS.items()
    ]
