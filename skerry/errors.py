"""The error tree. Owns every exception a caller may catch; the class docstring is the default message.

Two kinds of failure only: an error (raised, named here) and an expected refusal (a value with a reason,
defined beside the operation that may refuse).
"""

from __future__ import annotations


class SkerryError(Exception):
    """Something in Skerry went wrong."""

    def __init__(self, message: str = "", **attributes: object) -> None:
        """Carry message (default: the class docstring); attributes become fields for logs."""
        super().__init__(message or (self.__class__.__doc__ or "").strip())
        self.attributes = attributes


class SettingsError(SkerryError):
    """The settings are not valid."""


class SpecError(SkerryError):
    """The task description is not valid."""

    def __init__(self, message: str, *, field: str = "") -> None:
        """field: the dotted path of the field at fault, empty when the document itself is malformed."""
        super().__init__(message, field=field)
        self.field = field


class QueueError(SkerryError):
    """The task queue could not do what was asked."""


class QueueFull(QueueError):
    """The queue has no room for this task now."""

    def __init__(self, message: str = "", *, retry_after_s: float = 5.0) -> None:
        """retry_after_s: when there may be room again."""
        super().__init__(message, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class LeaseLost(QueueError):
    """The lease on this task belongs to someone else now."""


class TaskNotFound(QueueError):
    """There is no task with this id."""


class InvalidTransition(QueueError):
    """This event is not allowed in this state."""

    def __init__(self, state: str, event: str) -> None:
        """state, event: the pair that the transition table does not hold."""
        super().__init__(f"{event} is not allowed in state {state}", state=state, event=event)
        self.state = state
        self.event = event


class StorageFailed(QueueError):
    """The disk refused the write; nothing of this commit was kept."""


class StoreDamaged(StorageFailed):
    """What the database holds is damaged; nothing of this commit was kept."""


class StoreTooNew(QueueError):
    """This database was written by a newer version of Skerry; it was left as it is."""


class DirectoryInUse(SkerryError):
    """Another process owns this data directory."""

    def __init__(self, path: str, pid: int | None) -> None:
        """pid: the owner's process id, None when it could not be read."""
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{path} is in use by {who}; stop it first, or choose another data_dir", path=path, pid=pid
        )
        self.path = path
        self.pid = pid


class PlacementError(SkerryError):
    """The task could not be placed."""


class NoFeasibleNode(PlacementError):
    """No node of the fleet can run this task."""


class StalePlan(PlacementError):
    """The fleet changed while this plan was made."""


class TransportError(SkerryError):
    """The message could not be sent."""


class NotConnected(TransportError):
    """There is no connection to the broker."""


class Rejected(TransportError):
    """The broker refused the message."""


class ServiceUnreachable(TransportError):
    """The service does not answer."""


class TaskFailed(SkerryError):
    """The task ended without success."""


class WaitTimedOut(SkerryError):
    """The task had not ended when the waiting time was over; it goes on."""


class EnvelopeRefused(SkerryError):
    """The message was refused before it was decoded."""

    def __init__(self, reason: str, message: str = "") -> None:
        """reason: one of skerry.envelope.REFUSALS, the label under which it is counted."""
        super().__init__(message or reason, reason=reason)
        self.reason = reason


class IdentityError(SkerryError):
    """The node's identity is missing or damaged."""


class BlobError(SkerryError):
    """The content could not be stored or read."""


class BlobNotFound(BlobError):
    """There is no content with this hash here."""


class BlobCorrupt(BlobError):
    """The content does not match its hash."""


class BlobQuotaExceeded(BlobError):
    """The content store is full."""


class CoordinatorUnreachable(BlobError):
    """The coordinator's content store cannot be reached now."""


class BackupError(SkerryError):
    """The backup could not be made, read or restored."""


class DeviceError(SkerryError):
    """The device failed."""


class RulesError(SkerryError):
    """The rules could not be loaded or evaluated."""


class PolicyError(SkerryError):
    """The policy cannot be used."""


class PolicyNotFound(PolicyError):
    """There is no such policy or rollout."""


class FederationError(SkerryError):
    """The federated round failed."""


class RoundFailed(FederationError):
    """The round ended without an aggregate."""
