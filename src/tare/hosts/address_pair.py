"""The two addresses of a connection between this computer and another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AddressPair:
    """The addresses of a connection, as one of its ends sees them.

    Args:
        there: The other computer's.
        here: This computer's; as ``there``, empty where it is not known.
    """

    there: str = ""
    here: str = ""


UNKNOWN = AddressPair()


def of_transport(info: Callable[[str], Any]) -> AddressPair:
    """Return what this end of a connection sees.

    Args:
        info: Returns what is known of the connection by its name, as asyncio's transports do.
    """
    there, here = info("peername"), info("sockname")
    return AddressPair(str(there[0]) if there else "", str(here[0]) if here else "")


def told_by_sshd(variable: str) -> AddressPair:
    """Return what an SSH server sees, from the variable ``SSH_CONNECTION`` that it sets (ssh(1)).

    Args:
        variable: Client's address and port, and the server's; empty where the server sets none.
    """
    words = variable.split()
    return AddressPair(there=words[2], here=words[0]) if len(words) == 4 else AddressPair()
