"""`skerry rollout`: how one policy version comes to the fleet, in guarded steps; the registry of versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from skerry.cli.connect import JsonOption
from skerry.cli.coordinator import WhereConfig, WhereToken, WhereUrl, connection
from skerry.cli.exits import Exit
from skerry.cli.following import changes, follow
from skerry.cli.output import print_fields, print_json, print_table, wall
from skerry.cli.root import Group
from skerry.errors import SettingsError

if TYPE_CHECKING:
    from skerry.http import HttpConnection
    from skerry.policy_documents import RolloutView

app = typer.Typer(cls=Group, help="Bring a policy version to the fleet, step by step.", no_args_is_help=True)

ROLLOUTS_PATH = "/v1/rollouts"
POLICIES_PATH = "/v1/policies"
#: Which exit status a rollout that has ended gives.
ENDS = {"done": Exit.OK, "rolled_back": Exit.FAILED, "aborted": Exit.FAILED}

RolloutArgument = Annotated[str, typer.Argument(metavar="ROLLOUT", help="As `skerry rollout list` shows it.")]


@app.command()
def start(
    policy: Annotated[str, typer.Argument(help="The version: its hash, or the first digits of it.")],
    canary: Annotated[list[str] | None, typer.Option(metavar="NODE", help="A canary, by name.")] = None,
    canaries: Annotated[int, typer.Option(min=1, help="How many canaries, when none is named.")] = 1,
    gate: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A setting of the gate on the nodes.")
    ] = None,
    wave_s: Annotated[
        float | None, typer.Option("--wave", metavar="SECONDS", min=1, help="What a wave may take.")
    ] = None,
    silence_s: Annotated[
        float | None,
        typer.Option("--silence", metavar="SECONDS", min=1, help="Silence that counts as failure."),
    ] = None,
    passes_at: Annotated[
        str, typer.Option(help="Where a canary's gate must be: shadow, canary, partial or full.")
    ] = "full",
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Start although it was not shown to beat the fallback.")
    ] = False,
    watch_it: Annotated[bool, typer.Option("--watch", help="Stay until it ends.")] = False,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Start a rollout: a few nodes first, then everyone.

    Example: skerry rollout start 3fa9c2 --canary edge-1 --config cloud/coordinator.toml
    """
    from skerry.policy_documents import RolloutView

    spec: dict[str, object] = {
        "policy": policy,
        "canaries": canary or [],
        "canary_count": canaries,
        "gate": _numbers(gate or []),
        "passes_at": passes_at,
        "may_be_unproven": unproven,
    }
    spec |= {"wave_s": wave_s} if wave_s else {}
    spec |= {"silence_s": silence_s} if silence_s else {}
    with connection(config, url, token_file) as http:
        body = msgspec.json.encode({"spec": spec})
        begun = http.json(RolloutView, "POST", ROLLOUTS_PATH, body=body)
        if watch_it:
            _watch(http, begun.rollout_id, as_json=as_json)
        _show(begun, as_json=as_json)


@app.command()
def watch(
    rollout: RolloutArgument,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a rollout until it ends; the exit status is 0 when it is done, 1 when it was taken back.

    Example: skerry rollout watch r-1f2e3d4c
    """
    with connection(config, url, token_file) as http:
        _watch(http, rollout, as_json=as_json)


@app.command()
def show(
    rollout: RolloutArgument,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a rollout is, and each of its nodes with the figures of its gate.

    Example: skerry rollout show r-1f2e3d4c --json
    """
    with connection(config, url, token_file) as http:
        _show(_get(http, rollout), as_json=as_json)


@app.command("list")
def list_(
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """List the rollouts, newest first.

    Example: skerry rollout list
    """
    from skerry.policy_documents import RolloutList

    with connection(config, url, token_file) as http:
        found = http.json(RolloutList, "GET", ROLLOUTS_PATH)
    if as_json:
        print_json(found)
        return
    columns = ("rollout", "policy", "state", "canaries", "started", "reason")
    rows = [
        (one.rollout_id, one.version, one.state, ",".join(one.canaries), wall(one.started_wall_s), one.reason)
        for one in found.rollouts
    ]
    print_table(columns, rows, empty="no rollout yet; `skerry rollout start` begins one")


@app.command()
def policies(
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """List the policy versions that the coordinator has, with what each may be used for.

    Example: skerry rollout policies
    """
    from skerry.policy_documents import PolicyVersionList

    with connection(config, url, token_file) as http:
        found = http.json(PolicyVersionList, "GET", POLICIES_PATH)
    if as_json:
        print_json(found)
        return
    columns = ("policy", "state", "current", "added", "by", "reason")
    rows = [
        (
            one.version,
            one.state,
            "yes" if one.is_current else "",
            wall(one.added_wall_s),
            one.added_by,
            one.reason,
        )
        for one in found.policies
    ]
    print_table(columns, rows, empty="no policy yet; `skerry policy push FILE` brings one")


@app.command()
def pause(
    rollout: RolloutArgument,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Tell no further node; the gates on the nodes go on.

    Example: skerry rollout pause r-1f2e3d4c
    """
    _change("pause", rollout, config, url, token_file, as_json=as_json)


@app.command()
def resume(
    rollout: RolloutArgument,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Go on after a pause.

    Example: skerry rollout resume r-1f2e3d4c
    """
    _change("resume", rollout, config, url, token_file, as_json=as_json)


@app.command()
def abort(
    rollout: RolloutArgument,
    config: WhereConfig = None,
    url: WhereUrl = None,
    token_file: WhereToken = None,
    as_json: JsonOption = False,
) -> None:
    """Stop, and send every node back to what the fleet ran before.

    Example: skerry rollout abort r-1f2e3d4c
    """
    _change("abort", rollout, config, url, token_file, as_json=as_json)


def _numbers(words: list[str]) -> dict[str, float]:
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError as error:
            raise SettingsError(f"--gate takes NAME=NUMBER, not {word[:40]!r}") from error
    return found


def _path(rollout: str) -> str:
    from urllib.parse import quote

    return f"{ROLLOUTS_PATH}/{quote(rollout, safe='')}"


def _get(http: HttpConnection, rollout: str) -> RolloutView:
    from skerry.policy_documents import RolloutView

    return http.json(RolloutView, "GET", _path(rollout))


def _change(
    verb: str, rollout: str, config: Path | None, url: str | None, token_file: Path | None, *, as_json: bool
) -> None:
    from skerry.policy_documents import RolloutView

    with connection(config, url, token_file) as http:
        _show(http.json(RolloutView, "POST", f"{_path(rollout)}/{verb}", body=b""), as_json=as_json)


def _watch(http: HttpConnection, rollout: str, *, as_json: bool) -> None:
    views = changes(
        lambda: _get(http, rollout),
        has_ended=lambda one: one.has_ended,
        seen=lambda one: (one.state, one.reason, [(n.node, n.progress, n.state) for n in one.nodes]),
    )
    last = follow(views, _line, as_json=as_json)
    if last is not None:
        raise typer.Exit(ENDS[last.state])


def _line(found: RolloutView) -> str:
    words = [
        f"{one.node} {one.progress}" + (f" ({one.state})" if one.state else "") for one in found.nodes[:8]
    ]
    more = " …" if len(found.nodes) > len(words) else ""
    return f"{found.state}: {', '.join(words)}{more}" + (f"; {found.reason}" if found.reason else "")


def _show(found: RolloutView, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_fields(
        {
            "rollout": found.rollout_id,
            "policy": found.version,
            "state": found.state,
            "reason": found.reason,
            "canaries": ", ".join(found.canaries),
            "started": f"{wall(found.started_wall_s)} by {found.started_by}",
            "ended": wall(found.ended_wall_s),
        }
    )
    columns = ("node", "progress", "gate", "cost", "fallback's", "missed", "fallback's", "reason")
    rows = [
        (
            one.node,
            one.progress,
            one.state,
            *(_figure(one.evidence, name) for name in
              ("candidate_cost", "fallback_cost", "candidate_missed", "fallback_missed")),
            one.reason,
        )
        for one in found.nodes
    ]  # fmt: skip
    if rows:
        typer.echo("")
        print_table(columns, rows, empty="")


def _figure(evidence: dict[str, float], name: str) -> str:
    return f"{evidence[name]:.3f}" if name in evidence else ""
