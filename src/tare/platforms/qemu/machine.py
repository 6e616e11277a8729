"""One running QEMU machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.errors import MachineFault, TareError
from tare.hosts import Host
from tare.platforms import instruction_time as counting
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.linux.backed_disk import backed_disk
from tare.platforms.linux.disk import OwnDisk
from tare.platforms.linux.scheduling import Scheduled
from tare.platforms.linux.sockets import reached
from tare.platforms.linux.vmm_machine import GONE_S, VmmMachine
from tare.platforms.qemu.command import MachinePaths, without_name
from tare.platforms.qemu.confinement import Confinement, prove_confined
from tare.platforms.qemu.disk import moved, prove_disk, require_bus
from tare.platforms.qemu.enlightenments import contradiction
from tare.platforms.qemu.features import prove_features
from tare.platforms.qemu.guest_kernel import kernel_differs
from tare.platforms.qemu.halt_polling import hold_polling
from tare.platforms.qemu.memory import prove_memory
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.qmp import Monitor
from tare.platforms.qemu.threads import (
    emulator_cpus,
    own_thread_cpus,
    place_disk_thread,
    place_vhost_threads,
    prove_placement,
)

if TYPE_CHECKING:
    from tare.agent.client import Hello
    from tare.hosts import Entry

_QUIT_S = 2.0
# The kernel's limit is 108 bytes with the final NUL (unix(7)).
_LONGEST_SOCKET = 107


class QemuMachine(VmmMachine):
    """A guest in QEMU; made by :func:`launch`."""

    product = "QEMU"

    def __init__(
        self,
        context: Context,
        options: QemuOptions,
        spec: MachineSpec,
        places: MachinePaths,
        scheduled: Scheduled,
    ) -> None:
        super().__init__(context, spec.name)
        self._shape = spec.shape
        self._options = options
        self._scheduled = scheduled
        # If the guest counts instructions itself, the host's clock does not affect it.
        counted = context.counted and options.clock != "instructions"
        self._counted_by = context.host_agent if counted else None
        self._places = places
        self._folders: list[tuple[Entry, Path]] = []
        self._monitor: Monitor | None = None
        self._streams: list[asyncio.StreamWriter] = []
        self._elsewhere: tuple[int, ...] = ()
        self._within: tuple[int, ...] = ()
        self.vhost = False
        """Whether threads of the host's kernel carry its packets."""

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello, and check that the guest matches the request.

        Raises:
            MachineFault: QEMU or the guest ended, the guest did not answer in time, or it sees a
                different hypervisor, disk or kernel.
        """
        return self._require_as_asked(await super().ready(timeout_s))

    def _require_as_asked(self, hello: Hello) -> Hello:
        """Return the hello; raise MachineFault if the guest does not match the request."""
        seen = hello.proof.get("hypervisor")
        wanted = self._options.enlightenments
        require_bus(self.name, self._options.bus, hello.proof.get("scratch"))
        differs = contradiction(wanted, seen) if wanted.asks and isinstance(seen, Mapping) else ""
        if differs:
            raise MachineFault(
                f"{self.name}: enlightenments are not as asked for: {differs}",
                console_tail=self.console_tail(),
            )
        if other := kernel_differs(self._options, hello.proof):
            raise MachineFault(
                f"{self.name}: the guest's kernel is not as asked for: {other}",
                "remove the option, or use a kernel that supports it",
                console_tail=self.console_tail(),
            )
        return hello

    async def _hang_up(self) -> None:
        if self._monitor is not None:
            await self._monitor.close()
        await super()._hang_up()

    async def _give_back(self) -> None:
        for stream in self._streams:
            stream.close()
        await super()._give_back()
        for entry, folder in reversed(self._folders):
            # If the host is lost, the folder stays there, and its entry in the ledger.
            with contextlib.suppress(TareError):
                await self.host.remove(folder)
                self._ledger.done(entry)

    # Methods for launch().

    async def make_folder(self, folder: Path) -> None:
        """Create a folder that :meth:`stop` removes."""
        entry = self._ledger.record("directory", path=str(folder))
        self._folders.append((entry, folder))
        made = await self.host.run(["mkdir", "-p", "-m", "700", str(folder)], timeout_s=30)
        if not made.ok:
            raise MachineFault(f"{self.name}: {made.words()}", "check the disk's free space")

    async def make_disk(self, context: Context, spec: MachineSpec) -> Path | None:
        """Make the disk that the shape asks for; None without one. :meth:`stop` removes it."""
        kind, group = self._options.disk_format, self._options.disk_volume_group
        making = backed_disk(context, spec, kind, group)
        self.disk = await self.held.enter_async_context(making)
        return None if self.disk is None else self.disk.file

    async def stopped(self) -> bool:
        """Check whether the guest is paused, or QEMU's process is stopped."""
        if self._monitor is not None and self._monitor.paused:
            return True
        return await super().stopped()

    async def disk_moved(self) -> Mapping[str, float]:
        """Return how many bytes QEMU has moved for the machine's disk, by QEMU's own count."""
        if self.disk is None or self._monitor is None:
            return {}
        return moved(await self._monitor.execute("query-blockstats"))

    async def run(
        self,
        argv: Sequence[str],
        cpus: Sequence[int],
        confined: Confinement | None = None,
        within: Sequence[int] = (),
    ) -> None:
        """Start QEMU paused, connect to it, pin and schedule its vCPUs, and start the guest.

        Args:
            argv: QEMU's command line.
            cpus: The host CPUs to which the vCPUs are pinned; empty: they are not pinned.
            confined: QEMU's confinement.
            within: The host CPUs on which unpinned vCPUs may run; empty: any.
        """
        await self._scheduled.hold(self.held, realtime=False)
        polls = self._options.halt_poll
        polling = await hold_polling(self.held, self.host, self._ledger, self.name, polls)
        started = self._scheduled.around(argv, threads=False)
        host = self.host.topology()
        # Threads that QEMU starts later, such as those for a disk, inherit these CPUs.
        self._elsewhere = emulator_cpus(
            self._options.emulator_cpus, cpus, host.online, housekeeping=host.housekeeping
        )
        self._within = tuple(within) or host.within
        await self._start(started, self._places.errors, self._elsewhere or self._within)
        try:
            await self._bring_up(cpus, confined or Confinement())
            self.applied = {**self.applied, **polling}
        except (MachineFault, OSError) as error:
            # If QEMU ended, its own message is more useful than that of a broken stream.
            await asyncio.wait({self.died}, timeout=GONE_S)
            if self.died.done():
                raise self.died.result() from error
            raise MachineFault(f"{self.name}: QEMU cannot be steered: {error}") from error

    async def _bring_up(self, cpus: Sequence[int], confined: Confinement) -> None:
        places = (self._places.agent, self._places.console, self._places.qmp)
        agent, console, monitor = await asyncio.gather(
            *(reached(self.host, place, self.died) for place in places)
        )
        self.agent = AgentClient(StreamChannel(*agent), name=self.name)
        self._opened = True
        self._streams.append(console[1])
        self._tasks += [
            asyncio.create_task(self._console.follow(console[0])),
            asyncio.create_task(self._await_panic()),
        ]
        self._monitor = Monitor(self.name, monitor)
        await self._monitor.open()
        self._threads = await self._monitor.vcpu_threads()
        if cpus:
            await self._pin([cpus[number % len(cpus)] for number in range(len(self._threads))])
        elif self._elsewhere:
            # The vCPUs' threads started on the CPUs of QEMU's other threads.
            everywhere = self._within or self.host.topology().machines
            await self._pin([",".join(map(str, everywhere))] * len(self._threads))
        scheduled = await self._scheduled.apply(self._threads, self.pid)
        asked = QemuRequest(
            self.name, self._options, self._shape, self._monitor, self.disk, self.vhost
        )
        proven = await asked.proven(self.host, self.pid, self._threads, cpus)
        runs_as = await prove_confined(self.host, self.name, self.pid, confined)
        self.applied = {**scheduled, **proven, "runs_as": runs_as}
        if self._counted_by is None:
            await self._monitor.execute("cont")
        else:
            self._monitor = await let_go(
                self.host, self._counted_by, self.name, self._monitor, self._places.qmp, self.died
            )
        self._tasks.append(asyncio.create_task(self._await_full_disk(self._monitor)))

    async def _pin(self, places: Sequence[int | str]) -> None:
        """Bind each vCPU's thread to a CPU, or to several, written as in taskset(1)."""
        for number, (thread, cpu) in enumerate(zip(self._threads, places, strict=True)):
            done = await self.host.run(["taskset", "-pc", str(cpu), str(thread)], timeout_s=30)
            if not done.ok:
                raise MachineFault(
                    f"{self.name}: vCPU {number} cannot be pinned to CPU {cpu}: {done.words()}"
                )

    async def _await_full_disk(self, monitor: Monitor) -> None:
        """End the machine when the host has no room left for the guest's writes to its disk."""
        await monitor.no_space.wait()
        self._fail("the host's disk is full: what the guest wrote to its disk has no room there")

    def _ended_by_itself(self) -> str:
        ended = self._monitor.ended_by if self._monitor is not None else ""
        words = {
            "guest-shutdown": "the guest powered itself off",
            "guest-reset": "the guest restarted itself",
            "guest-panic": "the guest's kernel panicked",
        }
        return words.get(ended, f"QEMU ended unexpectedly{f' ({ended})' if ended else ''}")

    def _error(self, line: str) -> str:
        return without_name(line)

    async def _end(self) -> None:
        """Ask QEMU to quit, then kill it."""
        process, watch = self._process, self._watch
        if self._monitor and process and watch and process.returncode is None:
            with contextlib.suppress(TareError, OSError, TimeoutError):
                async with asyncio.timeout(_QUIT_S):
                    await self._monitor.execute("quit")
                    await asyncio.shield(watch)
        await super()._end()


def fits_socket(folder: Path) -> bool:
    """Check whether sockets in ``folder`` have paths short enough for the kernel."""
    return len(os.fsencode(folder / "console.sock")) <= _LONGEST_SOCKET


async def let_go(
    host: Host,
    agent: Path,
    name: str,
    monitor: Monitor,
    place: Path,
    died: asyncio.Future[MachineFault],
) -> Monitor:
    """Start a guest at the next full ten minutes of its host's clock; return its reopened monitor.

    The agent on the host starts it, so that nothing crosses the network at that moment. The
    guest's clock then has the same phase relative to the host's timers at each boot.

    Args:
        host: The host.
        agent: The agent's program there.
        name: The machine's name.
        monitor: Its monitor, which is closed, because QEMU serves one client at a time.
        place: The path of the monitor's socket.
        died: Set if QEMU ended.

    Raises:
        MachineFault: QEMU refused, or has ended.
        TimeoutError: Its monitor did not listen again.
    """
    await monitor.close()
    done = await host.run([str(agent), "cont", str(place)], timeout_s=counting.BEGUN_S)
    if not done.ok:
        raise MachineFault(f"QEMU did not run cont: {done.words()}")
    again = Monitor(name, await reached(host, place, died))
    await again.open()
    return again


@dataclass(frozen=True)
class QemuRequest:
    """The request for one QEMU, and the monitor that reports the result.

    Args:
        name: The machine's name.
        options: Its options.
        shape: Its size.
        monitor: QEMU's monitor.
        disk: Its own disk, if it has one.
        vhost: Whether threads of the host's kernel carry its packets.
    """

    name: str
    options: QemuOptions
    shape: Shape
    monitor: Monitor
    disk: OwnDisk | None
    vhost: bool = False

    async def proven(
        self, host: Host, pid: int, vcpus: Sequence[int], cpus: Sequence[int]
    ) -> Mapping[str, Any]:
        """Bind the threads of disk and network as requested, and verify the whole request.

        Args:
            host: The host on which it runs.
            pid: The id of QEMU's process.
            vcpus: The thread ids of its vCPUs.
            cpus: The CPUs to which these are pinned; empty: they are not pinned.

        Returns:
            The verified facts for the machine's record.

        Raises:
            MachineFault: A fact differs from the request.
        """
        asked, there = self.options, host.topology()
        own: Mapping[int, list[int]] = {}
        if asked.iothread_cpus is not None:
            allowed = own_thread_cpus(asked.iothread_cpus, cpus, there, "iothread-cpus")
            own = await place_disk_thread(host, self.name, self.monitor, allowed)
        carrying: Mapping[int, list[int]] = {}
        if self.vhost and asked.vhost_cpus is not None:
            allowed = own_thread_cpus(asked.vhost_cpus, cpus, there, "vhost-cpus")
            carrying = await place_vhost_threads(host, self.name, pid, allowed)
        kept = there.housekeeping
        elsewhere = emulator_cpus(asked.emulator_cpus, cpus, there.online, housekeeping=kept)
        placed = (*vcpus, *own, *carrying)
        record = {
            **await prove_placement(host, self.name, pid, placed, elsewhere),
            **({"disk_thread": next(iter(own.values()))} if own else {}),
            **({"vhost_threads": next(iter(carrying.values()))} if carrying else {}),
            **await prove_features(self.name, asked.cpu_features, self.monitor),
            **await prove_memory(
                self.name,
                self.shape,
                host,
                pid,
                hugepages=asked.hugepages,
                locked=asked.mlock,
                touched=asked.prealloc,
                node=asked.numa_node,
            ),
        }
        if self.disk is not None:
            maps = await host.read(f"/proc/{pid}/maps")
            record["disk"] = await prove_disk(self.name, asked, self.monitor, self.disk, maps)
        return record
