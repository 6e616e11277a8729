"""One running domain."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.errors import MachineFault, TareError
from tare.events.hypervisor import HypervisorFigures
from tare.hosts.shielded import begun
from tare.hosts.trace.threads import allowed_cpus, run_delay, threads_of
from tare.platforms.contract import Context, Machine, Shape
from tare.platforms.guest_hello import first_hello, last_line
from tare.platforms.libvirt.connection import Connection, NoSuchDomain
from tare.platforms.libvirt.disturbances import Looks, list_disturbances, swapped
from tare.platforms.libvirt.domain import Files, expected_disk, reported_disk, reported_features
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.linux.backed_disk import BACKINGS, forget_backed
from tare.platforms.linux.console import Console
from tare.platforms.linux.disk import OwnDisk
from tare.platforms.linux.process_cost import vcpu_cost
from tare.platforms.linux.process_machine import is_any_stopped
from tare.platforms.linux.scheduling import Scheduled
from tare.platforms.linux.sockets import reached
from tare.platforms.qemu.disk import require_bus
from tare.platforms.qemu.features import wanted
from tare.platforms.qemu.guest_process import GuestProcess, find_carrier
from tare.platforms.qemu.memory import prove_memory
from tare.platforms.qemu.threads import prove_placement

if TYPE_CHECKING:
    from tare.agent.client import Hello

_DISK_THREAD = re.compile("IO iothread1")
"""QEMU's name of the thread that libvirt calls ``iothread1``."""
REPORTED_TUNING = {"shares": "cpu_shares", "period": "vcpu_period", "quota": "vcpu_quota"}
"""Elements of ``cputune`` to their names in ``virDomainGetSchedulerParameters``, if different."""
GONE_S = 3.0
POWER_OFF_S = 3.0


class LibvirtMachine(Machine):
    """A guest in a libvirt domain.

    Args:
        context: The host on which it runs, and Tare's state there.
        options: The arm's options.
        name: The machine's name, which is the domain's.
        uuid: The domain's UUID.
        connection: The machine's own connection to libvirt.
        disk: Its own disk, if it has one.
        shape: Its size.
        tuning: Its CPU shares and quotas, by libvirt's names in XML.
        scheduled: The requested scheduling of its vCPUs on the host.
        polling: The record of the host's polling for its vCPUs; empty if none was requested.
        held: Releases its resources after it has stopped.
    """

    def __init__(
        self,
        context: Context,
        options: LibvirtOptions,
        name: str,
        uuid: str,
        connection: Connection,
        disk: OwnDisk | None,
        shape: Shape,
        tuning: Mapping[str, int],
        scheduled: Scheduled,
        polling: Mapping[str, Any],
        held: AsyncExitStack,
    ) -> None:
        self.name = name
        self._shape = shape
        self._polling = polling
        self._tuning = tuning
        self._scheduler = scheduled
        self.agent: AgentClient
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        self.applied: Mapping[str, Any] = {}
        self._host = context.host
        self._options = options
        self._uuid = uuid
        self._libvirt = connection
        self._disk = disk
        self._held = held
        self._console = Console()
        self._looks = Looks()
        self._carrier: GuestProcess | None = None
        self._opened = False
        self._answered = False
        self._tasks: list[asyncio.Task[None]] = []
        self._streams: list[asyncio.StreamWriter] = []
        self._over = asyncio.Event()
        self._stopping: asyncio.Future[None] | None = None

    async def bring_up(
        self,
        files: Files,
        pins: Sequence[int],
        emulator: Sequence[int],
        disk_thread: Sequence[int] = (),
    ) -> None:
        """Start the domain paused, verify its placement and devices, and let the guest run.

        Args:
            files: The domain's files, including its sockets.
            pins: The host CPU of each vCPU; empty: any.
            emulator: The host CPUs of QEMU's other threads; empty: any.
            disk_thread: The host CPUs of the disk's own thread, if it has one; empty: any.

        Raises:
            MachineFault: Libvirt refuses, or the domain differs from the request.
        """
        await self._libvirt.start_paused(self._uuid)
        self._carrier = await find_carrier(self._host, self._uuid)
        if self._carrier is None:
            raise MachineFault(f"{self.name}: its QEMU is not to be seen among the processes")
        agent = await reached(self._host, files.agent, self.died)
        self.agent = AgentClient(StreamChannel(*agent), name=self.name)
        self._opened = True
        console = await reached(self._host, files.console, self.died)
        self._streams.append(console[1])
        self._tasks.append(asyncio.create_task(self._listen(console[0])))
        placed = await self._placed(pins, emulator, disk_thread)
        self.applied = {
            **placed,
            **await self._scheduled(),
            **await self._driven(),
            **await self._featured(),
            **await prove_memory(
                self.name,
                self._shape,
                self._host,
                self._carrier.pid,
                hugepages=self._options.hugepages,
                node=self._options.numa_node,
            ),
            **self._polling,
        }
        await self._libvirt.resume(self._uuid)

    async def _placed(
        self, pins: Sequence[int], emulator: Sequence[int], disk_thread: Sequence[int]
    ) -> dict[str, Any]:
        assert self._carrier is not None
        for number, (thread, cpu) in enumerate(zip(self._carrier.vcpus, pins, strict=False)):
            allowed = await allowed_cpus(self._host, thread)
            if allowed != (cpu,):
                raise MachineFault(
                    f"{self.name}: vCPU {number} was to be pinned to CPU {cpu}, but the kernel "
                    f"says {list(allowed)}"
                )
        pid, vcpus = self._carrier.pid, self._carrier.vcpus
        own: dict[int, list[int]] = {}
        if disk_thread and tuple(disk_thread) != tuple(emulator):
            own = await self._own_thread(pid, disk_thread)
        placed = await prove_placement(self._host, self.name, pid, (*vcpus, *own), emulator)
        return {**placed, **({"disk_thread": next(iter(own.values()))} if own else {})}

    async def _own_thread(self, pid: int, cpus: Sequence[int]) -> dict[int, list[int]]:
        """Return the disk's own thread and its CPUs; raises MachineFault if those differ."""
        for thread, comm in (await threads_of(self._host, [pid])).items():
            if _DISK_THREAD.fullmatch(comm):
                allowed = list(await allowed_cpus(self._host, thread))
                if set(allowed) == set(cpus):
                    return {thread: allowed}
                raise MachineFault(
                    f"{self.name}: the disk's thread was to run on CPUs {list(cpus)}, but the "
                    f"kernel says {allowed}"
                )
        raise MachineFault(f"{self.name}: QEMU has no thread for the disk")

    async def _scheduled(self) -> dict[str, Any]:
        """Return the scheduling of its vCPUs, by the kernel and libvirt; raises MachineFault."""
        assert self._carrier is not None
        proof = dict(await self._scheduler.prove(self._carrier.vcpus, self._carrier.pid))
        if not self._tuning:
            return proof
        reported = await self._libvirt.scheduling(self._uuid)
        for key, value in self._tuning.items():
            found = reported.get(REPORTED_TUNING.get(key, key))
            if found != value:
                raise MachineFault(
                    f"{self.name}: {key} was set to {value}, but libvirt says {found}"
                )
        return {**proof, "scheduling": {**proof.get("scheduling", {}), "libvirt": reported}}

    async def _featured(self) -> dict[str, Any]:
        asked = wanted(self._options.cpu_features)
        if not asked:
            return {}
        reported = reported_features(await self._libvirt.live_xml(self._uuid))
        for feature, there in asked.items():
            if reported.get(feature) is not there:
                raise MachineFault(
                    f"{self.name}: the processor was to be {'with' if there else 'without'} "
                    f"{feature}, and libvirt says otherwise"
                )
        return {"cpu_features": asked}

    async def _driven(self) -> dict[str, Any]:
        if self._disk is None:
            return {}
        reported = reported_disk(await self._libvirt.live_xml(self._uuid))
        for key, value in expected_disk(self._options).items():
            if reported.get(key) != value:
                raise MachineFault(
                    f"{self.name}: the disk's {key} was to be {value}, but libvirt says "
                    f"{reported.get(key)}"
                )
        return {
            "disk": {
                "attached": f"{self._options.bus} over {BACKINGS[self._options.disk_format]} of "
                "the host",
                "bus": self._options.bus,
                "format": self._options.disk_format,
                "told_by_libvirt": reported,
                "file_system": "ext4",
                "bytes": self._disk.size,
                "reserved": self._disk.reserved,
            }
        }

    async def _listen(self, console: asyncio.StreamReader) -> None:
        # The console's other end is QEMU, so the stream ends when QEMU ends.
        await self._console.follow(console)
        self._over.set()
        if self._stopping is not None or self.died.done():
            return
        reason = "its QEMU has ended"
        deadline = asyncio.get_running_loop().time() + GONE_S
        with contextlib.suppress(MachineFault):
            # Libvirt notices the end a moment later.
            while asyncio.get_running_loop().time() < deadline:
                if why := await self._libvirt.why_off(self._uuid):
                    reason = why
                    break
                await asyncio.sleep(0.05)
        if self._console.panic:
            reason = f"the guest's kernel panicked: {self._console.panic}"
        if self._stopping is None and not self.died.done():
            tail = self.console_tail()
            self.died.set_result(
                MachineFault(
                    f"{self.name}: {reason}{last_line(tail)}",
                    console_tail=tail,
                    transient=not self._answered,
                )
            )

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello; see :class:`tare.platforms.contract.Machine`."""
        hello = await first_hello(self, timeout_s=timeout_s, gone_s=GONE_S)
        self._answered = True
        require_bus(self.name, self._options.bus, hello.proof.get("scratch"))
        return hello

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in order."""
        return () if self._carrier is None else self._carrier.vcpus

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the vCPUs' threads, on which everything in the guest runs."""
        return await self.vcpu_threads()

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have used; ended ones count as 0."""
        return (await run_delay(self._host, threads))[0]

    async def threads(self) -> dict[int, str]:
        """Return the names of QEMU's threads by id."""
        if self._carrier is None:
            return {}
        return await threads_of(self._host, [self._carrier.pid])

    async def host_cost(self) -> dict[str, float]:
        """Return the costs of its QEMU; see :mod:`tare.platforms.linux.process_cost`.

        Raises:
            MachineFault: QEMU has ended.
        """
        if self._carrier is None:
            return {}
        try:
            return await vcpu_cost(self._host, self._carrier.pid, self._carrier.vcpus)
        except (OSError, IndexError) as error:
            raise MachineFault(
                f"{self.name} has ended", console_tail=self.console_tail()
            ) from error

    async def stopped(self) -> bool:
        """Check whether the domain is paused or asleep, or its QEMU's process is stopped."""
        if self._carrier is None:
            return False
        if await is_any_stopped(self._host, [self._carrier.pid]):
            return True
        return await self._libvirt.is_held(self._uuid)

    async def disturbances(self) -> tuple[str, ...]:
        """Return its disturbances: a pause, snapshots, jobs, another QEMU, balloon or swap.

        The call also reads how long its vCPUs waited, so there is a reading on each side of a cell.
        """
        asked = time.time()
        try:
            look = await self._libvirt.look(self._uuid)
        except NoSuchDomain:
            return ("it left libvirt",)
        self._looks.add(asked, time.time(), look)
        events = list(list_disturbances(look, self._shape.memory))
        carrier = await find_carrier(self._host, self._uuid)
        if self._carrier is not None and carrier is not None:
            if (carrier.pid, carrier.began) != (self._carrier.pid, self._carrier.began):
                events.append(f"its QEMU is another one: process {carrier.pid}")
            events += filter(None, [await swapped(self._host, carrier.pid)])
        return tuple(events)

    async def hypervisor_figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return how long its vCPUs waited on the host, as libvirt reports it."""
        return self._looks.figures(begun, ended)

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the host drop its cache of the machine's disk; see ``tare help disk``."""
        return {} if self._disk is None else await forget_backed(self._host, self._disk)

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return self._console.tail()

    async def stop(self) -> None:
        """Ask the guest to power off, then destroy and undefine the domain; may be called again."""
        if self._stopping is None:
            # Shielded: a stop that has begun continues when its caller is cancelled.
            self._stopping = begun(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        try:
            if self._answered and not self._over.is_set():
                with contextlib.suppress(TareError, OSError, TimeoutError):
                    async with asyncio.timeout(POWER_OFF_S):
                        await self.agent.shutdown()
                        await self._over.wait()
            if self._opened:
                with contextlib.suppress(TareError, OSError):
                    await self.agent.close()
        finally:
            for task in self._tasks:
                task.cancel()
            for stream in self._streams:
                stream.close()
            # This removes the domain first, then its files.
            await self._held.aclose()
