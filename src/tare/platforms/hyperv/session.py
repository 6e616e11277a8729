"""A session with a Hyper-V host: a shell of PowerShell's over WinRM, by pypsrp."""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.hyperv.command import Cmdlet, Long, Told
from tare.platforms.vendors.credentials import credentials
from tare.platforms.vendors.session import Expired, Missing, Refused, Session, load_library
from tare.platforms.vendors.tls import verifying

PREFIX, EXTRA, PRODUCT = "TARE_HYPERV", "hyperv", "Hyper-V"
PORT = 5986
REQUEST_S, POLL_S = 30, 4
WORK_S = 900.0
RIGHTS = "docs/owning.md lists the rights that it takes"
# WinRM's faults ([MS-WSMV], wsmerror.h).
NO_SHELL, NOTHING_YET, DENIED = 0x8033805B, 0x80338029, 5
# How PowerShell's error ids begin, whatever language the host speaks.
_MISSING = ("ObjectNotFound", "PathNotFound", "ItemNotFound")
_REFUSED = ("InvalidState", "AccessDenied")


class Failed(MachineFault):
    """What PowerShell says of a command that failed, and nothing worse: the session goes on."""


class HypervSession(Session[Any]):
    """A login at a host, with one shell.

    Args:
        way: As :meth:`tare.platforms.hyperv.options.HypervOptions.way` returns it.

    Raises:
        InputError: There are no credentials, no such CA, or the library is not installed.
    """

    def __init__(self, way: Mapping[str, Any]) -> None:
        load()
        self._shells = importlib.import_module("pypsrp.powershell")
        self._transport = importlib.import_module("pypsrp.wsman")
        self._values = importlib.import_module("pypsrp.serializer")
        self._faults = importlib.import_module("pypsrp.exceptions")
        self._way = dict(way)
        self._who = credentials(PREFIX, way["credentials"])
        # Whether there are certificates in it is told now: requests speaks of a missing file later.
        verifying(way["ca"])
        self._ca = True if way["ca"] is None else str(Path(way["ca"]).expanduser())
        super().__init__(str(way["address"]), self._who.password)

    def log_in(self) -> Any:
        """Return a pool of one runspace, open: what is asked of it is done one by one."""
        pool = self._shells.RunspacePool(
            self._transport.WSMan(
                self._way["address"],
                port=self._way["port"] or PORT,
                username=self._who.user,
                password=self._who.password.reveal(),
                ssl=True,
                auth=self._way["authentication"],
                cert_validation=self._ca,
                connection_timeout=REQUEST_S,
                read_timeout=REQUEST_S,
            )
        )
        try:
            pool.open()
        except Exception:
            # A shell that was made half-way would stay for hours.
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

    async def run(self, *pipeline: Cmdlet) -> list[Told]:
        """Carry a pipeline out, and return its objects.

        It is begun once more where the shell was gone already; where the shell goes while it runs,
        nobody knows what became of it, and that is told.

        Raises:
            Missing: There is no such object.
            Refused: Its state or the account's rights do not allow it.
            Failed: PowerShell says that it failed.
            MachineFault: It took longer than :data:`WORK_S` seconds, or the connection broke.
        """
        running = await self.call(lambda pool: self._begun(pool, pipeline))
        deadline = time.monotonic() + WORK_S
        while not await self.call(lambda _: self._ended(running)):
            if time.monotonic() > deadline:
                raise MachineFault(f"{self.name} did not end {pipeline[-1].name} in {WORK_S:g} s")
        if running.streams.error or running.had_errors:
            raise self._scrubbed(self._refusal(running.streams.error, pipeline))
        return [Told(_properties(each)) for each in running.output if each is not None]

    async def values(self, *pipeline: Cmdlet) -> list[Any]:
        """Carry out a pipeline that returns plain values, as ``Test-Path`` does; as :meth:`run`."""
        return [told.text(VALUE) for told in await self.run(*pipeline)]

    def _begun(self, pool: Any, pipeline: Sequence[Cmdlet]) -> Any:
        running = self._shells.PowerShell(pool)
        for each in pipeline:
            if each.is_script:
                running.add_script(each.name)
            else:
                running.add_cmdlet(each.name)
            for name, value in each.parameters.items():
                running.add_parameter(name, self._sent(value))
        # Without what it was invoked with: errors would bring the parameters back.
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
        """Return what an error of pypsrp, or of requests below it, means."""
        web = importlib.import_module("requests.exceptions")
        faults = self._faults
        if isinstance(error, web.SSLError):
            return InputError(
                f"the certificate of {self.name} is not trusted",
                "name its CA's certificate, or its own, by `ca`",
            )
        if isinstance(error, OSError):
            # requests' own errors are OSErrors, and repeat the address with whatever is in it.
            return MachineFault(f"the connection to {self.name} broke: {type(error).__name__}")
        if isinstance(error, faults.AuthenticationError) or _is_of(error, "spnego"):
            return InputError(
                f"{self.name} does not let {self._who.user} in",
                f"check {PREFIX}_USER and {PREFIX}_PASSWORD, or the file of `credentials`; "
                "`authentication` says how they are proved",
            )
        if isinstance(error, faults.WSManFaultError):
            return self._winrm(error)
        if isinstance(error, faults.InvalidRunspacePoolStateError):
            return Expired(f"the shell at {self.name} has ended")
        if isinstance(error, faults.WinRMTransportError):
            # Its words are the whole answer, which may be a proxy's page.
            return MachineFault(f"{self.name} answered HTTP {error.code}")
        return MachineFault(f"{self.name}: {type(error).__name__}: {error}")

    def _winrm(self, error: Any) -> TareError:
        words = " ".join(str(error.reason or error.provider_fault or "").split())
        if error.code == NO_SHELL:
            return Expired(f"the shell at {self.name} has ended")
        if error.code == DENIED:
            return InputError(
                f"{self.name} lets {self._who.user} open no shell: {words}",
                "add the account to the host's Remote Management Users; " + RIGHTS,
            )
        return MachineFault(f"{self.name}: WinRM: {words or error.code}")

    def _refusal(self, errors: Sequence[Any], pipeline: Sequence[Cmdlet]) -> MachineFault:
        """Return what PowerShell's last error record means."""
        if not errors:
            return Failed(f"{self.name}: {pipeline[-1].name} failed and did not say why")
        error = errors[-1]
        known = str(error.fq_error or "")
        code, _, where = known.partition(",")
        told = f"{self.name}: {' '.join(_words(error).split())} ({known})"
        if code == "CommandNotFoundException":
            return Failed(told, "on the host: Install-WindowsFeature -Name Hyper-V-PowerShell")
        if "Unauthorized" in known or "AccessDenied" in known or "PermissionDenied" in known:
            return Refused(told, RIGHTS)
        if code in _REFUSED:
            return Refused(told)
        # Of a VM that it does not know, Get-VM says that the parameter is wrong.
        if code in _MISSING or (code == "InvalidParameter" and where.endswith(".GetVM")):
            return Missing(told)
        return Failed(told)


VALUE = "the value itself"
"""The property by which :class:`Told` has an object that has none."""


def _properties(told: Any) -> Mapping[str, Any]:
    try:
        return {**told.adapted_properties, **told.extended_properties}
    except AttributeError:
        return {VALUE: told}


def _words(error: Any) -> str:
    """Return an error record's message, which may be another one than its exception's."""
    exception = error.exception
    told = _properties(exception).get("Message") if exception is not None else None
    return str(error.details_message or told or exception or "")


def _is_of(error: Exception, package: str) -> bool:
    return type(error).__module__.partition(".")[0] == package


def load() -> Any:
    """Return the library; raises InputError, with the command that installs it, without one."""
    library = load_library("pypsrp", EXTRA, PRODUCT)
    # Its notes for debugging repeat what is sent, which holds keys.
    for name in ("pypsrp", "spnego"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return library
