"""Where a run is carried out: a host that may have to be booted otherwise for each arm.

A platform says in ``boot_of(options)`` what the host must be booted with for its machines:

============== ==================================================================
``any``        whatever runs (what a platform without ``boot_of`` needs)
``none``       a kernel without a hypervisor below it
``kvm``        a kernel with KVM
``xen``        Xen
``xen:credit`` Xen whose scheduler is the older credit scheduler (``sched=credit``)
============== ==================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tare.run.hostside import HostTracing, host_tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tare.errors import MachineFault
    from tare.hosts import Host
    from tare.platforms.base import Context, Platform
    from tare.scenarios.placement import HostCpus

ANY = "any"
LOCAL_BOOT_S = 60.0
"""Seconds a machine may take until its agent says hello, on a host that is not emulated."""
AFAR_BOOT_S = 120.0


class Station(Protocol):
    """The host of a run, as the arms need it."""

    emulated: bool
    """Whether the host itself is emulated, and with it all that runs on it."""
    platforms: Mapping[str, Platform]
    """The platforms by name, as they are here."""
    boot_s: float
    """Seconds it takes to boot the host otherwise, for the plan's estimate."""
    machine_s: float
    """Seconds a machine may take until its agent says hello."""
    counts_instructions: bool
    """Whether the host's time is virtual, so that its clock runs otherwise than this computer's."""

    @property
    def context(self) -> Context:
        """Where the run's own things are: the host, or this computer where that is emulated."""
        ...

    @property
    def cpus(self) -> HostCpus:
        """The CPUs on which machines are placed."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What identifies the host in a report."""
        ...

    @property
    def lost(self) -> asyncio.Future[MachineFault]:
        """Set if the host is lost as a whole, with what became of it."""
        ...

    def boot_of(self, platform: Platform, options: Any) -> str:
        """Return how the host has to be booted for a platform's machines; equal for equal hosts."""
        ...

    async def under(self, boot: str, block: int) -> Context:
        """Return where platforms work once the host is booted as wanted.

        Args:
            boot: As :meth:`boot_of` returned it.
            block: The block that is under way; 0 while arms are checked.

        Raises:
            InputError: It cannot be booted so.
            MachineFault: It did not come up, or came up otherwise.
        """
        ...

    def tracing(self) -> AbstractAsyncContextManager[HostTracing]:
        """Hold what the host's side of cells is recorded with."""
        ...

    async def close(self) -> None:
        """Give the host back."""
        ...


def wanted_boot(platform: Platform, options: Any) -> str:
    """Return what a platform itself says of how the host is to be booted."""
    asked: Callable[[Any], str] | None = getattr(platform, "boot_of", None)
    return ANY if asked is None else asked(options)


@asynccontextmanager
async def no_tracing(host: Host, reason: str) -> AsyncIterator[HostTracing]:
    """Record nothing of the host's side, and say why."""
    yield HostTracing(host, None, reason)


class LocalStation:
    """The computer that Tare runs on, which is never booted otherwise.

    Args:
        context: Where platforms work.
        platforms: All platforms by name.
        facts: What identifies this computer.
    """

    emulated = False
    boot_s = 0.0
    machine_s = LOCAL_BOOT_S
    counts_instructions = False

    def __init__(
        self, context: Context, platforms: Mapping[str, Platform], facts: Mapping[str, Any]
    ) -> None:
        self.context = context
        self.platforms = platforms
        self.facts = facts
        self._lost: asyncio.Future[MachineFault] | None = None

    @property
    def cpus(self) -> HostCpus:
        """The CPUs that this process may use."""
        return self.context.host.topology()

    @property
    def lost(self) -> asyncio.Future[MachineFault]:
        """Never set: what loses this computer ends Tare too."""
        if self._lost is None:
            self._lost = asyncio.get_running_loop().create_future()
        return self._lost

    def boot_of(self, platform: Platform, options: Any) -> str:
        """Return the same for all: a platform's check says what this computer lacks."""
        return ""

    async def under(self, boot: str, block: int) -> Context:
        """Return where platforms work."""
        return self.context

    def tracing(self) -> AbstractAsyncContextManager[HostTracing]:
        """Record with the kernel's tracer, where it can be had."""
        return host_tracing(self.context)

    async def close(self) -> None:
        """Nothing is to be given back."""
