"""Xen's toolstack on a host: ``xl`` run in dom0, and domains listed, unpaused and destroyed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Completed, Host
from tare.hosts.ledger.undoing import require_own
from tare.platforms import instruction_time as counting
from tare.platforms.contract import Resource
from tare.platforms.xen import output as xen_output
from tare.platforms.xen.output import Domain

XL = "xl"
LIST = (XL, "list", "-v")
"""Lists all domains with the CPU time of each (``Time(s)``, xl(1))."""
INSTALL = "apt-get install --no-remove xen-system-amd64, then reboot and choose Xen in GRUB"
START_XENSTORED = "start Xen's services, for example: systemctl start xenstored xenconsoled"
COMMAND_S = 60.0
"""Seconds; longer than any xl command takes, even under emulation, so a longer one hangs."""
DESTROY_S = 60.0
# The command's end is reported over the network, which must be quiet while the guest boots. The
# pause delays that report; once the guest is idle, the rest of the pause passes at once.
_UNPAUSED = f'{XL} unpause "$1" && sleep 10'


async def xl(host: Host, *arguments: str, timeout_s: float = COMMAND_S) -> Completed:
    """Run ``xl`` to its end; an exit status other than 0 raises no error.

    Raises:
        InputError: ``xl`` is not installed.
        MachineFault: It does not end, because xenstored does not answer it.
    """
    try:
        return await host.run([XL, *arguments], timeout_s=timeout_s)
    except InputError as error:
        raise InputError("Xen's tools are not installed here: there is no xl", INSTALL) from error
    except MachineFault as fault:
        if not fault.transient or "did not end" not in fault.message:
            raise
        raise MachineFault(
            f"`xl {' '.join(arguments[:1])}` did not end within {timeout_s:g} s: "
            "Xen's toolstack does not answer",
            START_XENSTORED,
        ) from fault


async def asked(host: Host, *arguments: str) -> str:
    """Run ``xl`` and return its output.

    Raises:
        InputError: ``xl`` is not installed.
        MachineFault: The command failed (with Xen's message), or timed out.
    """
    done = await xl(host, *arguments)
    if not done.ok:
        answer = (done.stderr + b"\n" + done.stdout).decode(errors="replace")
        words = xen_output.reason(answer) or "no reason"
        raise MachineFault(f"Xen does not run `xl {arguments[0]}`; it reports: {words}")
    return done.stdout.decode(errors="replace")


async def all_domains(host: Host) -> tuple[Domain, ...]:
    """Return all domains, even half-built and dying ones; raises the errors of :func:`asked`."""
    return xen_output.domains(await asked(host, *LIST[1:]))


async def find_domain(host: Host, name: str, uuid: str) -> Domain | None:
    """Return the domain with this UUID, or with this name if the UUID is unknown; None if none."""
    for domain in await all_domains(host):
        if domain.id and (domain.uuid == uuid if domain.uuid and uuid else domain.name == name):
            return domain
    return None


async def unpause(host: Host, domain: int, *, counted_by: Path | None = None) -> None:
    """Let a paused domain run.

    Args:
        host: The host.
        domain: The domain's number.
        counted_by: The agent's program on the host, if the host's time counts instructions. The
            domain then starts at the next full ten minutes: its clock thus has the same phase
            relative to the host's timers at each boot. None otherwise.

    Raises:
        MachineFault: As for :func:`asked`.
    """
    if counted_by is None:
        await asked(host, "unpause", str(domain))
        return
    call = [str(counted_by), "exec", "--aligned", "--", "sh", "-c", _UNPAUSED, "sh", str(domain)]
    done = await host.run(call, timeout_s=counting.BEGUN_S)
    if not done.ok:
        raise MachineFault(f"Xen does not run `xl unpause`; it reports: {done.words()}")


class DomainResource(Resource):
    """A domain that belongs to Tare.

    Args:
        host: The host.
        name: Its name.
        uuid: Its UUID, which identifies it if both it and the domain's UUID are known.
        build: Builds it, paused; None if it is only to be found and removed.
    """

    kind = "domain"
    removal_s = 15.0

    def __init__(
        self, host: Host, name: str, uuid: str, build: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._host = host
        self._name = name
        self._uuid = uuid
        self._build = build
        self._refusal = ""

    @property
    def details(self) -> Mapping[str, Any]:
        """The domain's name and UUID, for the ledger."""
        return {"id": self._name, "uuid": self._uuid}

    @property
    def words(self) -> str:
        """The domain in words, by its name."""
        return f"domain {self._name}"

    @property
    def removed(self) -> str:
        """A sentence for messages, after the domain was destroyed."""
        return f"Destroyed {self.words}."

    async def create(self) -> None:
        """Build the domain, paused; raises MachineFault with Xen's message."""
        assert self._build is not None
        await self._build()

    async def exists(self) -> bool:
        """Check whether Xen lists the domain, even half-built or dying."""
        return await self._found() is not None

    async def remove(self) -> None:
        """Destroy the domain; if Xen refuses, it still exists afterwards."""
        domain = await self._found()
        if domain is not None:
            done = await xl(self._host, "destroy", str(domain.id), timeout_s=DESTROY_S)
            answer = done.stderr.decode(errors="replace")
            self._refusal = "" if done.ok else f": {xen_output.reason(answer)}"

    async def still_there(self) -> MachineFault:
        """Return a fault with the domain's state, the memory that it holds, and what to do."""
        left = await self._found()
        if left is None:
            return await super().still_there()
        return MachineFault(
            f"the {self.words} (id {left.id}) survives its destruction: it is {left.words}, "
            f"and holds {left.memory >> 20} MiB{self._refusal}",
            f"look for what holds its memory (`xl debug-keys q; xl dmesg`), then `xl destroy "
            f"{left.id}` and `tare clean`; a reboot of the host ends it in any case",
        )

    async def _found(self) -> Domain | None:
        return await find_domain(self._host, self._name, self._uuid)


def domain_of(host: Host, details: Mapping[str, Any]) -> DomainResource:
    """Return the domain that an entry of the ledger names.

    Raises:
        NotOwn: Its name is not one of Tare's.
    """
    name = str(details["id"])
    require_own(name)
    return DomainResource(host, name, str(details.get("uuid", "")))
