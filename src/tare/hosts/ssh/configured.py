"""What a user's SSH configuration (ssh_config(5)) says of a computer."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts.ssh.options import NO_AGENT

_NO_FILES = (Path("/dev/null"),)
"""What people name to have no host's key remembered; a key is asked for all the same."""


@dataclass(frozen=True)
class Said:
    """The settings of one computer; what is not set is None or empty.

    Args:
        address: What to connect to (``HostName``).
        user: The user to log in as (``User``).
        port: The TCP port (``Port``).
        keys: Key files to offer (``IdentityFile``), there or not.
        keys_only: Whether no other key is offered (``IdentitiesOnly``).
        certificates: Certificates of keys (``CertificateFile``).
        ssh_agent: The SSH agent's socket, or ``none`` (``IdentityAgent``).
        known_hosts: Files of hosts' keys (``UserKnownHostsFile``, ``GlobalKnownHostsFile``).
        key_alias: The name that the host's key is known by (``HostKeyAlias``).
        jump: The computers to go through (``ProxyJump``), ``none`` for none.
        proxy_command: A program to go through (``ProxyCommand``), with what ``%h`` and others
            stand for.
    """

    address: str | None = None
    user: str | None = None
    port: int | None = None
    keys: tuple[Path, ...] = ()
    keys_only: bool = False
    certificates: tuple[Path, ...] = ()
    ssh_agent: str = ""
    known_hosts: tuple[Path, ...] = ()
    key_alias: str | None = None
    jump: str | None = None
    proxy_command: str | None = None


def look_up(config: Path | None, host: str, user: str | None, port: int | None) -> Said:
    """Return what a configuration says of a computer.

    Args:
        config: The file; None: there is none, and nothing is set.
        host: The computer's name, as its user writes it.
        user: Who logs in, where that is known already.
        port: The port, where that is known already.

    Raises:
        InputError: The file cannot be read, or something in it is wrong: which line, and what.
    """
    if config is None:
        return Said()
    # What speaks SSH takes long to load, and only who has such a file needs it.
    from asyncssh.config import ConfigParseError, SSHClientConfig

    # What asyncssh does with a whole configuration at login is more than is wanted: a RemoteCommand
    # would be run instead of the agent, and `UserKnownHostsFile none` would let any host in.
    known: tuple[Any, Any] = (user if user else (), port if port else ())
    try:
        found = SSHClientConfig.load(
            None, str(config), False, False, False, getpass.getuser(), known[0], host, known[1]
        )
    except ConfigParseError as error:
        raise InputError(f"the SSH configuration is not understood: {error}") from None
    except OSError as error:
        words = error.strerror or str(error)
        raise InputError(f"the SSH configuration {config} cannot be read: {words}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"the SSH configuration {config} cannot be read: {error}") from None

    def text(option: str) -> str | None:
        value = found.get(option)
        return value if isinstance(value, str) and value else None

    said_port = found.get("Port")
    return Said(
        address=text("Hostname"),
        user=text("User"),
        port=said_port if isinstance(said_port, int) else None,
        keys=_paths(found.get("IdentityFile")),
        keys_only=bool(found.get("IdentitiesOnly")),
        certificates=_paths(found.get("CertificateFile")),
        ssh_agent=_agent(found),
        known_hosts=_files(found.get("UserKnownHostsFile"), found.get("GlobalKnownHostsFile")),
        key_alias=text("HostKeyAlias"),
        jump=text("ProxyJump"),
        proxy_command=text("ProxyCommand"),
    )


def _paths(said: object) -> tuple[Path, ...]:
    words: Iterable[object] = said if isinstance(said, list) else ()
    return tuple(Path(str(word)).expanduser() for word in words)


def _files(*said: object) -> tuple[Path, ...]:
    return tuple(path for each in said for path in _paths(each) if path not in _NO_FILES)


def _agent(found: Any) -> str:
    missing = object()
    said = found.get("IdentityAgent", missing)
    if said is missing or said == "SSH_AUTH_SOCK":
        return ""
    if said is None:
        return NO_AGENT
    text = str(said)
    if text.startswith("$"):
        return os.environ.get(text[1:].strip("{}"), NO_AGENT)
    return str(Path(text).expanduser())
