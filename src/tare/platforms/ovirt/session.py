"""A session with an oVirt engine, by its maker's own library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret, credentials
from tare.platforms.vendors.session import Expired, Missing, Refused, Session, load_library
from tare.platforms.vendors.tls import verifying

PREFIX, EXTRA, PRODUCT = "TARE_OVIRT", "ovirt", "oVirt"
PORT = 443
REQUEST_S = 60
_REFUSED = frozenset({400, 403, 409})
CA_CERTIFICATE = "/ovirt-engine/services/pki-resource?resource=ca-certificate&format=X509-PEM-CA"
_SAID = re.compile(r"'([^']+)'\)\]?$")


class OvirtSession(Session[Any]):
    """A login at an engine.

    Args:
        way: As :meth:`tare.platforms.vendors.options.VendorOptions.way` returns it.

    Raises:
        InputError: There are no credentials, no such CA, or the library is not installed.
    """

    def __init__(self, way: Mapping[str, Any]) -> None:
        self._library = load()
        self._way = dict(way)
        self._who = credentials(PREFIX, way["credentials"])
        # Whether there are certificates in it is told now: the library speaks of a problem later.
        verifying(way["ca"])
        self._ca = None if way["ca"] is None else str(Path(way["ca"]).expanduser())
        super().__init__(str(way["address"]), self._who.password)

    @property
    def types(self) -> Any:
        """The library's types."""
        return self._library.types

    def log_in(self) -> Any:
        """Return the library's connection, logged in."""
        client = self._library.Connection(
            url=f"https://{self._way['address']}:{self._way['port'] or PORT}/ovirt-engine/api",
            username=self._who.user,
            password=self._who.password.reveal(),
            ca_file=self._ca,
            timeout=REQUEST_S,
        )
        self.hide(Secret(client.authenticate()))
        return client

    def log_out(self, client: Any) -> None:
        """End the session; what fails of it ends by itself."""
        client.close()

    def fault(self, error: Exception) -> TareError:
        """Return what an error of the library means."""
        library = self._library
        if not isinstance(error, library.Error):
            return MachineFault(f"{self.name}: {type(error).__name__}: {error}")
        told = f"{self.name}: {_words(error)}"
        if error.code is None:
            return self._unanswered(error)
        if error.code == 401:
            return Expired(f"the session at {self.name} has ended")
        if error.code == 404:
            return Missing(told)
        return Refused(told) if error.code in _REFUSED else MachineFault(told)

    def _unanswered(self, error: Any) -> TareError:
        """Return what an error means that is no answer of the engine's API."""
        if isinstance(error, self._library.AuthError):
            # The library logs in again by itself; what is refused then is the login.
            return InputError(
                f"{self.name} does not let {self._who.user} in",
                f"check {PREFIX}_USER (as in admin@internal) and {PREFIX}_PASSWORD, or the file of "
                "`credentials`",
            )
        if "certificate" in str(error):
            return InputError(
                f"the certificate of {self.name} is not trusted",
                f"name its CA's certificate by `ca`; it is at https://{self.name}{CA_CERTIFICATE}",
            )
        return MachineFault(f"the connection to {self.name} broke: {_curls(error)}")


def _words(error: Any) -> str:
    """Return what an engine says of a fault, without the library's words around it."""
    if error.fault is None:
        return str(error)
    said = (error.fault.reason, error.fault.detail)
    return ": ".join(str(word).strip("[].") for word in said if word)


def _curls(error: Exception) -> str:
    """Return what curl said, without the library's words and objects around it."""
    said = _SAID.search(str(error))
    return said[1] if said else type(error).__name__


def load() -> Any:
    """Return the library; raises InputError, with the command that installs it, without one."""
    return load_library("ovirtsdk4", EXTRA, PRODUCT)
