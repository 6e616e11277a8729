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
from tare.platforms.vendors.credentials import Secret, credentials
from tare.platforms.vendors.session import Expired, Missing, Refused, Session, load_library
from tare.platforms.vendors.tls import verifying

PREFIX, EXTRA, PRODUCT = "TARE_XENSERVER", "xenserver", "XenServer and XCP-ng"
PORT = 443
REQUEST_S = 60.0
VERSION, ORIGINATOR = "1.0", "tare"
MOST_BYTES = 16 << 20
_MISSING = frozenset({"HANDLE_INVALID", "UUID_INVALID"})
_REFUSED = frozenset(
    {
        *("VM_BAD_POWER_STATE", "OTHER_OPERATION_IN_PROGRESS", "OPERATION_NOT_ALLOWED"),
        *("OPERATION_BLOCKED", "RBAC_PERMISSION_DENIED", "VDI_IN_USE"),
    }
)
_LICENCE = frozenset({"LICENCE_RESTRICTION", "LICENSE_EXPIRED", "FEATURE_RESTRICTED"})
"""What a pool's licence does not allow (xen-api, ocaml/idl/datamodel_errors.ml)."""


class Transport(xmlrpc.client.SafeTransport):
    """HTTPS that does not wait for ever, and has one request at a time on its connection.

    Args:
        context: How the server is verified.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._one = threading.Lock()

    def single_request(self, *asked: Any, **more: Any) -> Any:
        """Carry one request out; a thread that nobody waits for any more ends its own first."""
        with self._one:
            return super().single_request(*asked, **more)

    def make_connection(self, host: Any) -> http.client.HTTPSConnection:
        """Return a connection with a deadline on each of its steps."""
        made = super().make_connection(host)
        made.timeout = REQUEST_S
        return made


class XenSession(Session[Any]):
    """A login at a pool's coordinator.

    Args:
        way: As :meth:`tare.platforms.vendors.options.VendorOptions.way` returns it.

    Raises:
        InputError: There are no credentials, no such CA, or the library is not installed.
    """

    def __init__(self, way: Mapping[str, Any]) -> None:
        self._library = load()
        self._way = dict(way)
        self._who = credentials(PREFIX, way["credentials"])
        self._tls = verifying(way["ca"])
        self._reference = Secret("")
        super().__init__(str(way["address"]), self._who.password)

    def log_in(self) -> Any:
        """Return XenAPI's session, logged in."""
        uri = f"https://{self._way['address']}:{self._way['port'] or PORT}"
        session = self._library.Session(uri, transport=Transport(self._tls))
        session.login_with_password(
            self._who.user, self._who.password.reveal(), VERSION, ORIGINATOR
        )
        self._reference = Secret(session.handle)
        self.hide(self._reference)
        # The library would log in again by itself: that is left to whoever calls.
        session.last_login_method = None
        return session

    def log_out(self, client: Any) -> None:
        """End the session."""
        client.last_login_method = "login_with_password"
        client.xenapi.session.logout()

    def fault(self, error: Exception) -> TareError:
        """Return what an error of XenAPI means: a list of its code and what it is about."""
        if isinstance(error, self._library.Failure):
            return self.failure([str(word) for word in error.details])
        if isinstance(error, ssl.SSLError):
            return InputError(
                f"the certificate of {self.name} is not trusted",
                "name its CA's certificate, or its own, by `ca`",
            )
        # An answer that ends too early is no XML.
        if isinstance(error, OSError | http.client.HTTPException | expat.ExpatError):
            return MachineFault(f"the connection to {self.name} broke: {type(error).__name__}")
        if isinstance(error, xmlrpc.client.Fault) and error.faultCode == 401:
            return Expired(f"the session at {self.name} has ended")
        return MachineFault(f"{self.name}: {type(error).__name__}: {error}")

    def failure(self, words: list[str]) -> TareError:
        """Return what XenAPI's list of words means: a code, and what it is about."""
        code, about = (words or ["nothing"])[0], ", ".join(words[1:])
        told = f"{self.name}: {code}{f' ({about})' if about else ''}"
        if code == "SESSION_INVALID":
            return Expired(told)
        if code == "SESSION_AUTHENTICATION_FAILED":
            return InputError(
                f"{self.name} does not let {self._who.user} in",
                f"check {PREFIX}_USER and {PREFIX}_PASSWORD, or the file of `credentials`",
            )
        if code == "HOST_IS_SLAVE":
            return InputError(
                f"{self.name} is not its pool's coordinator", f"write `address: {about}`"
            )
        if code in _MISSING:
            return Missing(told)
        if code in _LICENCE:
            return Refused(told, "look at the pool's licence: xe host-license-view")
        return Refused(told) if code in _REFUSED else MachineFault(told)

    async def put(self, path: str, query: Mapping[str, str], content: bytes) -> None:
        """Send bytes to one of XenAPI's HTTP handlers; raises MachineFault where it refuses."""
        await self.call(lambda _: self._request("PUT", None, path, query, content))

    async def get_json(self, address: str | None, path: str, query: Mapping[str, str]) -> Any:
        """Return what a handler tells as JSON, in which XenAPI writes NaN as it is.

        Args:
            address: The host whose handler it is; None: the coordinator.
            path: The handler.
            query: What it is asked.
        """
        told = await self.call(lambda _: self._request("GET", address, path, query, None))
        try:
            return json.loads(told)
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
            address or self._way["address"],
            self._way["port"] or PORT,
            timeout=REQUEST_S,
            context=self._tls,
        )
        try:
            # In a cookie, the session is in no log of addresses.
            cookie = {"Cookie": f"session_id={self._reference.reveal()}"}
            connection.request(method, f"{path}?{urlencode(query)}", content, cookie)
            answer = connection.getresponse()
            told = answer.read(MOST_BYTES)
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise Expired(f"{self.name} does not take the session for {path}")
        if answer.status != 200:
            raise MachineFault(f"{self.name}: {path} answered {answer.status} {answer.reason}")
        return told


def load() -> Any:
    """Return the library; raises InputError, with the command that installs it, without one."""
    return load_library("XenAPI", EXTRA, PRODUCT)
