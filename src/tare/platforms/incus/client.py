"""A client of the REST API of Incus and LXD: HTTP over a Unix socket or TLS, and its answers.

Both speak version 1.0 (linuxcontainers.org/incus/docs/main/rest-api). An answer is *sync*, with
the requested content; *async*, with an operation in progress; or an *error*.
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
"""The greatest length of an answer in bytes; none that Tare asks for is longer."""
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409
SUCCESS = 200
"""The status code of an operation that succeeded; codes from 400 on mean that it failed."""
_BUSY = ("busy", "in use", "already running", "operation is in progress", "is currently", "lock")


@dataclass(frozen=True)
class Response:
    """A server's answer.

    Args:
        content: The requested content, or the operation.
        operation: The path of an operation in progress; empty: there is none.
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
    """A client of one server; each request uses a separate connection.

    Args:
        socket: The Unix socket's file; empty: the client uses TLS.
        address: The server's name, as in its certificate.
        port: Its TCP port.
        tls: Verifies the server's certificate, and presents the client's.
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
        """Send a request and return the server's answer.

        Args:
            method: ``GET``, ``POST`` and so on.
            path: The path from ``/1.0`` on, with its query.
            body: An object to send as JSON, or bytes to send unchanged.
            headers: Additional headers, for bytes.

        Raises:
            OSError: The connection failed.
            MachineFault: The server refuses, or the answer is not one of this API.
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
    """Decode an answer; raise the error that it reports.

    Args:
        status: The HTTP status code.
        content: The JSON text.

    Raises:
        NoSuchObject: The requested object does not exist.
        RequestRefused: The request is not allowed, or conflicts with the present state.
        MachineFault: The request failed, with the server's message; or this is another answer.
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
    """Return the error for a refusal by the server, with the server's message.

    Args:
        code: The HTTP status code, or an operation's code with the same meaning.
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
    """Check whether an operation has succeeded; False while it is in progress.

    Args:
        operation: The server's report on it.

    Raises:
        MachineFault: It failed, with the server's message; or its state is not reported.
    """
    code = operation.get("status_code") if isinstance(operation, Mapping) else None
    if not isinstance(code, int):
        raise MachineFault("the server does not report the state of its operation")
    if code >= 400:
        raise failed(code, operation.get("err") or operation.get("status"))
    return code == SUCCESS
