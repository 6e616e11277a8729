"""How a host is reached over SSH. No secret is ever held here: only where it is found."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError

if TYPE_CHECKING:
    from tare.study.hosting import Login

_PATHS = ("known_hosts", "key", "password_file", "agent_folder")


@dataclass(frozen=True)
class SshOptions:
    """How a host is reached over SSH.

    Args:
        host: Name or address.
        user: The user to log in as.
        known_hosts: A file of the form of OpenSSH's ``known_hosts`` that holds the host's key.
        port: The TCP port.
        key: A private key file; without it and without a password, the SSH agent and the keys
            in ``~/.ssh`` are offered.
        passphrase_env: Name of the environment variable that holds the key's passphrase.
        password_env: Name of the environment variable that holds the password.
        password_file: A file, for its owner's eyes only, whose first line is the password.
        connect_s: Seconds that logging in may take.
        silence_s: Seconds without a sign of life after which a connection is taken for broken.
        patience_s: Seconds that a broken connection is tried again.
        lease_s: Seconds after which the host ends all that Tare started there when it has
            heard nothing from Tare.
        sudo: Whether everything there is done as root, by ``sudo``.
        agent_folder: Where the agent is put; None: where it stays for the next time.
    """

    host: str
    user: str
    known_hosts: Path
    port: int = 22
    key: Path | None = None
    passphrase_env: str | None = None
    password_env: str | None = None
    password_file: Path | None = None
    connect_s: float = 30.0
    silence_s: float = 10.0
    patience_s: float = 30.0
    lease_s: int = 45
    sudo: bool = False
    agent_folder: Path | None = None

    @property
    def name(self) -> str:
        """How messages name the host."""
        port = "" if self.port == 22 else f":{self.port}"
        return f"{self.user}@{self.host}{port}"

    @property
    def login(self) -> str:
        """The command that tries the same login by hand."""
        parts = ["ssh", "-p", str(self.port)] if self.port != 22 else ["ssh"]
        parts += ["-i", str(self.key)] if self.key else []
        known = f"UserKnownHostsFile={self.known_hosts}"
        return " ".join([*parts, "-o", known, f"{self.user}@{self.host}", "true"])

    def password(self) -> str | None:
        """Return the password from where it is kept.

        Raises:
            InputError: It is not there, or others may read the file.
        """
        if self.password_env is not None:
            return _from_environment(self.password_env, "password")
        if self.password_file is None:
            return None
        try:
            mode = self.password_file.stat().st_mode
            text = self.password_file.read_text()
        except OSError as error:
            raise InputError(
                f"the password file {self.password_file} cannot be read: {error.strerror}"
            ) from error
        if mode & 0o077:
            raise InputError(
                f"others may read the password file {self.password_file}",
                f"run: chmod 600 {self.password_file}",
            )
        return text.split("\n", 1)[0]

    def passphrase(self) -> str | None:
        """Return the key's passphrase; raises InputError where the variable is not set."""
        if self.passphrase_env is None:
            return None
        return _from_environment(self.passphrase_env, "passphrase")


def options_for(host: str, login: Login, patience_s: float) -> SshOptions:
    """Return how a computer is reached, from what a study says of it.

    Args:
        host: Its name or address.
        login: How to log in there.
        patience_s: Seconds that a broken connection is tried again.
    """

    def path(text: str | None) -> Path | None:
        return None if text is None else Path(text).expanduser()

    return SshOptions(
        host=host,
        user=login.user,
        known_hosts=Path(login.known_hosts).expanduser(),
        port=login.port,
        key=path(login.key),
        passphrase_env=login.passphrase_env,
        password_env=login.password_env,
        password_file=path(login.password_file),
        patience_s=patience_s,
        sudo=login.sudo,
    )


def way_of(options: SshOptions) -> dict[str, Any]:
    """Return how a host is reached as plain values; where secrets are found, but none of them."""
    plain = dataclasses.asdict(options)
    return {key: str(value) if isinstance(value, Path) else value for key, value in plain.items()}


def options_of(way: Mapping[str, Any]) -> SshOptions:
    """Return the options that :func:`way_of` was given.

    Raises:
        InputError: They are of another version of Tare.
    """
    known: dict[str, Any] = {
        key: Path(value) if key in _PATHS and value is not None else value
        for key, value in way.items()
    }
    try:
        return SshOptions(**known)
    except TypeError as error:
        raise InputError(f"how to reach the host is not understood: {error}") from error


def _from_environment(name: str, what: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise InputError(
            f"the environment variable {name}, which is to hold the {what}, is not set",
            f"set {name}",
        )
    return value
