"""A session with Proxmox VE's API, by proxmoxer: a user's ticket, or a token.

If a CA is named, certificates are verified as Tare does everywhere. ``requests``, which proxmoxer
uses, verifies in its own way: with Python 3.13 and newer it requires all of RFC 5280, and
pve-cluster's ``gen_pve_ssl_cert`` (PVE/Cluster/Setup.pm) omits the authority's key identifier from
a node's certificate. A certificate that the user names is trusted by itself, see
:func:`tare.platforms.vendors.tls.verifying`; without a CA, Python's strict rules apply.
"""

from __future__ import annotations

import importlib
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret, credentials
from tare.platforms.vendors.session import Expired, Missing, Refused, Session, load_library
from tare.platforms.vendors.tls import verifying

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
    load_library("requests", EXTRA, PRODUCT)
    return load_library("proxmoxer", EXTRA, PRODUCT)


HTTPS = "https://"
OK = 200


def logged_in(library: Any, way: Mapping[str, Any], port: int, who: Mapping[str, Any]) -> Any:
    """Return proxmoxer's API; a token's is tried with the first request.

    Args:
        library: The module ``proxmoxer``.
        way: Where it is, and the CA to trust.
        port: The port where the way names none.
        who: The user with a password or a token, and how long an answer may take, in seconds, as
            ``ProxmoxAPI`` takes them.

    Raises:
        InputError: There are no certificates in the CA's file.
        Exception: Those of proxmoxer and requests.
    """
    address, port = way["address"], way["port"] or port
    if way["ca"] is None:
        return library.ProxmoxAPI(address, port=port, verify_ssl=True, **who)
    # Its file is named to requests too, which would else add the system's CAs to what is trusted.
    ca = str(Path(way["ca"]).expanduser())
    adapter = _adapter(verifying(ca))
    password = who.get("password")
    token = {"token_name": "none", "token_value": "none"}
    known = {key: value for key, value in who.items() if key != "password"}
    # With a token nothing is sent yet: with a password proxmoxer logs in by requests at once.
    api = library.ProxmoxAPI(address, port=port, verify_ssl=ca, **{**token, **known})
    session = api._store["session"]
    session.mount(HTTPS, adapter)
    if password is not None:
        own = importlib.import_module("requests").Session()
        own.mount(HTTPS, adapter)
        session.auth = api._backend.auth = _ticket(own, api, ca, known, password)
    return api


def _adapter(context: ssl.SSLContext) -> Any:
    """Return what makes connections of requests' with one way to verify."""
    adapters = importlib.import_module("requests.adapters")

    class Adapter(adapters.HTTPAdapter):  # type: ignore[name-defined, misc]
        def init_poolmanager(self, *words: Any, **more: Any) -> None:
            super().init_poolmanager(*words, ssl_context=context, **more)

        def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
            return super().proxy_manager_for(proxy, ssl_context=context, **more)

    return Adapter()


def _ticket(own: Any, api: Any, ca: str, known: Mapping[str, Any], password: str) -> Any:
    """Log in by a password; return what shows the ticket, and gets a new one in time."""
    https = importlib.import_module("proxmoxer.backends.https")
    refused = importlib.import_module("proxmoxer.core").AuthenticationError

    class Ticket(https.ProxmoxHTTPAuth):  # type: ignore[name-defined, misc]
        pve_auth_ticket: str

        def _get_new_tokens(
            self, password: str | None = None, otp: Any = None, otptype: Any = None
        ) -> None:
            # A ticket that is valid still is good for the next one.
            proof = {"username": self.username, "password": password or self.pve_auth_ticket}
            answer = own.post(
                f"{self.base_url}/access/ticket",
                data=proof,
                verify=self.verify_ssl,
                timeout=self.timeout,
            )
            told = answer.json()["data"] if answer.status_code == OK else None
            # Of a user with a second factor the ticket is none yet.
            if told is None or told.get("NeedTFA") is not None:
                raise refused(f"Couldn't authenticate user: {self.username}")
            self.birth_time = time.monotonic()
            self.pve_auth_ticket = told["ticket"]
            self.csrf_prevention_token = told["CSRFPreventionToken"]

    return Ticket(
        known["user"],
        password,
        base_url=api._backend.get_base_url(),
        verify_ssl=ca,
        timeout=known["timeout"],
    )
