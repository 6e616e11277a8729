"""Options to reach a host over SSH; they contain no secrets, only their locations."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import HostFroze, InputError, MachineFault

_PATHS = ("known_hosts", "key", "password_file", "agent_folder", "kept_in", "config")
_LISTS_OF_PATHS = ("also_known", "identities", "certificates")
NO_AGENT = "none"


@dataclass(frozen=True)
class SshOptions:
    """The options to reach a host over SSH.

    Args:
        host: Name or address.
        user: The user to log in as.
        known_hosts: A file in OpenSSH's ``known_hosts`` format with the host's key.
        port: The TCP port.
        key: A private key file; without it and without a password, the SSH agent's keys and those
            in ``~/.ssh`` are offered.
        passphrase_env: Name of the environment variable with the key's passphrase.
        password_env: Name of the environment variable with the password.
        password_file: A file, readable only by its owner, whose first line is the password.
        connect_s: Time limit of a login, in seconds.
        silence_s: Seconds without a sign of life after which a connection counts as broken.
        patience_s: Seconds to retry a broken connection.
        lease_s: Seconds without contact after which the host ends all that Tare started there.
        sudo: Whether to work as root there, by ``sudo``.
        agent_folder: The folder of a temporary copy of the agent; None to keep it for the next
            time, in ``kept_in``.
        kept_in: The folder in which the agent gets a folder of its own; None for the user's cache.
        jumps: The computers to connect through, the first hop first; only their login settings
            apply.
        proxy_command: A program, as a shell command, that connects to the first computer; None to
            connect directly.
        config: The SSH configuration that the following settings are from, if any.
        address: The address to connect to; None for ``host`` itself.
        key_alias: The name of the host's key; None for the address.
        also_known: Further files in ``known_hosts`` format.
        identities: Key files to offer if ``key`` is not given, as far as they exist.
        identities_only: Whether the SSH agent offers only these keys.
        certificates: Certificates of these keys.
        ssh_agent: The SSH agent's socket; empty for the one in the environment; ``none`` for none.
        emulated: Whether Tare emulates the host itself. Then nobody can be asked to check it, and
            silence means that the emulation froze.
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
    kept_in: Path | None = None
    jumps: tuple[SshOptions, ...] = ()
    proxy_command: str | None = None
    config: Path | None = None
    address: str | None = None
    key_alias: str | None = None
    also_known: tuple[Path, ...] = ()
    identities: tuple[Path, ...] = ()
    identities_only: bool = False
    certificates: tuple[Path, ...] = ()
    ssh_agent: str = ""
    emulated: bool = False

    @property
    def name(self) -> str:
        """The host's name in messages and ledgers.

        Addresses behind a jump host are often private, so the name includes the jump host's.
        """
        through = f" through {self.jumps[-1].name}" if self.jumps else ""
        return f"{self.place}{through}"

    @property
    def place(self) -> str:
        """User, host and port in the format of ``ssh -J``."""
        port = "" if self.port == 22 else f":{self.port}"
        return f"{self.user}@{self.host}{port}"

    @property
    def indirect(self) -> bool:
        """Whether the connection goes through another computer or a program."""
        return bool(self.jumps) or self.proxy_command is not None

    @property
    def reached_at(self) -> str:
        """The address to connect to, or a name that the last jump host resolves."""
        return self.address or self.host

    @property
    def known_as(self) -> str:
        """The host's name in ``known_hosts``."""
        if self.key_alias is not None:
            return self.key_alias
        return self.reached_at if self.port == 22 else f"[{self.reached_at}]:{self.port}"

    @property
    def key_files(self) -> tuple[Path, ...]:
        """The files that may hold the host's key; the first need not exist."""
        return (self.known_hosts, *self.also_known)

    @property
    def login(self) -> str:
        """The command to try the same login by hand."""
        parts = ["ssh", "-p", str(self.port)] if self.port != 22 else ["ssh"]
        parts += ["-F", shlex.quote(str(self.config))] if self.config else []
        parts += ["-J", ",".join(jump.place for jump in self.jumps)] if self.jumps else []
        parts += ["-i", str(self.key)] if self.key else []
        known = f"UserKnownHostsFile={self.known_hosts}"
        return " ".join([*parts, "-o", known, f"{self.user}@{self.host}", "true"])

    def silent(self, words: str, hint: str) -> MachineFault:
        """Return the error of a host that does not answer.

        Args:
            words: The action that the host did not perform, without its name.
            hint: What the user can try, if the host is not emulated.
        """
        if self.emulated:
            return HostFroze(f"the emulated host froze: it {words}")
        return MachineFault(f"{self.name} {words}", hint, transient=True)

    def password(self) -> str | None:
        """Return the password from its configured source.

        Raises:
            InputError: The password is missing, or other users may read its file.
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
        """Return the key's passphrase; raise InputError if the variable is not set."""
        if self.passphrase_env is None:
            return None
        return _from_environment(self.passphrase_env, "passphrase")


def way_of(options: SshOptions) -> dict[str, Any]:
    """Convert the options to plain values, with the locations of secrets but not the secrets."""
    return {key: _plain(value) for key, value in dataclasses.asdict(options).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def options_of(way: Mapping[str, Any]) -> SshOptions:
    """Convert the result of :func:`way_of` back to options.

    Raises:
        InputError: The values are from another version of Tare.
    """
    try:
        known: dict[str, Any] = {key: _meant(key, value) for key, value in way.items()}
        return SshOptions(**known)
    except TypeError as error:
        raise InputError(f"the stored options to reach the host are invalid: {error}") from error


def _meant(key: str, value: Any) -> Any:
    if key == "jumps":
        return tuple(options_of(jump) for jump in value)
    if key in _LISTS_OF_PATHS:
        return tuple(Path(each) for each in value)
    return Path(value) if key in _PATHS and value is not None else value


def _from_environment(name: str, what: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise InputError(
            f"the environment variable {name} for the {what} is not set",
            f"set {name}",
        )
    return value
