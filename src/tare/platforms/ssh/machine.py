"""An existing machine during a batch: its agent, and its threads on the host that carries it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from tare.agent.client import Hello
from tare.errors import TareError
from tare.hosts import Host
from tare.hosts.address_pair import AddressPair
from tare.hosts.shielded import begun
from tare.hosts.trace.threads import run_delay, threads_of
from tare.platforms.contract import Machine
from tare.platforms.existing_network import Joining
from tare.platforms.linux.process_cost import vcpu_cost
from tare.platforms.linux.process_machine import ProcessMachine, is_any_stopped
from tare.platforms.qemu.guest_process import GuestProcess


class SshMachine(Machine):
    """An existing machine in which an agent of Tare runs.

    Args:
        inner: The agent, as a process of the machine.
        carrier: The process that runs the machine on its host; None if it was not found.
        host: The host that carries the machine.
        boot: The boot id that the machine's kernel reports.
        found: The facts that the machine shows, for the record.
        addresses: The addresses of the connection: as seen here, and as the machine reports them.
        joining: How the machine joins the network of the connection; None: no network is measured.
        held: Everything to release after the agent has ended: the connection and the agent's copy.
    """

    def __init__(
        self,
        inner: ProcessMachine,
        *,
        carrier: GuestProcess | None,
        host: Host,
        boot: str,
        found: Mapping[str, str],
        addresses: tuple[AddressPair, AddressPair],
        joining: Joining | None,
        held: AsyncExitStack,
    ) -> None:
        self.name = inner.name
        self.agent = inner.agent
        self.died = inner.died
        self.applied: Mapping[str, Any] = {}
        self._inner = inner
        self._carrier = carrier
        self._host = host
        self._boot = boot
        self._found = found
        self._addresses = addresses
        self._joining = joining
        self._held = held
        self._stopping: asyncio.Future[None] | None = None

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello; see :class:`tare.platforms.contract.Machine`."""
        hello = await self._inner.ready(timeout_s)
        carrier = {} if self._carrier is None else {"carrier": {"pid": self._carrier.pid}}
        facts = {"boot": self._boot, "found": dict(self._found), **carrier}
        self.applied = {**self._inner.applied, **facts}
        if self._joining is not None:
            await self._joining.join(self.name, *self._addresses, hello.proof)
        return hello

    async def stop(self) -> None:
        """End the agent and remove its copy; the machine itself is left unchanged."""
        if self._stopping is None:
            # Shielded: once begun, stopping continues even if the caller is cancelled.
            self._stopping = begun(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        try:
            await self._inner.stop()
        finally:
            await self._held.aclose()

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the threads of its vCPUs on the host that carries it; empty if not seen."""
        return () if self._carrier is None else self._carrier.vcpus

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the vCPUs' threads, because everything in the machine runs on them."""
        return await self.vcpu_threads()

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of the machine's threads have had on its host."""
        return (await run_delay(self._host, threads))[0]

    async def threads(self) -> dict[int, str]:
        """Return the names of the machine's threads on the host that carries it, by id."""
        if self._carrier is None:
            return {}
        return await threads_of(self._host, [self._carrier.pid])

    async def host_cost(self) -> dict[str, float]:
        """Return the machine's cost to its host so far; empty if the host does not show it."""
        if self._carrier is None:
            return {}
        with contextlib.suppress(OSError, IndexError, TareError):
            return await vcpu_cost(self._host, self._carrier.pid, self._carrier.vcpus)
        return {}

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the machine drop its cached files; its host keeps its own cache."""
        return await self._inner.forget_disk()

    async def stopped(self) -> bool:
        """Return whether the machine's process on its host is stopped; False if it is not seen."""
        return self._carrier is not None and await is_any_stopped(self._host, [self._carrier.pid])

    async def disk_moved(self) -> Mapping[str, float]:
        """Return the traffic of the loop device under its disk, as its kernel counts it."""
        return await self._inner.disk_moved()

    def console_tail(self) -> tuple[str, ...]:
        """Return the agent's last output outside its channel."""
        return self._inner.console_tail()
