"""How a computer that a study names is reached: as the study says, else as its user's ``ssh`` does.

What is found is plain and whole: a run's ledger keeps it, so that whatever was made there is found
again when the configuration was changed since.
"""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import InputError
from tare.hosts.ssh.configured import Said, look_up
from tare.hosts.ssh.options import SshOptions
from tare.study.reading.jump_hosts import NONE, JumpHost, jump_hosts

if TYPE_CHECKING:
    from tare.study.reading.hosting import Login

USER = "root"
PORT = 22
KNOWN_HOSTS = "~/.ssh/known_hosts"
CONFIG = "~/.ssh/config"


def options_for(
    host: str, login: Login, patience_s: float, *, kept_in: str | None = None
) -> SshOptions:
    """Return how a computer is reached, from what a study and the SSH configuration say of it.

    Args:
        host: Its name or address.
        login: How to log in there; goes before the configuration.
        patience_s: Seconds that a broken connection is tried again.
        kept_in: The folder there that keeps the agent; None: the user's cache.

    Raises:
        InputError: The configuration cannot be read, or asks for what Tare does not do.
    """
    config = _config(login)
    said = look_up(config, host, login.user, login.port)
    jump = login.jump if login.jump is not None else said.jump
    target = SshOptions(
        host=host,
        user=login.user or said.user or USER,
        known_hosts=_path(login.known_hosts or KNOWN_HOSTS),
        port=login.port or said.port or PORT,
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
        _with_said(target, login, said),
        jumps=_jumps(jump, login, config, frozenset()),
        proxy_command=_proxy_command(target, said, jump),
    )


def _proxy_command(options: SshOptions, said: Said, jump: str | None) -> str | None:
    """Return the program that leads to a computer, where no other computer does.

    Args:
        options: How the computer is logged in to.
        said: Its settings in the configuration.
        jump: The computers to go through, as they were named.
    """
    if jump is not None or said.proxy_command is None:
        return None
    # Looked up again: `%r` is who logs in, which was not known before.
    return look_up(options.config, options.host, options.user, options.port).proxy_command


def _with_said(options: SshOptions, login: Login, said: Said) -> SshOptions:
    """Return options with what a configuration says, as far as the study does not."""
    known = said.known_hosts if login.known_hosts is None else ()
    return replace(
        options,
        address=said.address,
        key_alias=said.key_alias,
        known_hosts=known[0] if known else options.known_hosts,
        also_known=known[1:],
        identities=said.keys if options.key is None else (),
        identities_only=said.keys_only and options.key is None,
        certificates=said.certificates if options.key is None else (),
        ssh_agent=said.ssh_agent,
    )


def _jumps(
    text: str | None, login: Login, config: Path | None, before: frozenset[str]
) -> tuple[SshOptions, ...]:
    """Return the computers to go through, with those that lead to the first of them.

    Args:
        text: What names them.
        login: How to log in at the target.
        config: The SSH configuration.
        before: The computers that these lead to.
    """
    try:
        hosts = jump_hosts(text or NONE)
    except ValueError as error:
        # What a study says was looked at already.
        raise InputError(f"{config}: `ProxyJump` {error}") from None
    found: list[SshOptions] = []
    for index, jump in enumerate(hosts):
        said = look_up(config, jump.host, jump.user, jump.port)
        if index == 0:
            # As ssh does: whoever is named after another is reached through that one alone.
            if jump.host in before:
                raise InputError(
                    f"{config}: `ProxyJump` leads from {jump.host} back to {jump.host}",
                    "name the computers to go through in the study: `jump: HOST`",
                )
            found += _jumps(said.jump, login, config, before | {jump.host})
        # Each knows those before it, for the command that tries it by hand.
        options = replace(_jump(jump, login, config, said), jumps=tuple(found))
        command = None if index else _proxy_command(options, said, said.jump)
        found.append(replace(options, proxy_command=command))
    return tuple(found)


def _jump(jump: JumpHost, login: Login, config: Path | None, said: Said) -> SshOptions:
    """Return how a computer on the way is logged in to.

    The study's key opens it too where the configuration names none for it: a key is not shown to
    whom it is used with. A password is, so it goes to the target alone.
    """
    own = login.key is not None and not said.keys
    options = SshOptions(
        host=jump.host,
        user=jump.user or said.user or getpass.getuser(),
        known_hosts=_path(login.known_hosts or KNOWN_HOSTS),
        port=jump.port or said.port or PORT,
        key=_path(login.key) if own and login.key is not None else None,
        passphrase_env=login.passphrase_env if own else None,
        config=config,
    )
    return _with_said(options, login, said)


def _config(login: Login) -> Path | None:
    """Return the SSH configuration to look names up in; None: there is none."""
    if login.ssh_config is None:
        own = _path(CONFIG)
        return own if own.is_file() else None
    if login.ssh_config == NONE:
        return None
    named = _path(login.ssh_config)
    if not named.is_file():
        raise InputError(
            f"there is no SSH configuration {named}", "name a file, or write `ssh-config: none`"
        )
    return named


def _path(text: str) -> Path:
    return Path(text).expanduser()
