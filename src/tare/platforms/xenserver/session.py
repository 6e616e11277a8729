"""A session with XenAPI: XML-RPC for calls, plain HTTPS for disks and figures."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import xmlrpc.client
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from xml.parsers import expat

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret
from tare.platforms.vendors.session import AccountSession, Expired, NoSuchObject, RequestRefused

REQUEST_S = 60.0
VERSION, ORIGINATOR = "1.0", "tare"
MOST_BYTES = 16 << 20
LEAST = "vm-power-admin"
GIVE_ROLE = f"give it the role {LEAST}: xe subject-role-add uuid=SUBJECT role-name={LEAST}"
_MISSING = frozenset({"HANDLE_INVALID", "UUID_INVALID"})
_REFUSED = frozenset(
    {
        *("VM_BAD_POWER_STATE", "OTHER_OPERATION_IN_PROGRESS", "OPERATION_NOT_ALLOWED"),
        *("OPERATION_BLOCKED", "VDI_IN_USE", "NETWORK_CONTAINS_VIF"),
    }
)
_LICENCE = frozenset({"LICENCE_RESTRICTION", "LICENSE_EXPIRED", "FEATURE_RESTRICTED"})
"""Errors for requests that a licence does not allow (xen-api, ocaml/idl/datamodel_errors.ml)."""


class Transport(xmlrpc.client.SafeTransport):
    """HTTPS with a time limit, and with one request at a time on its connection.

    Args:
        context: The TLS context that verifies the server.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._one = threading.Lock()

    def single_request(self, *asked: Any, **more: Any) -> Any:
        """Send one request, after any abandoned request of another thread has ended."""
        with self._one:
            return super().single_request(*asked, **more)

    def make_connection(self, host: Any) -> http.client.HTTPSConnection:
        """Return a connection with a time limit for each of its steps."""
        made = super().make_connection(host)
        made.timeout = REQUEST_S
        return made


class XenSession(AccountSession[Any]):
    """A session with a pool's coordinator; see :class:`AccountSession`."""

    product, extra, prefix = "XenServer and XCP-ng", "xenserver", "TARE_XENSERVER"
    modules = ("XenAPI",)
    port = 443
    _reference = Secret("")

    def log_in(self) -> Any:
        """Log in, and return XenAPI's session."""
        uri = f"https://{self.address}:{self.tcp_port}"
        session = self.loaded[0].Session(uri, transport=Transport(self.tls))
        session.login_with_password(
            self.account.user, self.account.password.reveal(), VERSION, ORIGINATOR
        )
        self._reference = Secret(session.handle)
        self.hide(self._reference)
        # The library would log in again on its own; `Session.call` does that instead.
        session.last_login_method = None
        return session

    def log_out(self, client: Any) -> None:
        """End the session."""
        client.last_login_method = "login_with_password"
        client.xenapi.session.logout()

    def fault(self, error: Exception) -> TareError:
        """Translate an error of XenAPI, which is a list of a code and its arguments."""
        if isinstance(error, self.loaded[0].Failure):
            return self.failure([str(word) for word in error.details])
        if isinstance(error, ssl.SSLError):
            return self.untrusted()
        # A truncated answer is not valid XML.
        if isinstance(error, OSError | http.client.HTTPException | expat.ExpatError):
            return self.broken(error)
        if isinstance(error, xmlrpc.client.Fault) and error.faultCode == 401:
            return Expired(f"the session at {self.name} has ended")
        return MachineFault(f"{self.name}: {type(error).__name__}: {error}")

    def failure(self, words: list[str]) -> TareError:
        """Translate XenAPI's list of words: a code and its arguments."""
        code, about = (words or ["nothing"])[0], ", ".join(words[1:])
        message = f"{self.name}: {code}{f' ({about})' if about else ''}"
        if code == "SESSION_INVALID":
            return Expired(message)
        if code == "SESSION_AUTHENTICATION_FAILED":
            return self.rejected()
        if code == "HOST_IS_SLAVE":
            return InputError(
                f"{self.name} is not its pool's coordinator", f"write `address: {about}`"
            )
        if code in _MISSING:
            return NoSuchObject(message)
        if code == "RBAC_PERMISSION_DENIED":
            return RequestRefused(message, GIVE_ROLE)
        if code in _LICENCE:
            return RequestRefused(message, "look at the pool's licence: xe host-license-view")
        return RequestRefused(message) if code in _REFUSED else MachineFault(message)

    async def put(self, path: str, query: Mapping[str, str], content: bytes) -> None:
        """Send bytes to one of XenAPI's HTTP handlers; raises MachineFault if it refuses."""
        await self.call(lambda _: self._request("PUT", None, path, query, content))

    async def get_json(self, address: str | None, path: str, query: Mapping[str, str]) -> Any:
        """Return the JSON answer of an HTTP handler; XenAPI's JSON may contain NaN.

        Args:
            address: The host that has the handler; None: the coordinator.
            path: The handler's path.
            query: The query's parameters.
        """
        answer = await self.call(lambda _: self._request("GET", address, path, query, None))
        try:
            return json.loads(answer)
        except ValueError:
            raise MachineFault(f"{self.name}: {path} did not answer with JSON") from None

    def _request(
        self,
        method: str,
        address: str | None,
        path: str,
        query: Mapping[str, str],
        content: bytes | None,
    ) -> bytes:
        connection = http.client.HTTPSConnection(
            address or self.address,
            self.tcp_port,
            timeout=REQUEST_S,
            context=self.tls,
        )
        try:
            # The id is sent in a cookie, so that it appears in no log of URLs.
            cookie = {"Cookie": f"session_id={self._reference.reveal()}"}
            connection.request(method, f"{path}?{urlencode(query)}", content, cookie)
            answer = connection.getresponse()
            content_read = answer.read(MOST_BYTES)
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise Expired(f"{self.name} does not take the session for {path}")
        if answer.status != 200:
            raise MachineFault(f"{self.name}: {path} answered {answer.status} {answer.reason}")
        return content_read
