"""Computers that SSH goes through on its way to another: how a study names them."""

from __future__ import annotations

import re
from dataclasses import dataclass

NONE = "none"
"""Stands for no computer to go through, as in ssh_config(5)."""
_FORM = re.compile(
    r"(?:(?P<user>[^\s@,:/]{1,64})@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.%]+[^\s\]]*)\]|(?P<host>[^\s@,:/\[\]-][^\s@,:/\[\]]{0,254}))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class JumpHost:
    """One computer on the way.

    Args:
        host: Its name or address.
        user: Who logs in there; None: it is not said.
        port: The TCP port of its SSH server; None: it is not said.
    """

    host: str
    user: str | None = None
    port: int | None = None


def jump_hosts(text: str) -> tuple[JumpHost, ...]:
    """Return the computers that a text names, as ``ssh -J`` and ``ProxyJump`` take them.

    Args:
        text: ``[USER@]HOST[:PORT]``, or several by commas, the first one first; an address of IPv6
            stands in brackets; ``none`` names none.

    Raises:
        ValueError: It is of another form.
    """
    if text.strip().lower() == NONE:
        return ()
    return tuple(_one(part.strip()) for part in text.split(","))


def jump_text(text: str) -> str:
    """Return a text that :func:`jump_hosts` understands; raises ValueError for another."""
    jump_hosts(text)
    return text


def _one(part: str) -> JumpHost:
    # The longer form of ssh(1) says no more than the shorter one.
    found = _FORM.fullmatch(part.removeprefix("ssh://"))
    port = int(found["port"]) if found and found["port"] else None
    if found is None or port == 0 or (port or 0) > 65535:
        # What was written is not repeated: it may hold a password.
        raise ValueError(
            "must be [USER@]HOST[:PORT], such as `me@bastion.example`, several of them with commas "
            "between, or `none`"
        )
    return JumpHost(found["six"] or found["host"], found["user"], port)
