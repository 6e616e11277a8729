"""Login to a host over SSH, with a clear message for every kind of failure."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
import subprocess
import threading
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import asyncssh

from tare.errors import InputError, TareError
from tare.hosts.ssh.login_faults import forwarding_refused, jump_host_fault, login_fault
from tare.hosts.ssh.options import NO_AGENT, SshOptions
from tare.hosts.ssh.shell import run_script

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class UnknownKey(InputError):
    """The host's key differs from the known one."""


async def log_in(options: SshOptions) -> asyncssh.SSHClientConnection:
    """Open a connection to a host with a known key, through the computers on the way there.

    Raises:
        InputError: A key is unknown or has changed, a login is refused, or a file or secret that
            the options name is missing; the message names the computer.
        MachineFault: A computer does not answer, or cannot be reached from the one before it
            (transient).
    """
    last: asyncssh.SSHClientConnection | None = None
    before: SshOptions | None = None
    for hop in (*options.jumps, options):
        try:
            connection = await _log_in(hop, last, before)
        except BaseException as error:
            if last is not None:
                last.abort()
            if isinstance(error, TareError) and hop is not options:
                raise jump_host_fault(error, options) from error
            raise
        if last is not None:
            # The jump connection ends with the connection that uses it.
            connection.set_tunnel(last)
        last, before = connection, hop
    assert last is not None
    return last


async def _log_in(
    options: SshOptions,
    through: asyncssh.SSHClientConnection | None,
    before: SshOptions | None,
) -> asyncssh.SSHClientConnection:
    """Log in to one computer.

    Args:
        options: The options of the connection.
        through: The connection to the computer before it, if any.
        before: How to reach that computer.
    """
    known = [str(file) for file in options.key_files if file.is_file()]
    proxy: Proxy | None = None
    try:
        async with contextlib.AsyncExitStack() as until_in, asyncio.timeout(options.connect_s):
            proxy = _proxy(options, through, until_in)
            if not known:
                key = await _shown_key(options, _way(through, proxy))
                raise UnknownKey(
                    f"the key of {options.place} is unknown: there is no "
                    f"file {options.known_hosts}",
                    _known_hosts_advice(options, key),
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
                # The program ends with the connection that uses it.
                connection.set_tunnel(proxy)
                until_in.pop_all()
            return connection
    except asyncssh.HostKeyNotVerifiable as error:
        raise await _key_not_verified(options, through) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise InputError(f"the key {options.key} cannot be used: {error}") from error
    except asyncssh.ChannelOpenError as error:
        raise forwarding_refused(error, options, before or options) from error
    except (OSError, asyncssh.Error) as error:
        raise login_fault(error, options, await _last_words(proxy)) from error


def _proxy(
    options: SshOptions,
    through: asyncssh.SSHClientConnection | None,
    until: contextlib.AsyncExitStack,
) -> Proxy | None:
    """Start the program that connects to a computer, if any; it is ended with ``until``.

    Args:
        options: The options of the connection.
        through: The connection to a computer before it, which replaces the program.
        until: Closes the program.
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
                f"the key of {options.place} differs from the one in {file}: it is another "
                "computer, or the connection is being intercepted",
                "only if you know that the host was reinstalled: ssh-keygen -f "
                f"{shlex.quote(str(file))} -R {shlex.quote(options.known_as)}, then add its new "
                "key",
            )
    return UnknownKey(
        f"{options.known_hosts} has no key for {options.place}",
        _known_hosts_advice(options, await _shown_again(options, through)),
    )


async def _shown_key(options: SshOptions, way: dict[str, Any]) -> asyncssh.SSHKey | None:
    """Return the key that a host shows, over the given connection."""
    return await asyncssh.get_server_host_key(options.reached_at, options.port, **way, config=None)


async def _shown_again(
    options: SshOptions, through: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHKey | None:
    """Return the key that a host shows over a new connection, or None."""
    with contextlib.suppress(OSError, asyncssh.Error):
        async with (
            contextlib.AsyncExitStack() as until_shown,
            asyncio.timeout(min(options.connect_s, 10)),
        ):
            return await _shown_key(options, _way(through, _proxy(options, through, until_shown)))
    return None


def _known_hosts_advice(options: SshOptions, key: asyncssh.SSHKey | None) -> str:
    if key is None:
        return f"add a line with its key: ssh-keyscan -p {options.port} {options.reached_at}"
    line = f"{options.known_as} {key.export_public_key().decode().strip()}"
    folder = options.known_hosts.parent
    make = "" if folder.is_dir() else f"mkdir -p -m 700 {shlex.quote(str(folder))} && "
    return (
        f"it shows {key.get_fingerprint()}; if `ssh-keygen -lf` on the host's own console prints "
        f"the same for its key in /etc/ssh, run: {make}echo '{line}' >> "
        f"{shlex.quote(str(options.known_hosts))}"
    )


async def boot_of(connection: asyncssh.SSHClientConnection) -> str:
    """Return the id of the host's current boot; empty if the host reports none.

    Raises:
        NotRun: The login shell no longer runs commands.
    """
    done = await run_script(connection, f"cat {BOOT_ID}")
    return done.stdout.decode(errors="replace").strip()


_PUBLIC = ".pub"


def offered(options: SshOptions) -> dict[str, Any]:
    """Return the arguments of ``asyncssh.connect`` about keys.

    Raises:
        InputError: The key file that a study names, or its passphrase, is missing.
    """
    passphrase = options.passphrase()
    if options.key is not None:
        if not options.key.is_file():
            raise InputError(f"the key file {options.key} does not exist")
        return {"client_keys": [str(options.key)], "passphrase": passphrase, **_agent_keys(options)}
    # As with ssh, a configured key file may be missing, or only an agent may be able to open it; a
    # public key file selects one of the agent's keys.
    private = [key for key in options.identities if key.suffix != _PUBLIC and key.is_file()]
    found: dict[str, Any] = {
        "client_keys": [str(key) for key in private],
        "passphrase": passphrase,
        "ignore_encrypted": passphrase is None,
        **_agent_keys(options),
    }
    if certificates := [str(file) for file in options.certificates if file.is_file()]:
        found["client_certs"] = certificates
    if options.identities_only and options.identities:
        meant = [str(file) for file in map(_public, options.identities) if file.is_file()]
        found |= {"agent_identities": meant} if meant else {"agent_path": None}
    return found


def _agent_keys(options: SshOptions) -> dict[str, Any]:
    if options.ssh_agent == NO_AGENT:
        return {"agent_path": None}
    return {"agent_path": options.ssh_agent} if options.ssh_agent else {}


def _public(key: Path) -> Path:
    return key if key.suffix == _PUBLIC else key.with_name(f"{key.name}{_PUBLIC}")


KEPT = 4096
"""Bytes of the program's error output, whose last lines show what is wrong."""
LINES = 3
GRACE_S = 2.0


class Proxy:
    """A program that connects its standard input and output to a host.

    The program ends with its connection, but may outlive the event loop, so threads handle it.

    Args:
        process: The program.
        ours: This computer's end of the connection.
    """

    def __init__(self, process: Popen[bytes], ours: socket.socket) -> None:
        self.socket = ours
        self._process = process
        self._errors = bytearray()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    @classmethod
    def start(cls, command: str) -> Proxy:
        """Start a program as OpenSSH does: through the shell, which the program then replaces.

        Raises:
            OSError: There is no shell, or the process limit is reached.
        """
        ours, its = socket.socketpair()
        ours.setblocking(False)
        try:
            # A separate session: Ctrl-C is meant for Tare, and must not end a connection.
            process = Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=PIPE,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        return cls(process, ours)

    async def last_words(self) -> str:
        """Return the last lines of the program's errors as the end of a sentence; empty if none."""
        await asyncio.to_thread(self._listening.join, GRACE_S)
        lines = bytes(self._errors).decode(errors="replace").split("\n")
        words = [line.strip() for line in lines if line.strip()][-LINES:]
        return f"; its ProxyCommand reported: {' / '.join(words)}" if words else ""

    def close(self) -> None:
        """End the program; it may already have ended with the connection."""
        self.socket.close()
        self._process.terminate()
        threading.Thread(target=self._require_end, daemon=True).start()

    async def wait_closed(self) -> None:
        """Wait until the program has ended."""
        await asyncio.to_thread(self._process.wait)

    def _require_end(self) -> None:
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors, contextlib.suppress(OSError):
            while piece := os.read(errors.fileno(), KEPT):
                self._errors += piece
                del self._errors[:-KEPT]
        self._process.wait()
