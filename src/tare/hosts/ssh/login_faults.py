"""Messages for failed SSH connections: each cause has its own text and next step."""

from __future__ import annotations

import copy
import errno
import socket

import asyncssh

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.ssh.options import SshOptions

PROHIBITED = 1
"""An SSH server's answer if it may not open a channel (RFC 4254, 5.1)."""


def jump_host_fault(error: TareError, target: SshOptions) -> TareError:
    """Return a jump host's fault, with the target added to its message."""
    extended = copy.copy(error)
    extended.message = f"on the way to {target.place}: {error.message}"
    return extended


def forwarding_refused(
    error: asyncssh.ChannelOpenError, options: SshOptions, before: SshOptions
) -> TareError:
    """Return the reason why a jump host does not connect to the next computer.

    Args:
        error: The jump host's answer (RFC 4254, 5.1).
        options: The options to reach the next computer.
        before: The options to reach the jump host.
    """
    if error.code == PROHIBITED:
        return InputError(
            f"{before.place} does not allow connections to {options.reached_at}:{options.port}",
            f"check AllowTcpForwarding and PermitOpen in its sshd_config(5); try: {options.login}",
        )
    return MachineFault(
        f"{options.place} cannot be reached from {before.place}: {error.reason}",
        f"is it on, and does sshd listen there? try: {options.login}",
        transient=True,
    )


def login_fault(error: Exception, options: SshOptions, words: str = "") -> TareError:
    """Return the fault for a failed login, from the error that ended it.

    Args:
        error: The error from the network or from the other computer.
        options: The options of the connection.
        words: The last output of a proxy program.
    """
    place, login = options.place, f"try: {options.login}"
    if isinstance(error, asyncssh.PermissionDenied):
        return InputError(f"{place} refuses the login", f"find out why with: {options.login}")
    if isinstance(error, socket.gaierror):
        return _not_resolved(error, options)
    if isinstance(error, TimeoutError) and options.emulated:
        return options.silent(f"did not let Tare in within {options.connect_s:g} s", "")
    message, todo = _unreached(error, options)
    if options.emulated:
        # Nobody can log in to a computer that Tare emulates.
        return MachineFault(message, transient=True)
    return MachineFault(f"{message}{words}", f"{todo}; {login}", transient=True)


def _not_resolved(error: socket.gaierror, options: SshOptions) -> TareError:
    """Return the fault for a name without an address (getaddrinfo(3))."""
    name = options.reached_at
    if error.errno == socket.EAI_AGAIN:
        return MachineFault(
            f"the address of {name} could not be looked up: the name server does not answer",
            f"check the network and /etc/resolv.conf; try: getent hosts {name}",
            transient=True,
        )
    return InputError(
        f"there is no host named {name}: {error.strerror}",
        f"check the spelling; try: getent hosts {name}; or write its address, or give it one in "
        "/etc/hosts or as `HostName` in ~/.ssh/config",
    )


def _unreached(error: Exception, options: SshOptions) -> tuple[str, str]:
    """Return the reason why a login attempt ended, and a hint on what to check."""
    place, port = options.place, options.port
    if isinstance(error, TimeoutError):
        return (
            f"{place} did not let Tare in within {options.connect_s:g} s",
            "is it on, does a firewall drop the packets, and is the address right?",
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"{place} cannot be reached: nothing accepts connections on port {port} there",
            "does sshd run there, and on this port? (systemctl status ssh)",
        )
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return (
            f"{place} cannot be reached: {reason(error)}",
            "is it on, and does a route lead there? (ip route get ADDRESS)",
        )
    if isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError):
        return (
            f"{place} cannot be reached: it closed the connection before the login",
            "does its sshd refuse this address (fail2ban, MaxStartups, hosts.deny)? see its log",
        )
    if isinstance(error, asyncssh.ProtocolError | asyncssh.ProtocolNotSupported):
        return (
            f"{place} cannot be reached: what answers on port {port} is not a usable SSH server "
            f"({reason(error)})",
            "is the port right?",
        )
    return f"{place} cannot be reached: {reason(error)}", "is it on, and does sshd listen there?"


def reason(error: Exception) -> str:
    """Return the reason of a connection error in as few words as possible."""
    if isinstance(error, asyncssh.Error):
        return error.reason
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
