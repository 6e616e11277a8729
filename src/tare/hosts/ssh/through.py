"""What goes wrong on the way through other computers: said of the one that it is about."""

from __future__ import annotations

import copy

import asyncssh

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.ssh.options import SshOptions

PROHIBITED = 1
"""What an SSH server answers that is not allowed to open a way (RFC 4254, 5.1)."""


def on_the_way(error: TareError, target: SshOptions) -> TareError:
    """Return a fault of a computer on the way, with where the way leads."""
    told = copy.copy(error)
    told.message = f"on the way to {target.place}: {error.message}"
    return told


def not_let_on(
    error: asyncssh.ChannelOpenError, options: SshOptions, before: SshOptions
) -> TareError:
    """Return why a computer on the way lets nobody through to the next.

    Args:
        error: What it answered (RFC 4254, 5.1).
        options: How the next computer is reached.
        before: How it is reached itself.
    """
    if error.code == PROHIBITED:
        return InputError(
            f"{before.place} lets nobody through to {options.reached_at}:{options.port}",
            "AllowTcpForwarding and PermitOpen in its sshd_config(5) decide about that; "
            f"try: {options.login}",
        )
    return MachineFault(
        f"{options.place} cannot be reached from {before.place}: {error.reason}",
        f"is it on, and does sshd listen there? try: {options.login}",
        transient=True,
    )
