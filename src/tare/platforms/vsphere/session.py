"""A session with ESXi or vCenter by pyVmomi, and what its faults mean.

The faults are those of the vSphere Web Services API reference, developer.broadcom.com.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret, credentials
from tare.platforms.vendors.session import Expired, Missing, Refused, Session, load_library
from tare.platforms.vendors.tls import verifying
from tare.platforms.vsphere.inventory import properties

PREFIX, EXTRA, PRODUCT = "TARE_VSPHERE", "vsphere", "vSphere"
PORT = 443
TIMEOUT_S = 60
TASK_S = 300.0
POLL_S = 0.2
TOLD = ("info.state", "info.result", "info.error", "info.descriptionId")
"""What is asked of a task."""
FREE = (
    "the licence of this ESXi forbids changes by its API (free ESXi): measure a VM that exists by "
    "`platform: ssh`, or license the host"
)
WRONG_STATE = "the virtual machine is"
BUSY = "something else changes the same object"
"""Begin what is told of faults that another state, or the end of another task, ends."""
_COOKIE = "vmware_soap_session"


class VsphereSession(Session[Any]):
    """A login at ESXi or vCenter; its client is pyVmomi's ``ServiceInstance``.

    Args:
        way: As :meth:`tare.platforms.vendors.options.VendorOptions.way` returns it.

    Raises:
        InputError: The library, the credentials or the certificates are not there.
    """

    def __init__(self, way: Mapping[str, Any]) -> None:
        self.types, self._connect = load()
        self._who = credentials(PREFIX, way["credentials"])
        self._tls = verifying(way["ca"])
        self._address, self._port = str(way["address"]), way["port"] or PORT
        super().__init__(f"vSphere at {self._address}", self._who.password)

    @property
    def vim(self) -> Any:
        """The API's data types."""
        return self.types.vim

    def log_in(self) -> Any:
        """Connect; the session's id is kept out of messages too."""
        client = self._connect.SmartConnect(
            host=self._address,
            port=self._port,
            user=self._who.user,
            pwd=self._who.password.reveal(),
            sslContext=self._tls,
            httpConnectionTimeout=TIMEOUT_S,
        )
        self.hide(Secret(_cookie_of(client)))
        return client

    def log_out(self, client: Any) -> None:
        """End the session, where the server still knows it."""
        self._connect.Disconnect(client)

    def fault(self, error: Exception) -> TareError:
        """Return what a fault of the API, or of the connection, means."""
        vim, vmodl = self.types.vim.fault, self.types.vmodl
        # A fault of the API prints as all its fields; its message is one of them.
        words = error.msg if isinstance(error, vmodl.MethodFault) else error
        said = str(words or "") or type(error).__name__
        kind = type(error).__name__.rpartition(".")[2]
        if isinstance(error, vim.NotAuthenticated):
            return Expired(f"{self.name}: the session has expired")
        if isinstance(error, vim.InvalidLogin):
            return InputError(
                f"{self.name} does not take the login of {self._who.user}",
                f"check {PREFIX}_USER and {PREFIX}_PASSWORD, or the file named by `credentials`",
            )
        if isinstance(error, vim.RestrictedVersion):
            return Refused(f"{self.name}: {FREE}")
        if isinstance(error, vim.NoPermission):
            return Refused(
                f"{self.name}: the account lacks {error.privilegeId or 'a right'}",
                "docs/owning.md lists what it needs",
            )
        if isinstance(error, vmodl.fault.ManagedObjectNotFound):
            return Missing(f"{self.name}: there is no such object (any more)")
        if isinstance(error, vim.InvalidPowerState):
            return Refused(
                f"{self.name}: {WRONG_STATE} {error.existingState}, and would have to be "
                f"{error.requestedState or 'another'}"
            )
        if isinstance(error, (vim.TaskInProgress, vim.ConcurrentAccess)):
            return Refused(f"{self.name}: {BUSY} ({kind})", transient=True)
        if isinstance(error, vmodl.MethodFault):
            return Refused(f"{self.name} refuses: {kind}: {said}")
        if isinstance(error, ssl.SSLCertVerificationError):
            return InputError(
                f"the certificate of {self._address} is not trusted: {error.verify_message}",
                "name its CA's certificate, or its own, by `ca`",
            )
        if isinstance(error, (OSError, EOFError, http.client.HTTPException)):
            # Another boot may well find it again.
            return MachineFault(f"{self.name}: the connection broke: {said}", transient=True)
        return MachineFault(f"{self.name}: {kind}: {said}")

    async def task(self, begin: Callable[[Any], Any]) -> Any:
        """Begin a task and wait for its end; returns its result.

        Args:
            begin: Called with the service instance; returns the task.

        Raises:
            TareError: It was refused, failed half-way, or takes longer than :data:`TASK_S`.
        """
        # Two calls: a session that expires while the task runs must not begin it again.
        begun = await self.call(lambda client: begin(client)._moId)
        return await self.call(
            lambda client: self._finished(client, self.vim.Task(begun, client._stub))
        )

    def _finished(self, client: Any, task: Any) -> Any:
        deadline = time.monotonic() + TASK_S
        while time.monotonic() < deadline:
            # Not all of `info`: its `entity` may be none that pyVmomi takes, as the simulator's
            # is of a copied disk.
            info = properties(client, self.types, task, TOLD)
            if info["info.state"] == "success":
                return info.get("info.result")
            if info["info.state"] == "error":
                raise info["info.error"]
            time.sleep(POLL_S)
        what = info.get("info.descriptionId", "a task")
        raise MachineFault(f"{self.name}: {what} takes longer than {TASK_S:g} s")

    async def upload(self, datacenter: str, datastore: str, path: str, content: bytes) -> None:
        """Put a file on a datastore, by the server's ``/folder`` over HTTPS.

        Args:
            datacenter: The datacenter's path, as the API has it.
            datastore: The datastore's name.
            path: Where on it.
            content: The file's bytes.

        Raises:
            TareError: The server refuses, or the connection breaks.
        """
        query = urllib.parse.urlencode({"dcPath": datacenter, "dsName": datastore})
        target = f"/folder/{urllib.parse.quote(path)}?{query}"

        def put(client: Any) -> None:
            link = http.client.HTTPSConnection(
                self._address, self._port, context=self._tls, timeout=TIMEOUT_S
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
                raise Refused(
                    f"{self.name} does not take {path.rpartition('/')[2]} on {datastore}: "
                    f"{answer.status} {answer.reason}",
                    "the account needs Datastore.FileManagement on it",
                )

        await self.call(put)


def load() -> tuple[Any, Any]:
    """Return pyVmomi with all the API's data types, and the module that connects.

    Raises:
        InputError: They are not installed; the hint is the command that installs them.
    """
    return load_library("pyVmomi", EXTRA, PRODUCT), load_library("pyVim.connect", EXTRA, PRODUCT)


def _cookie_of(client: Any) -> str:
    """Return the session's id from ``vmware_soap_session="ID"; Path=/; …``."""
    return str(client._stub.cookie).split(";")[0].partition("=")[2].strip('"')
