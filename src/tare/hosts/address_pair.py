"""The two addresses of a connection between this computer and another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AddressPair:
    """The addresses of a connection, as one of its ends sees them.

    Args:
        there: The address of the other computer.
        here: The address of this computer. Both are empty if unknown.
    """

    there: str = ""
    here: str = ""


UNKNOWN = AddressPair()


def of_transport(info: Callable[[str], Any]) -> AddressPair:
    """Return the addresses that this end of a connection sees.

    Args:
        info: Returns a property of the connection by its name, like asyncio's transports.
    """
    there, here = info("peername"), info("sockname")
    return AddressPair(str(there[0]) if there else "", str(here[0]) if here else "")


def from_sshd(variable: str) -> AddressPair:
    """Return the addresses that an SSH server sees, from its variable ``SSH_CONNECTION`` (ssh(1)).

    Args:
        variable: The client's address and port, and the server's; empty if the server sets none.
    """
    words = variable.split()
    return AddressPair(there=words[2], here=words[0]) if len(words) == 4 else AddressPair()
