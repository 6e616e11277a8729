"""A session with Incus or LXD: over its Unix socket, or over TLS with a client's certificate."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.forwarded_socket import carried_socket
from tare.platforms.incus.client import Client, Response, ended
from tare.platforms.incus.options import ON_THE_HOST, client_certificate
from tare.platforms.vendors.session import Session, opened

PORT = 8443
SOCKETS = (
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
)
"""The default sockets of servers: Incus, Debian's LXD, and the snap's."""
TRUSTED = "trusted"
OPERATION_S = 600.0
STEP_S = 20
"""How long one wait request lasts before Tare asks the server again, in seconds."""


class IncusSession(Session[Client]):
    """A session with a server that trusts Tare.

    Args:
        way: The connection, as :meth:`IncusOptions.connection` returns it.
        socket: The server's socket on this computer; empty: it has an address.
        name: The server's name in messages.
        host: The server's host, if Tare has access to it; None: it has access only to the server.

    Raises:
        InputError: The client's or the server's certificate is missing or unusable.
    """

    def __init__(
        self, way: Mapping[str, Any], socket: str, name: str, host: Host | None = None
    ) -> None:
        super().__init__(name)
        self.host = host
        self._way = dict(way)
        if socket:
            self._client_of = Client(socket=socket)
            return
        self._client_of = Client(
            address=str(way["address"]), port=int(way["port"] or PORT), tls=_shown(way)
        )

    def log_in(self) -> Client:
        """Return the client of the server, once the server has confirmed that it trusts Tare."""
        try:
            reply = self._client_of.ask("GET", "/1.0").content
        except ssl.SSLCertVerificationError as error:
            raise InputError(
                f"the certificate of {self.name} is not trusted: {error.verify_message}",
                "name the server's own certificate by `ca` (on it: /var/lib/incus/server.crt)",
            ) from None
        except OSError as error:
            if not self._client_of.socket:
                raise
            raise InputError(
                f"nothing answers at {self.name}: {error.strerror or error}",
                "is its daemon running, and may you use it? try: incus info, or lxc info",
            ) from None
        if not isinstance(reply, Mapping) or reply.get("auth") != TRUSTED:
            raise InputError(
                f"{self.name} does not trust Tare's certificate",
                "on the server: incus config trust add-certificate FILE, or lxc config trust add",
            )
        return self._client_of

    def log_out(self, client: Client) -> None:
        """Do nothing: each request uses a separate connection."""

    def fault(self, error: Exception) -> TareError:
        """Return the fault for an error of a connection."""
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        return MachineFault(f"the connection to {self.name} broke: {reason}")

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request, wait for its operation if there is one, and return the result.

        Raises:
            MachineFault: The server refuses, or the operation did not end in time.
        """
        answer: Response = await self.call(lambda client: client.ask(method, path, body, headers))
        if not answer.operation:
            return answer.content
        deadline = time.monotonic() + OPERATION_S
        wait = f"{answer.operation}/wait?timeout={STEP_S}"
        while True:
            reply = (await self.call(lambda client: client.ask("GET", wait))).content
            if ended(reply):
                return reply.get("metadata")
            if time.monotonic() > deadline:
                raise MachineFault(f"{self.name} did not end within {OPERATION_S:g} s: {path}")
            await asyncio.sleep(0.1)


def _shown(way: Mapping[str, Any]) -> ssl.SSLContext:
    if way["credentials"] is None:
        raise InputError(
            f"nothing shows {way['address']} who Tare is",
            "name a file (mode 600, PEM) with the client's certificate and key by `credentials`",
        )
    return client_certificate(way["credentials"], way["ca"])


@asynccontextmanager
async def logged_in(host: Host, way: Mapping[str, Any]) -> AsyncIterator[IncusSession]:
    """Hold a session with a server open.

    Args:
        host: The host of the socket, if the server is reached by a socket.
        way: The connection, as :meth:`IncusOptions.connection` returns it.

    Raises:
        TareError: The server does not answer, or does not trust Tare.
    """
    if way["address"]:
        async with opened(IncusSession(way, "", str(way["address"]))) as session:
            yield session
        return
    there = await _socket(host, str(way["socket"]))
    name = there if host.local else f"{there} of {host.name}"
    async with (
        carried_socket(host, there) as here,
        opened(IncusSession(way, here, name, host)) as found,
    ):
        yield found


async def _socket(host: Host, wanted: str) -> str:
    if wanted != ON_THE_HOST:
        return wanted
    for path in SOCKETS:
        if await host.exists(path):
            return path
    where = "here" if host.local else f"on {host.name}"
    raise InputError(
        f"neither Incus nor LXD listens {where}: there is no {SOCKETS[0]} or {SOCKETS[1]}",
        "apt-get install --no-remove incus (Debian 13) or lxd (Debian 12), or name its `socket` "
        "or `address`",
    )
