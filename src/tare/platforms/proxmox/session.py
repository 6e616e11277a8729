"""A session with Proxmox VE's API, by proxmoxer: a user's ticket, or a token."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.proxmox.login import logged_in
from tare.platforms.vendors import extras
from tare.platforms.vendors.credentials import credentials
from tare.platforms.vendors.faults import Expired, Missing, Refused
from tare.platforms.vendors.secret import Secret
from tare.platforms.vendors.session import Session

PREFIX, EXTRA, PRODUCT = "TARE_PROXMOX", "proxmox", "Proxmox VE"
PORT = 8006
ROOT = "root@pam"
REQUEST_S = 60.0
UNAUTHORIZED, FORBIDDEN = 401, 403
STRICTLY = "Missing Authority Key Identifier"
"""OpenSSL's words for a certificate that keeps less than all of RFC 5280 (X509_STRICT)."""
# PVE::API2 dies with these words, of which HTTP makes a status of 500.
_MISSING = ("does not exist", "no such", "not available on node")
_REFUSED = (
    "only root can",
    "is running",
    "already running",
    "is locked",
    "got timeout",
    "protection",
)


class ProxmoxSession(Session[Any]):
    """A login at one server.

    Args:
        way: As :meth:`tare.platforms.vendors.options.VendorOptions.way` returns it.

    Raises:
        InputError: There are no credentials, or the library is not installed.
    """

    def __init__(self, way: Mapping[str, Any]) -> None:
        self._library = load()
        self._way = dict(way)
        self._who = credentials(PREFIX, way["credentials"])
        super().__init__(str(way["address"]), self._who.password)

    @property
    def is_root(self) -> bool:
        """Whether it is ``root@pam`` by password, whom alone Proxmox lets set ``affinity``."""
        return self._who.user == ROOT

    def log_in(self) -> Any:
        """Return proxmoxer's API; a token, which needs no login, is tried."""
        user, bang, token = self._who.user.partition("!")
        secret = self._who.password.reveal()
        proof = {"token_name": token, "token_value": secret} if bang else {"password": secret}
        who = {"user": user, "timeout": REQUEST_S, **proof}
        try:
            api = logged_in(self._library, self._way, PORT, who)
            api.version.get()
        except Exception as error:
            if (
                isinstance(self.fault(error), Expired)
                or type(error).__name__ == "AuthenticationError"
            ):
                raise InputError(
                    f"{self.name} does not let {self._who.user} in",
                    f"check {PREFIX}_USER (`root@pam`, or a token's `user@realm!name`) and its "
                    "password or secret",
                ) from None
            raise
        if not bang:
            for issued in api.get_tokens():
                self.hide(Secret(issued))
        return api

    def log_out(self, client: Any) -> None:
        """Forget the ticket; Proxmox ends it by itself after two hours."""
        client._store["session"].close()

    def fault(self, error: Exception) -> TareError:
        """Return what an error of proxmoxer or requests means."""
        faults = importlib.import_module("requests.exceptions")
        if isinstance(error, faults.SSLError) and STRICTLY in str(error):
            # pve-cluster's gen_pve_ssl_cert leaves it out, and requests' way to say so is its own.
            return InputError(
                f"the certificate of {self.name} lacks what this Python asks of it since 3.13 "
                f"({STRICTLY})",
                "name its CA's certificate by `ca` (on a node: /etc/pve/pve-root-ca.pem): of what "
                "is named, name, dates and signature alone are verified",
            )
        if isinstance(error, faults.SSLError):
            return InputError(
                f"the certificate of {self.name} is not trusted",
                "name its CA's certificate by `ca` (on a node: /etc/pve/pve-root-ca.pem)",
            )
        if isinstance(error, OSError):
            # requests' own errors are OSErrors, and repeat the address with whatever is in it.
            return MachineFault(f"the connection to {self.name} broke: {type(error).__name__}")
        answers = importlib.import_module("proxmoxer.core")
        if not isinstance(error, answers.ResourceException):
            return MachineFault(f"{self.name}: {type(error).__name__}: {error}")
        status, words = error.status_code, _words(error.content, error.errors)
        if status == UNAUTHORIZED:
            return Expired(f"{self.name}: {words}")
        if status == FORBIDDEN:
            return Refused(
                f"{self.name} refuses: {words}", "docs/owning.md lists the rights that it takes"
            )
        if any(word in words for word in _MISSING):
            return Missing(f"{self.name}: {words}")
        if any(word in words for word in _REFUSED):
            return Refused(f"{self.name} refuses: {words}")
        return MachineFault(f"{self.name}: {words}")


def _is_login(error: Exception) -> bool:
    return type(error).__name__ == "AuthenticationError"


def _words(content: Any, wrong: Any) -> str:
    """Return what Proxmox said: the status line, and what is wrong with which parameter."""
    said = str(content or "").strip()
    if isinstance(wrong, Mapping):
        said = ", ".join([said, *(f"{key}: {value}" for key, value in wrong.items())])
    return " ".join(said.split())


def load() -> Any:
    """Return the library; raises InputError, with the command that installs it, without one."""
    # Without it, proxmoxer would end this process.
    extras.load("requests", EXTRA, PRODUCT)
    return extras.load("proxmoxer", EXTRA, PRODUCT)
