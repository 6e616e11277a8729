"""A session with Proxmox VE's API, by proxmoxer: a user's ticket, or a token.

If a CA is named, certificates are verified as everywhere in Tare
(:func:`tare.platforms.vendors.tls.verifying`): a certificate that the user names is trusted by
itself. Without a CA, ``requests``, which proxmoxer uses, verifies in its own way. With Python 3.13
and newer it requires all of RFC 5280. A node's certificate fails that check: pve-cluster's
``gen_pve_ssl_cert`` (PVE/Cluster/Setup.pm) omits the authority's key identifier.
"""

from __future__ import annotations

import importlib
import ssl
import time
from collections.abc import Mapping
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret
from tare.platforms.vendors.session import AccountSession, Expired, NoSuchObject, RequestRefused

ROOT = "root@pam"
HTTPS = "https://"
OK = 200
REQUEST_S = 60.0
UNAUTHORIZED, FORBIDDEN = 401, 403
STRICTLY = "Missing Authority Key Identifier"
"""OpenSSL's message for a certificate that does not conform to RFC 5280 (X509_STRICT)."""
# PVE::API2 fails with these words; the HTTP status is 500.
_MISSING = ("does not exist", "no such", "not available on node")
_REFUSED = (
    "only root can",
    "is running",
    "already running",
    "is locked",
    "got timeout",
    "protection",
)


class ProxmoxSession(AccountSession[Any]):
    """A session with one server; its arguments and errors are those of :class:`AccountSession`."""

    product, extra, prefix = "Proxmox VE", "proxmox", "TARE_PROXMOX"
    # If requests were missing, proxmoxer would end this process.
    modules = ("requests", "proxmoxer")
    port = 8006

    @property
    def is_root(self) -> bool:
        """Whether the account is ``root@pam`` by password; no other may set ``affinity``."""
        return self.account.user == ROOT

    def log_in(self) -> Any:
        """Return proxmoxer's API after a first request, because a token needs no login."""
        user, bang, token = self.account.user.partition("!")
        secret = self.account.password.reveal()
        proof = {"token_name": token, "token_value": secret} if bang else {"password": secret}
        who = {"user": user, "timeout": REQUEST_S, **proof}
        try:
            api = self._connect(who)
            api.version.get()
        except Exception as error:
            name = type(error).__name__
            if name == "AuthenticationError" or isinstance(self.fault(error), Expired):
                raise self.rejected(
                    f"check {self.prefix}_USER (`root@pam`, or a token's `user@realm!name`) and "
                    "its password or secret"
                ) from None
            raise
        if not bang:
            for issued in api.get_tokens():
                self.hide(Secret(issued))
        return api

    def _connect(self, who: Mapping[str, Any]) -> Any:
        """Return proxmoxer's API; with a token, nothing is sent before the first request.

        Args:
            who: The arguments of ``ProxmoxAPI``: the user with a password or a token, and the time
                limit for an answer, in seconds.

        Raises:
            Exception: An error of proxmoxer or requests.
        """
        library = self.loaded[-1]
        if self.ca is None:
            return library.ProxmoxAPI(self.address, port=self.tcp_port, verify_ssl=True, **who)
        adapter = _adapter(self.tls)
        password = who.get("password")
        token = {"token_name": "none", "token_value": "none"}
        known = {key: value for key, value in who.items() if key != "password"}
        # # With a password, proxmoxer would log in at once, with requests' own verification. With a
        # token it sends nothing yet. requests also gets the CA's file; without it, requests would
        # trust the system's CAs too.
        api = library.ProxmoxAPI(
            self.address, port=self.tcp_port, verify_ssl=self.ca, **{**token, **known}
        )
        session = api._store["session"]
        session.mount(HTTPS, adapter)
        if password is not None:
            own = importlib.import_module("requests").Session()
            own.mount(HTTPS, adapter)
            session.auth = api._backend.auth = _ticket(own, api, self.ca, known, password)
        return api

    def log_out(self, client: Any) -> None:
        """Close the connections; Proxmox ends the ticket by itself after two hours."""
        client._store["session"].close()

    def fault(self, error: Exception) -> TareError:
        """Translate an error of proxmoxer or requests."""
        faults = importlib.import_module("requests.exceptions")
        if isinstance(error, faults.SSLError) and STRICTLY in str(error):
            # The certificate that pve-cluster's gen_pve_ssl_cert creates lacks it.
            return InputError(
                f"the certificate of {self.name} lacks what Python requires since 3.13 "
                f"({STRICTLY})",
                "name its CA's certificate by `ca` (on a node: /etc/pve/pve-root-ca.pem): then "
                "only name, dates and signature are verified",
            )
        if isinstance(error, faults.SSLError):
            return self.untrusted(
                "name its CA's certificate by `ca` (on a node: /etc/pve/pve-root-ca.pem)"
            )
        if isinstance(error, OSError):
            # requests' errors are OSErrors, and repeat the whole URL.
            return self.broken(error)
        answers = importlib.import_module("proxmoxer.core")
        if not isinstance(error, answers.ResourceException):
            return MachineFault(f"{self.name}: {type(error).__name__}: {error}")
        status, words = error.status_code, _words(error.content, error.errors)
        if status == UNAUTHORIZED:
            return Expired(f"{self.name}: {words}")
        if status == FORBIDDEN:
            return RequestRefused(
                f"{self.name} refuses: {words}",
                "`tare help proxmox` lists the rights that it needs",
            )
        if any(word in words for word in _MISSING):
            return NoSuchObject(f"{self.name}: {words}")
        if any(word in words for word in _REFUSED):
            return RequestRefused(f"{self.name} refuses: {words}")
        return MachineFault(f"{self.name}: {words}")


def _words(content: Any, wrong: Any) -> str:
    """Return Proxmox's message: the status line, and each wrong parameter with the reason."""
    message = str(content or "").strip()
    if isinstance(wrong, Mapping):
        message = ", ".join([message, *(f"{key}: {value}" for key, value in wrong.items())])
    return " ".join(message.split())


def _adapter(context: ssl.SSLContext) -> Any:
    """Return a requests adapter that verifies certificates with a TLS context."""
    adapters = importlib.import_module("requests.adapters")

    class Adapter(adapters.HTTPAdapter):  # type: ignore[name-defined, misc]
        def init_poolmanager(self, *words: Any, **more: Any) -> None:
            super().init_poolmanager(*words, ssl_context=context, **more)

        def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
            return super().proxy_manager_for(proxy, ssl_context=context, **more)

    return Adapter()


def _ticket(own: Any, api: Any, ca: str, known: Mapping[str, Any], password: str) -> Any:
    """Log in with a password; return the object that sends the ticket, and renews it in time."""
    https = importlib.import_module("proxmoxer.backends.https")
    refused = importlib.import_module("proxmoxer.core").AuthenticationError

    class Ticket(https.ProxmoxHTTPAuth):  # type: ignore[name-defined, misc]
        pve_auth_ticket: str

        def _get_new_tokens(
            self, password: str | None = None, otp: Any = None, otptype: Any = None
        ) -> None:
            # Proxmox accepts a ticket that is still valid as a password.
            proof = {"username": self.username, "password": password or self.pve_auth_ticket}
            answer = own.post(
                f"{self.base_url}/access/ticket",
                data=proof,
                verify=self.verify_ssl,
                timeout=self.timeout,
            )
            ticket = answer.json()["data"] if answer.status_code == OK else None
            # For a user with a second factor, this answer is not yet a ticket.
            if ticket is None or ticket.get("NeedTFA") is not None:
                raise refused(f"Couldn't authenticate user: {self.username}")
            self.birth_time = time.monotonic()
            self.pve_auth_ticket = ticket["ticket"]
            self.csrf_prevention_token = ticket["CSRFPreventionToken"]

    return Ticket(
        known["user"],
        password,
        base_url=api._backend.get_base_url(),
        verify_ssl=ca,
        timeout=known["timeout"],
    )
