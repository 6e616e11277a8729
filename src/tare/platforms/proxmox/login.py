"""How proxmoxer logs in: where a CA is named, certificates are verified as Tare does everywhere.

``requests``, by which proxmoxer speaks, has a way of its own to verify: with Python 3.13 and newer
it asks all of RFC 5280, and pve-cluster's ``gen_pve_ssl_cert`` (PVE/Cluster/Setup.pm) leaves the
authority's key identifier out of a node's certificate. What a user has named is trusted by itself,
see :func:`tare.platforms.vendors.tls.verifying`; without a CA all stays as strict as Python has it.
"""

from __future__ import annotations

import importlib
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.platforms.vendors.tls import verifying

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
