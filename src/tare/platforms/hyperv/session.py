"""A session with a Hyper-V host: a PowerShell shell over WinRM, by pypsrp."""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.hyperv.command import Cmdlet, Long, PsObject
from tare.platforms.vendors.session import AccountSession, Expired, NoSuchObject, RequestRefused

REQUEST_S, POLL_S = 30, 4
WORK_S = 900.0
RIGHTS = "`tare help hyper-v` lists the rights that it needs"
# Codes of WinRM's faults ([MS-WSMV], wsmerror.h).
NO_SHELL, DENIED = 0x8033805B, 5
# Prefixes of PowerShell's error ids, which are the same in every language of the host.
_MISSING = ("ObjectNotFound", "PathNotFound", "ItemNotFound")
_REFUSED = ("InvalidState", "AccessDenied", "ObjectInUse")


class Failed(MachineFault):
    """A command failed in PowerShell; the session continues."""


class HypervSession(AccountSession[Any]):
    """A session with a host, with one shell; see :class:`AccountSession`.

    Args:
        connection: As :meth:`tare.platforms.hyperv.options.HypervOptions.connection` returns it.
    """

    product, extra, prefix = "Hyper-V", "hyperv", "TARE_HYPERV"
    modules = ("pypsrp.powershell", "pypsrp.wsman", "pypsrp.serializer", "pypsrp.exceptions")
    port = 5986

    def __init__(self, connection: Mapping[str, Any]) -> None:
        super().__init__(connection)
        self._shells, self._transport, self._values, self._faults = self.loaded
        self._authentication = connection["authentication"]

    @classmethod
    def load(cls) -> tuple[Any, ...]:
        """Import pypsrp, and silence its debug output, which repeats the data that it sends."""
        for name in ("pypsrp", "spnego"):
            logging.getLogger(name).setLevel(logging.WARNING)
        return super().load()

    def log_in(self) -> Any:
        """Open a pool of one runspace, which runs requests one by one, and return it."""
        pool = self._shells.RunspacePool(
            self._transport.WSMan(
                self.address,
                port=self.tcp_port,
                username=self.account.user,
                password=self.account.password.reveal(),
                ssl=True,
                auth=self._authentication,
                cert_validation=True if self.ca is None else self.ca,
                connection_timeout=REQUEST_S,
                read_timeout=REQUEST_S,
            )
        )
        try:
            pool.open()
        except Exception:
            # A shell that was only partly created would remain for hours.
            with contextlib.suppress(Exception):
                self.log_out(pool)
            raise
        return pool

    def log_out(self, client: Any) -> None:
        """Close the shell."""
        try:
            client.close()
        finally:
            client.connection.close()

    async def run(self, *pipeline: Cmdlet) -> list[PsObject]:
        """Run a pipeline and return its objects.

        The pipeline is started again if the shell was already gone. If the shell ends while the
        pipeline runs, its outcome is unknown, and a fault is raised.

        Raises:
            NoSuchObject: There is no such object.
            RequestRefused: The object's state or the account's rights do not allow it.
            Failed: PowerShell reports that the pipeline failed.
            MachineFault: The pipeline took longer than :data:`WORK_S` seconds, or the connection
                broke.
        """
        running = await self.call(lambda pool: self._begun(pool, pipeline))
        deadline = time.monotonic() + WORK_S
        while not await self.call(lambda _: self._ended(running)):
            if time.monotonic() > deadline:
                raise MachineFault(f"{self.name} did not end {pipeline[-1].name} in {WORK_S:g} s")
        if running.streams.error or running.had_errors:
            raise self.scrub(self._refusal(running.streams.error, pipeline))
        return [PsObject(_properties(each)) for each in running.output if each is not None]

    async def values(self, *pipeline: Cmdlet) -> list[Any]:
        """Run a pipeline that returns plain values, such as ``Test-Path``; see :meth:`run`."""
        return [each.text(VALUE) for each in await self.run(*pipeline)]

    def _begun(self, pool: Any, pipeline: Sequence[Cmdlet]) -> Any:
        running = self._shells.PowerShell(pool)
        for each in pipeline:
            if each.is_script:
                running.add_script(each.name)
            else:
                running.add_cmdlet(each.name)
            for name, value in each.parameters.items():
                running.add_parameter(name, self._sent(value))
        # Omit the invocation's details, because errors would repeat the parameters.
        running.begin_invoke(remote_stream_options=0)
        return running

    def _sent(self, value: Any) -> Any:
        return self._values.TaggedValue("I64", value.value) if isinstance(value, Long) else value

    def _ended(self, running: Any) -> bool:
        try:
            running.poll_invoke(timeout=POLL_S)
            if running.state == self._shells.PSInvocationState.RUNNING:
                return False
            running.close()
        except Exception as error:
            fault = self.fault(error)
            if isinstance(fault, Expired):
                raise MachineFault(f"the shell at {self.name} ended while it worked") from None
            raise
        return True

    def fault(self, error: Exception) -> TareError:
        """Translate an error of pypsrp, or of the requests library that it uses."""
        web = importlib.import_module("requests.exceptions")
        faults = self._faults
        if isinstance(error, web.SSLError):
            return self.untrusted()
        if isinstance(error, OSError):
            # requests' errors are OSErrors, and repeat the whole URL.
            return self.broken(error)
        if isinstance(error, faults.AuthenticationError) or _is_of(error, "spnego"):
            return self.rejected(
                f"check {self.prefix}_USER and {self.prefix}_PASSWORD, or the file of "
                "`credentials`; `authentication` says how they are proved"
            )
        if isinstance(error, faults.WSManFaultError):
            return self._winrm(error)
        if isinstance(error, faults.InvalidRunspacePoolStateError):
            return Expired(f"the shell at {self.name} has ended")
        if isinstance(error, faults.WinRMTransportError):
            # The error's message is the whole answer, which may be a proxy's page.
            return MachineFault(f"{self.name} answered HTTP {error.code}")
        return MachineFault(f"{self.name}: {type(error).__name__}: {error}")

    def _winrm(self, error: Any) -> TareError:
        words = " ".join(str(error.reason or error.provider_fault or "").split())
        if error.code == NO_SHELL:
            return Expired(f"the shell at {self.name} has ended")
        if error.code == DENIED:
            return InputError(
                f"{self.name} lets {self.account.user} open no shell: {words}",
                "add the account to the host's Remote Management Users; " + RIGHTS,
            )
        return MachineFault(f"{self.name}: WinRM: {words or error.code}")

    def _refusal(self, errors: Sequence[Any], pipeline: Sequence[Cmdlet]) -> MachineFault:
        """Translate PowerShell's last error record."""
        if not errors:
            return Failed(f"{self.name}: {pipeline[-1].name} failed without a reason")
        error = errors[-1]
        known = str(error.fq_error or "")
        code, _, where = known.partition(",")
        message = f"{self.name}: {' '.join(_words(error).split())} ({known})"
        if code == "CommandNotFoundException":
            return Failed(message, "on the host: Install-WindowsFeature -Name Hyper-V-PowerShell")
        if "Unauthorized" in known or "AccessDenied" in known or "PermissionDenied" in known:
            return RequestRefused(message, RIGHTS)
        if code in _REFUSED:
            return RequestRefused(message)
        # For an unknown VM, Get-VM reports an invalid parameter.
        if code in _MISSING or (code == "InvalidParameter" and where.endswith(".GetVM")):
            return NoSuchObject(message)
        return Failed(message)


VALUE = "the value itself"
"""The name of the property that holds a plain value in a :class:`PsObject`."""


def _properties(found: Any) -> Mapping[str, Any]:
    try:
        return {**found.adapted_properties, **found.extended_properties}
    except AttributeError:
        return {VALUE: found}


def _words(error: Any) -> str:
    """Return an error record's message, which may differ from the message of its exception."""
    exception = error.exception
    message = _properties(exception).get("Message") if exception is not None else None
    return str(error.details_message or message or exception or "")


def _is_of(error: Exception, package: str) -> bool:
    return type(error).__module__.partition(".")[0] == package
