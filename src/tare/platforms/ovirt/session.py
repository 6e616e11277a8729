"""A session with an oVirt engine, by the vendor's own library."""

from __future__ import annotations

import re
from typing import Any

from tare.errors import MachineFault, TareError
from tare.platforms.vendors.credentials import Secret
from tare.platforms.vendors.session import AccountSession, Expired, NoSuchObject, RequestRefused

REQUEST_S = 60
_REFUSED = frozenset({400, 403, 409})
CA_CERTIFICATE = "/ovirt-engine/services/pki-resource?resource=ca-certificate&format=X509-PEM-CA"
_CURL_MESSAGE = re.compile(r"'([^']+)'\)\]?$")


class OvirtSession(AccountSession[Any]):
    """A session with an engine; its arguments and errors are those of :class:`AccountSession`."""

    product, extra, prefix = "oVirt", "ovirt", "TARE_OVIRT"
    built_with = "gcc python3-dev libxml2-dev"
    modules = ("ovirtsdk4",)
    port = 443

    @property
    def types(self) -> Any:
        """The library's types."""
        return self.loaded[0].types

    def log_in(self) -> Any:
        """Log in, and return the library's connection."""
        client = self.loaded[0].Connection(
            url=f"https://{self.address}:{self.tcp_port}/ovirt-engine/api",
            username=self.account.user,
            password=self.account.password.reveal(),
            ca_file=self.ca,
            timeout=REQUEST_S,
        )
        self.hide(Secret(client.authenticate()))
        return client

    def log_out(self, client: Any) -> None:
        """End the session; if this fails, the session ends by itself."""
        client.close()

    def fault(self, error: Exception) -> TareError:
        """Translate an error of the library."""
        library = self.loaded[0]
        if not isinstance(error, library.Error):
            return MachineFault(f"{self.name}: {type(error).__name__}: {error}")
        message = f"{self.name}: {_engine_message(error)}"
        if error.code is None:
            return self._unanswered(error)
        if error.code == 401:
            return Expired(f"the session at {self.name} has ended")
        if error.code == 404:
            return NoSuchObject(message)
        return RequestRefused(message) if error.code in _REFUSED else MachineFault(message)

    def _unanswered(self, error: Any) -> TareError:
        """Translate an error that is not an answer of the engine's API."""
        if isinstance(error, self.loaded[0].AuthError):
            # The library logs in again by itself, so this error means that the login was rejected.
            return self.rejected(
                f"check {self.prefix}_USER (as in admin@internal) and {self.prefix}_PASSWORD, or "
                "the file of `credentials`"
            )
        if "certificate" in str(error):
            return self.untrusted(
                f"name its CA's certificate by `ca`; it is at https://{self.name}{CA_CERTIFICATE}"
            )
        return MachineFault(f"the connection to {self.name} broke: {_curl_message(error)}")


def _engine_message(error: Any) -> str:
    """Return the engine's own message, without the library's text around it."""
    if error.fault is None:
        return str(error)
    parts = (error.fault.reason, error.fault.detail)
    return ": ".join(str(part).strip("[].") for part in parts if part)


def _curl_message(error: Exception) -> str:
    """Return curl's own message, without the library's text and objects around it."""
    found = _CURL_MESSAGE.search(str(error))
    return found[1] if found else type(error).__name__
