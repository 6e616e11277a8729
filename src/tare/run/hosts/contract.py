"""The contract of a run's hosts, which may have to be rebooted for an arm.

A platform states in ``host_boot`` what the host must be booted with for its machines:

============== ==================================================================
``any``        whatever runs
``none``       a kernel without a hypervisor below it
``kvm``        a kernel with KVM
``xen``        Xen
``xen:credit`` Xen whose scheduler is the older credit scheduler (``sched=credit``)
``xen:rtds``   Xen whose scheduler is RTDS (``sched=rtds``), which Debian's is built without
other words    a hypervisor that some platform declares as its host's
``itself``     nothing: the machine takes the host's place
============== ==================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tare.hosts.ledger.ledger import LOCAL
from tare.registry import installed
from tare.run.hosts.booted import AS_IT_IS, booted_here

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tare.errors import HostFroze, MachineFault
    from tare.hosts import Host
    from tare.platforms.contract import Context, Platform
    from tare.run.probes.host_trace import HostTracing
    from tare.study.model.releases import Release
    from tare.study.planning.host_cpus import HostCpus

LOCAL_BOOT_S = 60.0
"""Seconds a machine may take until its agent says hello, on a host that is not emulated."""
REMOTE_MACHINE_S = 120.0


class PlannedHost(Protocol):
    """A host as planning needs it, whether it is contacted or not."""

    @property
    def name(self) -> str:
        """The host's name; equal for equal hosts."""
        ...

    @property
    def here(self) -> bool:
        """Whether it is this computer, or emulated on it."""
        ...

    @property
    def emulated(self) -> bool:
        """Whether the host itself is emulated, and with it all that runs on it."""
        ...

    @property
    def platforms(self) -> Mapping[str, Platform[Any]]:
        """The host's platforms by name."""
        ...

    @property
    def boot_s(self) -> float:
        """Seconds that a reboot of the host takes, for the plan's estimate."""
        ...

    @property
    def cpus(self) -> HostCpus:
        """The CPUs on which machines are placed."""
        ...

    @property
    def hypervisor(self) -> str:
        """The hypervisor below the host's kernel as it is booted now; empty: none."""
        ...

    @property
    def crowding(self) -> str:
        """The mark of all its arms if its CPUs share fewer real ones; empty: they do not."""
        ...

    def boot_of(self, platform: Platform[Any], options: Any, release: Release | None = None) -> str:
        """Return how the host has to be booted for a platform's machines; equal for equal boots.

        Args:
            platform: The platform.
            options: The arm's options.
            release: The arm's release of the distribution; only a lab uses it.
        """
        ...


class RunHost(PlannedHost, Protocol):
    """The host of a run, as the arms need it."""

    machine_s: float
    """Seconds a machine may take until its agent says hello."""
    counts_instructions: bool
    """Whether the host's time is virtual, so that its clock differs from this computer's."""

    @property
    def context(self) -> Context:
        """The context of the run itself: the host, or this computer if the host is emulated."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts that identify the host in a report."""
        ...

    @property
    def lost(self) -> asyncio.Future[MachineFault]:
        """A future that is set with the fault if the host as a whole is lost."""
        ...

    async def under(self, boot: str, block: int) -> Context:
        """Boot the host as wanted and return the context of its platforms.

        Args:
            boot: The result of :meth:`boot_of`.
            block: The current block; 0 while arms are checked.

        Raises:
            InputError: The host cannot be booted like this.
            MachineFault: It did not come up, or came up with another boot.
        """
        ...

    async def froze(self) -> HostFroze | None:
        """Check after a fault whether the host itself froze; return None if it did not.

        Only an emulated host can be found frozen; :meth:`under` then boots it again. A real host
        that is lost fails every operation that waits for it.
        """
        ...

    def tracing(self) -> AbstractAsyncContextManager[HostTracing]:
        """Open the recorder of the host's side of cells."""
        ...

    async def close(self) -> None:
        """Release the host."""
        ...


@asynccontextmanager
async def no_tracing(host: Host, reason: str) -> AsyncIterator[HostTracing]:
    """Record nothing of the host's side, for the given reason."""
    # Imported here and below, because a plan does not need the analysis of traces.
    from tare.run.probes.host_trace import HostTracing

    yield HostTracing(host, None, reason)


class LocalRunHost:
    """The computer that Tare runs on, which is never rebooted.

    Args:
        context: The context of its platforms.
        platforms: All platforms by name.
        facts: The facts that identify this computer.
    """

    name = LOCAL
    here = True
    emulated = False
    crowding = ""
    boot_s = 0.0
    machine_s = LOCAL_BOOT_S
    counts_instructions = False

    def __init__(
        self, context: Context, platforms: Mapping[str, Platform[Any]], facts: Mapping[str, Any]
    ) -> None:
        self.context = context
        self.platforms = platforms
        self.facts = facts
        self.hypervisor = booted_here(installed().hypervisors)
        self._lost: asyncio.Future[MachineFault] | None = None

    @property
    def cpus(self) -> HostCpus:
        """The CPUs that this process may use."""
        return self.context.host.topology()

    @property
    def lost(self) -> asyncio.Future[MachineFault]:
        """A future that is never set: losing this computer also ends Tare."""
        if self._lost is None:
            self._lost = asyncio.get_running_loop().create_future()
        return self._lost

    def boot_of(self, platform: Platform[Any], options: Any, release: Release | None = None) -> str:
        """Return :data:`AS_IT_IS`: the checks of platforms report what this computer lacks."""
        return AS_IT_IS

    async def under(self, boot: str, block: int) -> Context:
        """Return the context of its platforms."""
        return self.context

    async def froze(self) -> HostFroze | None:
        """Return None: it is not emulated."""
        return None

    def tracing(self) -> AbstractAsyncContextManager[HostTracing]:
        """Record with the kernel's tracer, if it is available."""
        from tare.run.probes.host_trace import host_tracing

        return host_tracing(self.context)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""
