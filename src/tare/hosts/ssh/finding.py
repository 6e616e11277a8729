"""Find the options to reach a computer: from the study, or else from the SSH configuration.

The result is complete and does not depend on the configuration. A run's ledger keeps it, so that
cleanup still reaches the host after the configuration has changed.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError
from tare.hosts.ssh.options import NO_AGENT, SshOptions
from tare.study.model.forms import NONE, JumpHost, jump_hosts

if TYPE_CHECKING:
    from tare.study.reading.hosting import Login

_NO_FILES = (Path("/dev/null"),)
"""The file that users configure to remember no host keys; Tare always requires a key."""


@dataclass(frozen=True)
class SshConfig:
    """One computer's settings in an SSH configuration (ssh_config(5)), None or empty if not set.

    Args:
        address: The address to connect to (``HostName``).
        user: The user to log in as (``User``).
        port: The TCP port (``Port``).
        keys: Key files to offer (``IdentityFile``), which need not exist.
        keys_only: Whether no other key is offered (``IdentitiesOnly``).
        certificates: Certificates of keys (``CertificateFile``).
        ssh_agent: The SSH agent's socket, or ``none`` (``IdentityAgent``).
        known_hosts: Files of hosts' keys (``UserKnownHostsFile``, ``GlobalKnownHostsFile``).
        key_alias: The name of the host's key (``HostKeyAlias``).
        jump: The computers to connect through (``ProxyJump``), ``none`` for none.
        proxy_command: A program to connect through (``ProxyCommand``), with ``%h`` and the like
            expanded.
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


def look_up(config: Path | None, host: str, user: str | None, port: int | None) -> SshConfig:
    """Return a computer's settings in a configuration.

    Args:
        config: The file; None if there is none, and nothing is set.
        host: The computer's name, as its user writes it.
        user: The login, if already known.
        port: The port, if already known.

    Raises:
        InputError: The file cannot be read, or a line in it is invalid.
    """
    if config is None:
        return SshConfig()
    # The SSH library loads slowly, and only users with such a file need it.
    from asyncssh.config import ConfigParseError, SSHClientConfig

    # asyncssh itself would apply the whole configuration: it would run a RemoteCommand instead of
    # the agent, and accept any host with `UserKnownHostsFile none`.
    known: tuple[Any, Any] = (user if user else (), port if port else ())
    try:
        found = SSHClientConfig.load(
            None, str(config), False, False, False, getpass.getuser(), known[0], host, known[1]
        )
    except ConfigParseError as error:
        raise InputError(f"the SSH configuration is invalid: {error}") from None
    except OSError as error:
        words = error.strerror or str(error)
        raise InputError(f"the SSH configuration {config} cannot be read: {words}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"the SSH configuration {config} cannot be read: {error}") from None

    def text(option: str) -> str | None:
        value = found.get(option)
        return value if isinstance(value, str) and value else None

    port_value = found.get("Port")
    return SshConfig(
        address=text("Hostname"),
        user=text("User"),
        port=port_value if isinstance(port_value, int) else None,
        keys=_paths(found.get("IdentityFile")),
        keys_only=bool(found.get("IdentitiesOnly")),
        certificates=_paths(found.get("CertificateFile")),
        ssh_agent=_agent(found),
        known_hosts=_files(found.get("UserKnownHostsFile"), found.get("GlobalKnownHostsFile")),
        key_alias=text("HostKeyAlias"),
        jump=text("ProxyJump"),
        proxy_command=text("ProxyCommand"),
    )


def _paths(configured: object) -> tuple[Path, ...]:
    words: Iterable[object] = configured if isinstance(configured, list) else ()
    return tuple(Path(str(word)).expanduser() for word in words)


def _files(*configured: object) -> tuple[Path, ...]:
    return tuple(path for each in configured for path in _paths(each) if path not in _NO_FILES)


def _agent(found: Any) -> str:
    missing = object()
    configured = found.get("IdentityAgent", missing)
    if configured is missing or configured == "SSH_AUTH_SOCK":
        return ""
    if configured is None:
        return NO_AGENT
    text = str(configured)
    if text.startswith("$"):
        return os.environ.get(text[1:].strip("{}"), NO_AGENT)
    return str(Path(text).expanduser())


USER = "root"
PORT = 22
KNOWN_HOSTS = "~/.ssh/known_hosts"
CONFIG = "~/.ssh/config"


def options_for(
    host: str, login: Login, patience_s: float, *, kept_in: str | None = None
) -> SshOptions:
    """Return the options to reach a computer, from the study and the SSH configuration.

    Args:
        host: The computer's name or address.
        login: The login settings of the study; they take precedence over the configuration.
        patience_s: Seconds to retry a broken connection.
        kept_in: The folder there for the agent; None for the user's cache.

    Raises:
        InputError: The configuration cannot be read, or asks for something unsupported.
    """
    config = _config(login)
    configured = look_up(config, host, login.user, login.port)
    jump = login.jump if login.jump is not None else configured.jump
    target = SshOptions(
        host=host,
        user=login.user or configured.user or USER,
        known_hosts=_path(login.known_hosts or KNOWN_HOSTS),
        port=login.port or configured.port or PORT,
        key=None if login.key is None else _path(login.key),
        passphrase_env=login.passphrase_env,
        password_env=login.password_env,
        password_file=None if login.password_file is None else _path(login.password_file),
        patience_s=patience_s,
        sudo=login.sudo,
        kept_in=None if kept_in is None else Path(kept_in),
        config=config,
    )
    return replace(
        _with_configured(target, login, configured),
        jumps=_jumps(jump, login, config, frozenset()),
        proxy_command=_proxy_command(target, configured, jump),
    )


def _proxy_command(options: SshOptions, configured: SshConfig, jump: str | None) -> str | None:
    """Return the program that connects to a computer, unless jump hosts connect to it.

    Args:
        options: The options to log in to the computer.
        configured: The computer's settings in the configuration.
        jump: The computers to connect through, as written.
    """
    if jump is not None or configured.proxy_command is None:
        return None
    # Look it up again: `%r` is the login, which is known only now.
    return look_up(options.config, options.host, options.user, options.port).proxy_command


def _with_configured(options: SshOptions, login: Login, configured: SshConfig) -> SshOptions:
    """Return options completed from the configuration where the study sets nothing."""
    known = configured.known_hosts if login.known_hosts is None else ()
    return replace(
        options,
        address=configured.address,
        key_alias=configured.key_alias,
        known_hosts=known[0] if known else options.known_hosts,
        also_known=known[1:],
        identities=configured.keys if options.key is None else (),
        identities_only=configured.keys_only and options.key is None,
        certificates=configured.certificates if options.key is None else (),
        ssh_agent=configured.ssh_agent,
    )


def _jumps(
    text: str | None, login: Login, config: Path | None, before: frozenset[str]
) -> tuple[SshOptions, ...]:
    """Return the computers to connect through, including the jump hosts of the first one.

    Args:
        text: The names of the computers.
        login: The login settings of the target.
        config: The SSH configuration.
        before: The computers that are reached through these.
    """
    try:
        hosts = jump_hosts(text or NONE)
    except ValueError as error:
        # The study's own text was checked already.
        raise InputError(f"{config}: `ProxyJump` {error}") from None
    found: list[SshOptions] = []
    for index, jump in enumerate(hosts):
        configured = look_up(config, jump.host, jump.user, jump.port)
        if index == 0:
            # As with ssh, a later computer is reached only through the one before it.
            if jump.host in before:
                raise InputError(
                    f"{config}: `ProxyJump` leads from {jump.host} back to {jump.host}",
                    "name the computers to go through in the study: `jump: HOST`",
                )
            found += _jumps(configured.jump, login, config, before | {jump.host})
        # Each computer knows the previous ones, for the command that tries the login by hand.
        options = replace(_jump(jump, login, config, configured), jumps=tuple(found))
        command = None if index else _proxy_command(options, configured, configured.jump)
        found.append(replace(options, proxy_command=command))
    return tuple(found)


def _jump(jump: JumpHost, login: Login, config: Path | None, configured: SshConfig) -> SshOptions:
    """Return the options to log in to a jump host.

    If the configuration names no key, the study's key is used there too, because a key is never
    disclosed to the computer it is used with. A password is disclosed, so it is only sent to the
    target.
    """
    own = login.key is not None and not configured.keys
    options = SshOptions(
        host=jump.host,
        user=jump.user or configured.user or getpass.getuser(),
        known_hosts=_path(login.known_hosts or KNOWN_HOSTS),
        port=jump.port or configured.port or PORT,
        key=_path(login.key) if own and login.key is not None else None,
        passphrase_env=login.passphrase_env if own else None,
        config=config,
    )
    return _with_configured(options, login, configured)


def _config(login: Login) -> Path | None:
    """Return the SSH configuration to look names up in, or None."""
    if login.ssh_config is None:
        own = _path(CONFIG)
        return own if own.is_file() else None
    if login.ssh_config == NONE:
        return None
    named = _path(login.ssh_config)
    if not named.is_file():
        raise InputError(
            f"the SSH configuration {named} does not exist",
            "name a file, or write `ssh-config: none`",
        )
    return named


def _path(text: str) -> Path:
    return Path(text).expanduser()
