"""Logging in to a host over SSH, with a clear word for every way in which that fails."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.address_pair import UNKNOWN, AddressPair, of_transport, told_by_sshd
from tare.hosts.ssh.offering import offered
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.proxied import Proxy
from tare.hosts.ssh.through import not_let_on, on_the_way

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
    """Open a connection to a host whose key is known, through the computers on the way there.

    Raises:
        InputError: A key is unknown or another one, a login is refused, or a file or secret that
            the options name is missing; the message says of which computer.
        MachineFault: One does not answer, or is not reached from the one before it (transient).
    """
    last: asyncssh.SSHClientConnection | None = None
    before: SshOptions | None = None
    for hop in (*options.jumps, options):
        try:
            connection = await _one(hop, last, before)
        except BaseException as error:
            if last is not None:
                last.abort()
            if isinstance(error, TareError) and hop is not options:
                raise on_the_way(error, options) from error
            raise
        if last is not None:
            # It ends with what goes through it.
            connection.set_tunnel(last)
        last, before = connection, hop
    assert last is not None
    return last


async def _one(
    options: SshOptions,
    through: asyncssh.SSHClientConnection | None,
    before: SshOptions | None,
) -> asyncssh.SSHClientConnection:
    """Log in to one computer.

    Args:
        options: How it is reached.
        through: The connection to the computer before it; None: there is none.
        before: How that one is reached.
    """
    known = [str(file) for file in options.key_files if file.is_file()]
    if not known:
        raise UnknownKey(
            f"there is no file {options.known_hosts} that could tell the key of {options.place}",
            await _how_to_know(options, through),
        )
    proxy: Proxy | None = None
    try:
        async with contextlib.AsyncExitStack() as until_in, asyncio.timeout(options.connect_s):
            proxy = _proxy(options, through, until_in)
            connection = await asyncssh.connect(
                options.reached_at,
                options.port,
                **_way(through, proxy),
                username=options.user,
                known_hosts=known,
                host_key_alias=options.key_alias,
                **offered(options),
                password=options.password(),
                config=None,
                connect_timeout=options.connect_s,
                login_timeout=options.connect_s,
            )
            if proxy is not None:
                # It ends with what goes through it.
                connection.set_tunnel(proxy)
                until_in.pop_all()
            return connection
    except asyncssh.HostKeyNotVerifiable as error:
        raise await _key_not_verified(options, through) from error
    except asyncssh.PermissionDenied as error:
        raise InputError(
            f"{options.place} refuses the login", f"find out why with: {options.login}"
        ) from error
    except asyncssh.ChannelOpenError as error:
        raise not_let_on(error, options, before or options) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise InputError(f"the key {options.key} cannot be used: {error}") from error
    except socket.gaierror as error:
        raise InputError(
            f"there is no host named {options.reached_at}: {error.strerror}"
        ) from error
    except TimeoutError as error:
        raise MachineFault(
            f"{options.place} did not let Tare in within {options.connect_s:g} s"
            f"{await _last_words(proxy)}",
            f"is it on, and reachable? try: {options.login}",
            transient=True,
        ) from error
    except (OSError, asyncssh.Error) as error:
        raise MachineFault(
            f"{options.place} cannot be reached: {reason(error)}{await _last_words(proxy)}",
            f"is it on, and does sshd listen there? try: {options.login}",
            transient=True,
        ) from error


def _proxy(
    options: SshOptions,
    through: asyncssh.SSHClientConnection | None,
    until: contextlib.AsyncExitStack,
) -> Proxy | None:
    """Start the program that leads to a computer, which is ended with ``until``; None: none does.

    Args:
        options: How the computer is reached.
        through: The connection to one before it, which goes before any program.
        until: Where its end is left.
    """
    if through is not None or options.proxy_command is None:
        return None
    proxy = Proxy.start(options.proxy_command)
    until.callback(proxy.close)
    return proxy


def _way(through: asyncssh.SSHClientConnection | None, proxy: Proxy | None) -> dict[str, Any]:
    return {"tunnel": through or ()} if proxy is None else {"sock": proxy.socket}


async def _last_words(proxy: Proxy | None) -> str:
    return "" if proxy is None else await proxy.last_words()


def reason(error: Exception) -> str:
    """Return what an error of the connection says, in as few words as possible."""
    if isinstance(error, asyncssh.Error):
        return error.reason
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


async def _key_not_verified(
    options: SshOptions, through: asyncssh.SSHClientConnection | None
) -> UnknownKey:
    known_as = options.key_alias or options.reached_at
    for file in options.key_files:
        if not file.is_file():
            continue
        try:
            known = asyncssh.match_known_hosts(str(file), known_as, "", options.port)
        except (OSError, ValueError) as error:
            return UnknownKey(f"{file} cannot be used: {error}")
        if any(known[:2]) or any(known[2]):
            return UnknownKey(
                f"{options.place} shows another key than {file} says: it is another "
                "computer, or somebody is listening in",
                "only if you know that the host was installed anew: ssh-keygen -f "
                f"{shlex.quote(str(file))} -R {shlex.quote(options.known_as)}, then add its new "
                "key",
            )
    return UnknownKey(
        f"{options.known_hosts} does not name the key of {options.place}",
        await _how_to_know(options, through),
    )


async def _how_to_know(options: SshOptions, through: asyncssh.SSHClientConnection | None) -> str:
    try:
        async with (
            contextlib.AsyncExitStack() as until_told,
            asyncio.timeout(min(options.connect_s, 10)),
        ):
            way = _way(through, _proxy(options, through, until_told))
            key = await asyncssh.get_server_host_key(
                options.reached_at, options.port, **way, config=None
            )
    except (OSError, asyncssh.Error):
        key = None
    if key is None:
        return f"add a line with its key: ssh-keyscan -p {options.port} {options.reached_at}"
    line = f"{options.known_as} {key.export_public_key().decode().strip()}"
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
        # Through another computer, asyncssh tells that one's end of the way; a program tells none.
        UNKNOWN if options.indirect else of_transport(connection.get_extra_info),
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
