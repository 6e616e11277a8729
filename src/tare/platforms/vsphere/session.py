"""A session with ESXi or vCenter by pyVmomi, and the translation of its faults.

The faults are documented in the vSphere Web Services API reference, developer.broadcom.com.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret
from tare.platforms.vendors.session import (
    AccountSession,
    Expired,
    NoSuchObject,
    RequestRefused,
    wait_for,
)
from tare.platforms.vsphere.inventory import properties

TIMEOUT_S = 60
TASK_S = 300.0
TASK_PROPERTIES = ("info.state", "info.result", "info.error")
FREE = (
    "the licence of this ESXi forbids changes by its API (free ESXi): measure a VM that exists by "
    "`platform: ssh`, or license the host"
)
WRONG_STATE = "the virtual machine is"
BUSY = "something else changes the same object"
"""Texts in refusals that end when a state changes or when another task ends."""
_COOKIE = "vmware_soap_session"


class VsphereSession(AccountSession[Any]):
    """A session with ESXi or vCenter; its client is pyVmomi's ``ServiceInstance``.

    Its arguments and errors are those of :class:`AccountSession`.
    """

    product, extra, prefix = "vSphere", "vsphere", "TARE_VSPHERE"
    modules = ("pyVmomi", "pyVim.connect")
    port = 443

    def __init__(self, connection: Mapping[str, Any]) -> None:
        super().__init__(connection)
        self.types, self._connect = self.loaded
        self.name = f"vSphere at {self.address}"

    @property
    def vim(self) -> Any:
        """The API's data types."""
        return self.types.vim

    def log_in(self) -> Any:
        """Connect; the session's id is also kept out of messages."""
        client = self._connect.SmartConnect(
            host=self.address,
            port=self.tcp_port,
            user=self.account.user,
            pwd=self.account.password.reveal(),
            sslContext=self.tls,
            httpConnectionTimeout=TIMEOUT_S,
        )
        self.hide(Secret(_cookie_of(client)))
        return client

    def log_out(self, client: Any) -> None:
        """End the session, if the server still has it."""
        self._connect.Disconnect(client)

    def fault(self, error: Exception) -> TareError:
        """Translate a fault of the API or of the connection."""
        vim, vmodl = self.types.vim.fault, self.types.vmodl
        # Printing a fault of the API shows all its fields; the message is one of them.
        words = error.msg if isinstance(error, vmodl.MethodFault) else error
        message = str(words or "") or type(error).__name__
        kind = type(error).__name__.rpartition(".")[2]
        if isinstance(error, vim.NotAuthenticated):
            return Expired(f"{self.name}: the session has expired")
        if isinstance(error, vim.InvalidLogin):
            return InputError(
                f"{self.name} rejects the login of {self.account.user}",
                f"check {self.prefix}_USER and {self.prefix}_PASSWORD, or the file of "
                "`credentials`",
            )
        if isinstance(error, vim.RestrictedVersion):
            return RequestRefused(f"{self.name}: {FREE}")
        if isinstance(error, vim.NoPermission):
            return RequestRefused(
                f"{self.name}: the account lacks {error.privilegeId or 'a right'}",
                "`tare help vsphere` lists what it needs",
            )
        if isinstance(error, vmodl.fault.ManagedObjectNotFound):
            return NoSuchObject(f"{self.name}: there is no such object, or it is gone")
        if isinstance(error, vim.InvalidPowerState):
            return RequestRefused(
                f"{self.name}: {WRONG_STATE} {error.existingState}, and would have to be "
                f"{error.requestedState or 'another'}"
            )
        if isinstance(error, (vim.TaskInProgress, vim.ConcurrentAccess)):
            return RequestRefused(f"{self.name}: {BUSY} ({kind})", transient=True)
        if isinstance(error, vmodl.MethodFault):
            return RequestRefused(f"{self.name} refuses: {kind}: {message}")
        if isinstance(error, ssl.SSLCertVerificationError):
            return InputError(
                f"the certificate of {self.address} is not trusted: {error.verify_message}",
                "name its CA's certificate, or its own, by `ca`",
            )
        if isinstance(error, (OSError, EOFError, http.client.HTTPException)):
            # The next boot may reach it again.
            return MachineFault(f"{self.name}: the connection broke: {message}", transient=True)
        return MachineFault(f"{self.name}: {kind}: {message}")

    async def task(self, begin: Callable[[Any], Any]) -> Any:
        """Begin a task, wait for its end, and return its result.

        Args:
            begin: Called with the service instance; returns the task.

        Raises:
            TareError: The task was refused, failed, or takes longer than :data:`TASK_S` seconds.
        """
        # Two calls: if the session expires while the task runs, the task must not begin again.
        begun = await self.call(lambda client: begin(client)._moId)

        def look(client: Any) -> dict[str, Any] | None:
            # # Request only some parts of `info`: pyVmomi may reject its `entity`, such as the one
            # that the simulator reports for a copied disk.
            task = self.vim.Task(begun, client._stub)
            info = properties(client, self.types, task, TASK_PROPERTIES)
            return info if info["info.state"] in ("success", "error") else None

        info = await wait_for(
            lambda: self.call(look), f"{self.name}: a task took longer than {TASK_S:g} s", TASK_S
        )
        if info["info.state"] == "error":
            raise self.scrub(self.fault(info["info.error"]))
        return info.get("info.result")

    async def upload(self, datacenter: str, datastore: str, path: str, content: bytes) -> None:
        """Put a file on a datastore, by the server's ``/folder`` over HTTPS.

        Args:
            datacenter: The datacenter's path in the API's form.
            datastore: The datastore's name.
            path: The file's path on the datastore.
            content: The file's bytes.

        Raises:
            TareError: The server refuses, or the connection breaks.
        """
        query = urllib.parse.urlencode({"dcPath": datacenter, "dsName": datastore})
        target = f"/folder/{urllib.parse.quote(path)}?{query}"

        def put(client: Any) -> None:
            link = http.client.HTTPSConnection(
                self.address, self.tcp_port, context=self.tls, timeout=TIMEOUT_S
            )
            try:
                link.request("PUT", target, content, {"Cookie": f"{_COOKIE}={_cookie_of(client)}"})
                answer = link.getresponse()
                answer.read()
            finally:
                link.close()
            if answer.status == http.client.UNAUTHORIZED:
                raise Expired(f"{self.name}: the session has expired")
            if answer.status not in (http.client.OK, http.client.CREATED):
                raise RequestRefused(
                    f"{self.name} does not accept {path.rpartition('/')[2]} on {datastore}: "
                    f"{answer.status} {answer.reason}",
                    "the account needs Datastore.FileManagement on it",
                )

        await self.call(put)


def _cookie_of(client: Any) -> str:
    """Return the session's id from ``vmware_soap_session="ID"; Path=/; …``."""
    return str(client._stub.cookie).split(";")[0].partition("=")[2].strip('"')
