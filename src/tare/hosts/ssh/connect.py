"""Logging in to a host over SSH, with a clear word for every way in which that fails."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tare.errors import InputError, MachineFault
from tare.hosts.address_pair import AddressPair, of_transport, told_by_sshd
from tare.hosts.ssh.options import SshOptions

BOOT_ID = "/proc/sys/kernel/random/boot_id"
# What e_machine of an ELF header says (elf(5)), as uname says it.
_MACHINES = {62: "x86_64", 183: "aarch64"}
_LOOK = (
    'cache="${2:-${XDG_CACHE_HOME:-$HOME/.cache}/tare-agent-$1}"; echo "$cache"; uname -m; '
    'sha256sum 2>/dev/null < "$cache/tare-agent" || echo none; '
    'echo "$SSH_CONNECTION"'
)
_PUT = (
    'umask 077; mkdir -p "$1" && part="$1/.part.$$" && cat > "$part" && chmod 700 "$part" && '
    'mv -f "$part" "$1/tare-agent"'
)


class UnknownKey(InputError):
    """The host shows a key that is not the one it is known by."""


@dataclass(frozen=True)
class Door:
    """An open connection, and where the host keeps the agent and a keeper's directory.

    ``seen_here`` are the addresses of the connection as they are seen here, ``seen_there`` as the
    host tells them.
    """

    connection: asyncssh.SSHClientConnection
    agent: str
    keeper: str
    seen_here: AddressPair
    seen_there: AddressPair


async def log_in(options: SshOptions) -> asyncssh.SSHClientConnection:
    """Open a connection to a host whose key is known.

    Raises:
        InputError: The host's key is unknown or another one, the login is refused, or a file or
            secret that the options name is missing.
        MachineFault: The host does not answer (transient).
    """
    if not options.known_hosts.is_file():
        raise UnknownKey(
            f"there is no file {options.known_hosts} that could tell the key of {options.name}",
            await _how_to_know(options),
        )
    keys, passphrase, password = _client_keys(options), options.passphrase(), options.password()
    try:
        async with asyncio.timeout(options.connect_s):
            return await asyncssh.connect(
                options.host,
                options.port,
                username=options.user,
                known_hosts=str(options.known_hosts),
                client_keys=keys,
                passphrase=passphrase,
                password=password,
                config=None,
                connect_timeout=options.connect_s,
                login_timeout=options.connect_s,
            )
    except asyncssh.HostKeyNotVerifiable as error:
        raise await _key_not_verified(options) from error
    except asyncssh.PermissionDenied as error:
        raise InputError(
            f"{options.name} refuses the login", f"find out why with: {options.login}"
        ) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise InputError(f"the key {options.key} cannot be used: {error}") from error
    except socket.gaierror as error:
        raise InputError(f"there is no host named {options.host}: {error.strerror}") from error
    except TimeoutError as error:
        raise MachineFault(
            f"{options.name} did not let Tare in within {options.connect_s:g} s",
            f"is it on, and reachable? try: {options.login}",
            transient=True,
        ) from error
    except (OSError, asyncssh.Error) as error:
        raise MachineFault(
            f"{options.name} cannot be reached: {reason(error)}",
            f"is it on, and does sshd listen there? try: {options.login}",
            transient=True,
        ) from error


def reason(error: Exception) -> str:
    """Return what an error of the connection says, in as few words as possible."""
    if isinstance(error, asyncssh.Error):
        return error.reason
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _client_keys(options: SshOptions) -> list[str] | tuple[()]:
    if options.key is None:
        return ()
    if not options.key.is_file():
        raise InputError(f"there is no key file {options.key}")
    return [str(options.key)]


async def _key_not_verified(options: SshOptions) -> UnknownKey:
    try:
        known = asyncssh.match_known_hosts(str(options.known_hosts), options.host, "", options.port)
    except (OSError, ValueError) as error:
        return UnknownKey(f"{options.known_hosts} cannot be used: {error}")
    place = options.host if options.port == 22 else f"[{options.host}]:{options.port}"
    if any(known[:2]) or any(known[2]):
        return UnknownKey(
            f"{options.name} shows another key than {options.known_hosts} says: it is another "
            "computer, or somebody is listening in",
            "only if you know that the host was installed anew: ssh-keygen -f "
            f"{shlex.quote(str(options.known_hosts))} -R {shlex.quote(place)}, then add its new "
            "key",
        )
    return UnknownKey(
        f"{options.known_hosts} does not name the key of {options.name}",
        await _how_to_know(options),
    )


async def _how_to_know(options: SshOptions) -> str:
    place = options.host if options.port == 22 else f"[{options.host}]:{options.port}"
    try:
        async with asyncio.timeout(min(options.connect_s, 10)):
            key = await asyncssh.get_server_host_key(options.host, options.port, config=None)
    except (OSError, asyncssh.Error):
        key = None
    if key is None:
        return f"add a line with its key: ssh-keyscan -p {options.port} {options.host}"
    line = f"{place} {key.export_public_key().decode().strip()}"
    return (
        f"it shows {key.get_fingerprint()}; if `ssh-keygen -lf` on the host's own console says "
        f"the same of its key in /etc/ssh, run: echo '{line}' >> {options.known_hosts}"
    )


async def prepare(
    connection: asyncssh.SSHClientConnection, agent: Path, options: SshOptions
) -> Door:
    """Copy the agent to the host unless its very bytes are there already.

    Raises:
        InputError: The agent is for another kind of processor than the host's.
        MachineFault: The host does not take it.
    """
    content = await asyncio.to_thread(agent.read_bytes)
    digest = hashlib.sha256(content).hexdigest()
    chosen = [str(options.agent_folder)] if options.agent_folder else []
    looked = await _shell(connection, _LOOK, digest[:32], *chosen)
    lines = looked.stdout.decode(errors="replace").splitlines()
    if looked.returncode != 0 or len(lines) != 4:
        said = (looked.stderr or looked.stdout).decode(errors="replace").strip()
        raise MachineFault(f"{options.name} runs no commands: {said or 'it says nothing'}")
    folder, machine, found, told = lines
    built_for = _MACHINES.get(int.from_bytes(content[18:20], "little"), machine)
    if machine != built_for:
        raise InputError(
            f"{options.name} has a processor of kind {machine}, and the agent here is for "
            f"{built_for}",
            f"name an agent that was built for {machine}",
        )
    if found.split()[0] != digest:
        put = await _shell(connection, _PUT, folder, input=content)
        if put.returncode != 0:
            said = put.stderr.decode(errors="replace").strip()
            raise MachineFault(f"{options.name} does not take the agent: {said}")
    token = secrets.token_hex(16)
    return Door(
        connection,
        f"{folder}/tare-agent",
        f"/tmp/tare-keep-{token}",
        of_transport(connection.get_extra_info),
        told_by_sshd(told),
    )


@dataclass(frozen=True)
class _Said:
    returncode: int
    stdout: bytes
    stderr: bytes


async def _shell(
    connection: asyncssh.SSHClientConnection, script: str, *words: str, input: bytes = b""
) -> _Said:
    done = await connection.run(
        shlex.join(["sh", "-c", script, "sh", *words]), input=input, encoding=None
    )
    return _Said(
        -1 if done.returncode is None else done.returncode,
        bytes(done.stdout or b""),  # type: ignore[arg-type]
        bytes(done.stderr or b""),  # type: ignore[arg-type]
    )


async def take_back(connection: asyncssh.SSHClientConnection, options: SshOptions) -> None:
    """Remove the agent from a folder of its own, where :func:`prepare` has put it."""
    if options.agent_folder is not None:
        await _shell(connection, 'rm -rf "$1"', str(options.agent_folder))


async def boot_of(connection: asyncssh.SSHClientConnection) -> str:
    """Return the id of the host's present boot; empty where it gives none."""
    said = await _shell(connection, f"cat {BOOT_ID}")
    return said.stdout.decode(errors="replace").strip()
