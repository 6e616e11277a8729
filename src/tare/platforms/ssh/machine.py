"""One machine that exists, for the time of a batch: its agent, and its threads on its carrier."""

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
    """A machine that exists, with an agent of Tare's in it.

    Args:
        inner: The agent, as a process of the machine.
        carrier: The process that the machine is on its host; None if it was not seen.
        host: That host.
        boot: Which boot of the machine it is, by its kernel's id.
        found: What the machine shows of itself, for the record.
        addresses: Those of the connection: as seen here, and as the machine reports them.
        joining: How it joins the network of that connection; None: it is measured over none.
        held: What to give back once the agent has ended: the connection, the agent's copy.
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
        """End the agent and take back its copy; the machine itself is left unchanged."""
        if self._stopping is None:
            # Shielded: a stop that has begun continues when its caller is cancelled.
            self._stopping = begun(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        try:
            await self._inner.stop()
        finally:
            await self._held.aclose()

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the threads of its vCPUs on the host that carries it; none where not seen."""
        return () if self._carrier is None else self._carrier.vcpus

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the vCPUs' threads: whatever the machine runs, it runs on them."""
        return await self.vcpu_threads()

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have had on its host."""
        return (await run_delay(self._host, threads))[0]

    async def threads(self) -> dict[int, str]:
        """Return the names of its threads on the host that carries it, by id."""
        if self._carrier is None:
            return {}
        return await threads_of(self._host, [self._carrier.pid])

    async def host_cost(self) -> dict[str, float]:
        """Return what it cost its host so far; nothing if the host does not show it."""
        if self._carrier is None:
            return {}
        with contextlib.suppress(OSError, IndexError, TareError):
            return await vcpu_cost(self._host, self._carrier.pid, self._carrier.vcpus)
        return {}

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the machine forget what it caches of files; what its host caches stays."""
        return await self._inner.forget_disk()

    async def stopped(self) -> bool:
        """Return whether the process that it is on its host is stopped; False where not seen."""
        return self._carrier is not None and await is_any_stopped(self._host, [self._carrier.pid])

    async def disk_moved(self) -> Mapping[str, float]:
        """Return what the loop device under its disk has moved, as its own kernel counts."""
        return await self._inner.disk_moved()

    def console_tail(self) -> tuple[str, ...]:
        """Return the agent's last output outside its channel."""
        return self._inner.console_tail()
