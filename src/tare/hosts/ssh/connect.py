"""Logging in to a host over SSH, with a clear word for every way in which that fails."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from typing import Any

import asyncssh

from tare.errors import InputError, TareError
from tare.hosts.ssh.offering import offered
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.proxied import Proxy
from tare.hosts.ssh.shell import run_script
from tare.hosts.ssh.through import not_let_on, not_reached, on_the_way

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class UnknownKey(InputError):
    """The host shows a key that is not the one it is known by."""


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
    proxy: Proxy | None = None
    try:
        async with contextlib.AsyncExitStack() as until_in, asyncio.timeout(options.connect_s):
            proxy = _proxy(options, through, until_in)
            if not known:
                key = await _shown_key(options, _way(through, proxy))
                raise UnknownKey(
                    f"the key of {options.place} is not known: there is no file "
                    f"{options.known_hosts}",
                    _how_to_know(options, key),
                )
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
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise InputError(f"the key {options.key} cannot be used: {error}") from error
    except asyncssh.ChannelOpenError as error:
        raise not_let_on(error, options, before or options) from error
    except (OSError, asyncssh.Error) as error:
        raise not_reached(error, options, await _last_words(proxy)) from error


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
                "only if you know that the host was reinstalled: ssh-keygen -f "
                f"{shlex.quote(str(file))} -R {shlex.quote(options.known_as)}, then add its new "
                "key",
            )
    return UnknownKey(
        f"{options.known_hosts} does not name the key of {options.place}",
        _how_to_know(options, await _shown_again(options, through)),
    )


async def _shown_key(options: SshOptions, way: dict[str, Any]) -> asyncssh.SSHKey | None:
    """Return the key that a host shows, over the way that leads there."""
    return await asyncssh.get_server_host_key(options.reached_at, options.port, **way, config=None)


async def _shown_again(
    options: SshOptions, through: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHKey | None:
    """Return the key that a host shows over a new connection; None where that fails."""
    with contextlib.suppress(OSError, asyncssh.Error):
        async with (
            contextlib.AsyncExitStack() as until_told,
            asyncio.timeout(min(options.connect_s, 10)),
        ):
            return await _shown_key(options, _way(through, _proxy(options, through, until_told)))
    return None


def _how_to_know(options: SshOptions, key: asyncssh.SSHKey | None) -> str:
    if key is None:
        return f"add a line with its key: ssh-keyscan -p {options.port} {options.reached_at}"
    line = f"{options.known_as} {key.export_public_key().decode().strip()}"
    folder = options.known_hosts.parent
    make = "" if folder.is_dir() else f"mkdir -p -m 700 {shlex.quote(str(folder))} && "
    return (
        f"it shows {key.get_fingerprint()}; if `ssh-keygen -lf` on the host's own console says "
        f"the same of its key in /etc/ssh, run: {make}echo '{line}' >> "
        f"{shlex.quote(str(options.known_hosts))}"
    )


async def boot_of(connection: asyncssh.SSHClientConnection) -> str:
    """Return the id of the host's present boot; empty where it gives none.

    Raises:
        NotRun: The login shell runs no commands any more.
    """
    said = await run_script(connection, f"cat {BOOT_ID}")
    return said.stdout.decode(errors="replace").strip()
