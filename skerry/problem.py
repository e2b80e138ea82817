"""How an error looks from outside: problem documents (RFC 9457) and the one table from error class to status.

Owns status, name and public text. Knows nothing of HTTP servers; the client reads the same documents.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skerry import errors

TYPE_PREFIX = "urn:skerry:"
MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document. type: `urn:skerry:<name>`; detail: what is wrong and what to do, for people."""

    status: int
    title: str
    type: str = "about:blank"
    detail: str = ""
    field: str = ""  #: dotted path of the field at fault, of a document that was refused
    retry_after_s: float | None = None
    request: str = ""  #: id of the request, which the log has too

    @property
    def name(self) -> str:
        """The part of `type` that programs compare, for example `task-not-found`."""
        return self.type.removeprefix(TYPE_PREFIX)


class ProblemRule(msgspec.Struct, frozen=True):
    """How one error class is shown. text: the public text; None: the error's own message is public."""

    status: int
    name: str
    title: str
    text: str | None = None
    retry_after_s: float | None = None


class ProblemError(errors.SkerryError):
    """The request was refused."""

    def __init__(self, problem: Problem) -> None:
        """Carry the document to be sent (at a server) or received (at a client)."""
        asked = f" (request {problem.request})" if problem.status >= 500 and problem.request else ""
        super().__init__(
            (problem.detail or problem.title) + asked, status=problem.status, problem=problem.name
        )
        self.problem = problem


INTERNAL = ProblemRule(
    500,
    "internal",
    "Internal error",
    "the request failed inside; the log has the reason under this request's id",
)

#: The nearest class in an error's inheritance decides.
RULES: dict[type[BaseException], ProblemRule] = {
    errors.SpecError: ProblemRule(422, "invalid", "The document is not valid"),
    errors.SettingsError: ProblemRule(422, "invalid-settings", "The settings are not valid"),
    errors.TaskNotFound: ProblemRule(404, "task-not-found", "There is no such task"),
    errors.InvalidTransition: ProblemRule(409, "not-allowed-now", "Not allowed in this state"),
    errors.QueueFull: ProblemRule(429, "queue-full", "The queue is full", None, 5.0),
    errors.LeaseLost: ProblemRule(409, "lease-lost", "The lease is lost"),
    errors.StorageFailed: ProblemRule(
        507,
        "storage-failed",
        "The disk refused the write",
        "the disk refused the write, nothing was accepted: free space in the data directory, or mount it for "
        "writing, then try again",
        5.0,
    ),
    errors.BackupError: ProblemRule(507, "backup-failed", "The backup could not be made"),
    errors.BlobNotFound: ProblemRule(404, "blob-not-found", "There is no such content"),
    errors.BlobCorrupt: ProblemRule(422, "blob-corrupt", "The content does not match its hash"),
    errors.BlobError: ProblemRule(507, "blob-storage", "The content could not be stored or read", None, 5.0),
    errors.BlobQuotaExceeded: ProblemRule(507, "blob-quota", "The content store is full"),
    errors.NoFeasibleNode: ProblemRule(422, "no-feasible-node", "No node can run this"),
    errors.StalePlan: ProblemRule(409, "stale-plan", "The fleet changed meanwhile"),
    errors.EnvelopeRefused: ProblemRule(403, "envelope-refused", "The message was refused"),
    errors.IdentityError: ProblemRule(403, "identity", "The identity was refused"),
    errors.NotConnected: ProblemRule(503, "not-connected", "There is no connection to the broker"),
    errors.DeviceError: ProblemRule(503, "device", "The device failed"),
    errors.PolicyNotFound: ProblemRule(404, "policy-not-found", "There is no such policy or rollout"),
    errors.PolicyError: ProblemRule(409, "policy-refused", "The policy cannot be used"),
    errors.FederationError: ProblemRule(409, "round-refused", "The run is not possible now"),
    TimeoutError: ProblemRule(
        503, "timed-out", "It took too long", "the service did not answer in time; try again"
    ),
}

_HTTP_NAMES = {
    400: ("bad-request", "The request is malformed"),
    401: ("token-required", "A token is needed"),
    403: ("forbidden", "This is not allowed"),
    404: ("not-found", "There is nothing here"),
    405: ("method-not-allowed", "This path does not know this method"),
    408: ("too-slow", "The request came too slowly"),
    409: ("conflict", "This is not allowed now"),
    411: ("length-required", "The length is needed"),
    413: ("too-large", "The body is too large"),
    415: ("media-type", "This media type is not known here"),
    416: ("range", "This range is not there"),
    421: ("wrong-host", "This host name is not served here"),
    422: ("invalid", "The document is not valid"),
    429: ("busy", "Too much at once"),
    503: ("not-ready", "The service is not ready"),
    507: ("full", "There is no room left"),
}


def problem(
    status: int,
    detail: str,
    *,
    name: str = "",
    title: str = "",
    field: str = "",
    retry_after_s: float | None = None,
) -> ProblemError:
    """Return an error to raise in a handler: the detail says what is wrong and what to do."""
    known = _HTTP_NAMES.get(
        status, ("internal", "Internal error") if status >= 500 else ("refused", "The request is refused")
    )
    return ProblemError(
        Problem(
            status=status,
            type=TYPE_PREFIX + (name or known[0]),
            title=title or known[1],
            detail=detail,
            field=field,
            retry_after_s=retry_after_s,
        )
    )


def rule_of(
    error: BaseException, extra: Mapping[type[BaseException], ProblemRule] | None = None
) -> ProblemRule:
    """Return the rule of the nearest class in the error's inheritance; INTERNAL when none has one."""
    table = {**RULES, **(extra or {})}
    return next((table[kind] for kind in type(error).__mro__ if kind in table), INTERNAL)


def problem_of(
    error: BaseException, *, request: str = "", extra: Mapping[type[BaseException], ProblemRule] | None = None
) -> Problem:
    """Return the document that may be shown for any error: only texts made for users get out."""
    if isinstance(error, ProblemError):
        return msgspec.structs.replace(error.problem, request=request)
    rule = rule_of(error, extra)
    field = error.attributes.get("field") if isinstance(error, errors.SkerryError) else None
    return Problem(
        status=rule.status,
        type=TYPE_PREFIX + rule.name,
        title=rule.title,
        detail=str(error) if rule.text is None else rule.text,
        field=str(field or ""),
        retry_after_s=rule.retry_after_s,
        request=request,
    )
