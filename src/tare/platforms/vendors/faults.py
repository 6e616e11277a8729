"""What may go wrong at a hypervisor's API, as far as drivers tell it apart."""

from __future__ import annotations

from tare.errors import MachineFault, TareError


class Expired(MachineFault):
    """The session has ended: logging in again may help."""


class Missing(MachineFault):
    """There is no such object, or the account may not see it."""


class Refused(MachineFault):
    """The product refuses what was asked: its licence, the account's rights, a wrong state."""


def named(error: TareError, machine: str) -> MachineFault:
    """Return an error as a fault of one machine, with its name in front where it is not told."""
    told = error.message if machine in error.message else f"{machine}: {error.message}"
    if isinstance(error, MachineFault):
        return type(error)(told, error.hint, transient=error.transient)
    return MachineFault(told, error.hint)
