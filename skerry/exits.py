"""How the process of a service ends: the exit status of each error that a person must act on."""

from __future__ import annotations

from skerry.errors import DirectoryInUse, IdentityError, SkerryError, StoreTooNew

#: Settings that do not hold, and every error without a status of its own.
_MISTAKE = 2
_STATUS: dict[type[SkerryError], int] = {DirectoryInUse: 3, StoreTooNew: 4, IdentityError: 5}


def service_exit(error: SkerryError) -> int:
    """Return the exit status of a service that this error ended; the nearest class decides."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), _MISTAKE)
