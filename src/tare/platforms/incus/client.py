"""The REST API of Incus and LXD: HTTP over a unix socket or TLS, and what its answers mean.

Both speak version 1.0 (linuxcontainers.org/incus/docs/main/rest-api). An answer is *sync*, with
what was asked for; *async*, with an operation in progress; or an *error*.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import MachineFault
from tare.platforms.vendors.session import NoSuchObject, RequestRefused

ANSWER_S = 90.0
MOST_BYTES = 64 << 20
"""Bytes of an answer; what is longer is none of those that Tare asks for."""
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409
SUCCESS = 200
"""How an operation's status is numbered that has ended well; above 400 it has failed."""
_BUSY = ("busy", "in use", "already running", "operation is in progress", "is currently", "lock")


@dataclass(frozen=True)
class Response:
    """A server's answer.

    Args:
        content: What was asked for, or the operation.
        operation: The path of an operation in progress; empty: none is.
    """

    content: Any
    operation: str = ""


class Unix(http.client.HTTPConnection):
    """HTTP over a unix socket.

    Args:
        path: The socket's file.
    """

    def __init__(self, path: str) -> None:
        super().__init__("server", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Client:
    """Asks one server; each request has a connection of its own.

    Args:
        socket: The unix socket's file; empty: it is asked over TLS.
        address: Its name, as its certificate has it.
        port: Its TCP port.
        tls: What verifies its certificate, and shows the client's.
    """

    socket: str = ""
    address: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return what the server answers.

        Args:
            method: ``GET``, ``POST`` and so on.
            path: From ``/1.0`` on, with its query.
            body: An object for JSON, or bytes that are sent as they are.
            headers: More of them, for bytes.

        Raises:
            OSError: There is no connection.
            MachineFault: The server refuses, or what answers is none.
        """
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        connection = (
            Unix(self.socket)
            if self.socket
            else http.client.HTTPSConnection(
                self.address, self.port, timeout=ANSWER_S, context=self.tls
            )
        )
        try:
            connection.request(method, path, sent, {"Content-Type": kind, **(headers or {})})
            answered = connection.getresponse()
            return answer_of(answered.status, answered.read(MOST_BYTES))
        except http.client.HTTPException as error:
            raise MachineFault(f"what answers speaks no HTTP: {type(error).__name__}") from None
        finally:
            connection.close()


def answer_of(status: int, content: bytes) -> Response:
    """Return what an answer says.

    Args:
        status: HTTP's.
        content: The JSON.

    Raises:
        Missing: There is no such thing.
        Refused: It is not allowed, or conflicts with the present state.
        MachineFault: It failed, in the server's words; or it is not an answer of this API.
    """
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict) or reply.get("type") not in ("sync", "async", "error"):
        raise MachineFault(
            f"what answers is neither Incus nor LXD: HTTP {status}, {len(content)} bytes",
            "check that `socket` or `address` and `port` name its REST API",
        )
    if reply["type"] == "error" or status >= 400:
        code = reply.get("error_code")
        raise failed(code if isinstance(code, int) and code else status, reply.get("error"))
    operation = reply.get("operation")
    if reply["type"] == "sync":
        return Response(reply.get("metadata"))
    if not isinstance(operation, str) or not operation.startswith("/1.0/operations/"):
        raise MachineFault("the server does not report which operation is in progress")
    return Response(reply.get("metadata"), operation.partition("?")[0])


def failed(code: int, words: object) -> MachineFault:
    """Return what a refusal of the server's means, in its own words.

    Args:
        code: As HTTP numbers them; operations do the same.
        words: The server's message.
    """
    message = " ".join(str(words or f"error {code}").split())
    if code == NOT_FOUND:
        return NoSuchObject(message)
    if code == FORBIDDEN:
        return RequestRefused(f"refused: {message}", "`tare help incus` says what rights it takes")
    if code == CONFLICT or any(word in message.casefold() for word in _BUSY):
        return RequestRefused(message)
    return MachineFault(message)


def ended(operation: Any) -> bool:
    """Return whether an operation has ended well.

    Args:
        operation: What the server says of it.

    Raises:
        MachineFault: It failed, in the server's words; or its state is not reported.
    """
    code = operation.get("status_code") if isinstance(operation, Mapping) else None
    if not isinstance(code, int):
        raise MachineFault("the server does not report the state of its operation")
    if code >= 400:
        raise failed(code, operation.get("err") or operation.get("status"))
    return code == SUCCESS
