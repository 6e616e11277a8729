"""One running guest of Firecracker or Cloud Hypervisor."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.agent.client import AgentClient
from tare.errors import MachineFault
from tare.hosts.trace.threads import allowed_cpus, threads_of
from tare.platforms.contract import Context, MachineSpec
from tare.platforms.linux.scheduling import Scheduled
from tare.platforms.linux.sockets import reached
from tare.platforms.linux.vmm_machine import GONE_S, VmmMachine
from tare.platforms.microvm.api import VmmApi, VsockChannel, connect_vsock

if TYPE_CHECKING:
    from tare.hosts import Host

PORT = 1024
"""The vsock port on which the agent listens: the first that needs no privilege, vsock(7)."""
_HUNG_UP_S = 0.2
_COPY_S = 600.0
_STATUS = re.compile(r"^(Uid|Seccomp):\s+(\d+)", re.MULTILINE)
_FILTERED = 2
"""The mode of seccomp(2) with filters."""
# A thread that ended in the meantime is not a fault.
_TASKSET = 'cpus=$1; shift; for t; do taskset -pc "$cpus" "$t" || [ ! -e "/proc/$t" ] || exit; done'


@dataclass(frozen=True)
class Files:
    """The files of one guest on its host.

    Args:
        folder: The machine's own folder, for sockets; its path is short enough for them.
        kernel: The kernel.
        initramfs: The initial file system with the agent.
        disk: The machine's own disk; None: it has none.
        toolbox: The disk with the applications; None: it has none.
        saved: The folder of the state from which it is restored; None: it boots.
    """

    folder: Path
    kernel: Path
    initramfs: Path
    disk: Path | None = None
    toolbox: Path | None = None
    saved: Path | None = None

    @property
    def read(self) -> tuple[Path, ...]:
        """The files that the hypervisor only reads."""
        return (self.kernel, self.initramfs, *((self.toolbox,) if self.toolbox else ()))


@dataclass(frozen=True)
class Launch:
    """The start of one hypervisor process.

    Args:
        product: The hypervisor's name, for messages.
        argv: Its command line.
        log: The file for its standard error.
        api: Its REST socket, as the host names it.
        vsock: Its socket for the guest's vsock, as the host names it.
        vcpu_threads: Matches the names of its vCPU threads; the group is the vCPU's number.
    """

    product: str
    argv: Sequence[str]
    log: Path
    api: Path
    vsock: Path
    vcpu_threads: re.Pattern[str]


async def run_script(host: Host, name: str, script: str, *files: Path) -> None:
    """Run a shell script that copies or links the files of a machine's state.

    Args:
        host: The host.
        name: The machine's name, for the message.
        script: The script.
        files: The script's arguments.

    Raises:
        MachineFault: The script failed. The message quotes it.
    """
    argv = ["sh", "-c", script, "sh", *map(str, files)]
    done = await host.run(argv, timeout_s=_COPY_S)
    if not done.ok:
        raise MachineFault(f"{name}: its state cannot be copied: {done.words()}")


class MicroVmMachine(VmmMachine):
    """A guest of Firecracker or Cloud Hypervisor.

    Args:
        context: The host on which it runs, and Tare's state there.
        spec: Its specification.
        scheduled: Its scheduling on the host.
    """

    def __init__(self, context: Context, spec: MachineSpec, scheduled: Scheduled) -> None:
        super().__init__(context, spec.name)
        self.files: Files
        self.spec = spec
        self._scheduled = scheduled
        self._launch: Launch

    async def run(
        self,
        launch: Launch,
        boot: Callable[[VmmApi], Awaitable[None]],
        resume: Callable[[VmmApi], Awaitable[None]] | None = None,
    ) -> None:
        """Start the hypervisor and boot or restore the guest.

        Threads inherit the CPUs of the process. A pinned machine starts on the CPUs of its vCPUs,
        so that no vCPU ever runs elsewhere. Afterwards the other threads may leave these CPUs.

        Args:
            launch: The start of the hypervisor.
            boot: Configures the machine over the API and boots it, or loads its saved state.
            resume: Lets a loaded guest run; called when all vCPUs are on their CPUs.

        Raises:
            MachineFault: The hypervisor ended, or refused a request. The message quotes it.
        """
        self._launch = launch
        self.product = launch.product
        cpus, host = self.spec.cpus, self.host
        within = self.spec.within or host.topology().within
        await self._scheduled.hold(self.held, realtime=False)
        argv = self._scheduled.around(launch.argv, threads=False)
        process = await self._start(argv, launch.log, cpus or within)
        self._tasks.append(asyncio.create_task(self._console.follow(process.stdout)))
        try:
            async with self.api() as api:
                await boot(api)
                self._threads = await self._vcpus()
                await self._place(cpus, within)
                scheduled = await self._scheduled.apply(self._threads, self.pid)
                self.applied = {**self.applied, **scheduled}
                if resume is not None:
                    await resume(api)
        except (MachineFault, OSError) as error:
            # If the process ended, its own message is more useful than a broken connection's.
            await asyncio.wait({self.died}, timeout=GONE_S)
            if self.died.done():
                raise self.died.result() from error
            if isinstance(error, MachineFault):
                raise
            reason = f"{launch.product} cannot be controlled: {error}"
            raise MachineFault(f"{self.name}: {reason}") from error
        self._tasks.append(asyncio.create_task(self._await_panic()))
        connecting = asyncio.create_task(connect_vsock(host, launch.vsock, PORT, self.died))
        self.agent = AgentClient(VsockChannel(connecting), name=self.name)
        self._opened = True

    @property
    def folder(self) -> Path:
        """The folder that the hypervisor sees as its own, by its path on the host."""
        return self._launch.api.parent

    @contextlib.asynccontextmanager
    async def api(self) -> AsyncIterator[VmmApi]:
        """Hold a connection to the hypervisor's API; raises the errors of :func:`reached`."""
        launch = self._launch
        api = VmmApi(launch.product, self.name, await reached(self.host, launch.api, self.died))
        try:
            yield api
        finally:
            api.close()

    async def hang_up(self) -> None:
        """Close the connection to the agent, which then waits for the host's next connection.

        If the machine's specification did not set ``to_save``, the agent ends the machine instead.
        """
        await self.agent.close()
        # If the guest is saved while still closing this connection, the next connection ends it.
        await asyncio.sleep(_HUNG_UP_S)

    async def _vcpus(self) -> tuple[int, ...]:
        """Return the threads of the vCPUs, in order; raises MachineFault if some are missing."""
        found = {}
        for thread, name in (await threads_of(self.host, [self.pid])).items():
            if match := self._launch.vcpu_threads.fullmatch(name):
                found[int(match[1])] = thread
        if sorted(found) != list(range(self.spec.shape.vcpus)):
            raise MachineFault(
                f"{self.name}: {self.product} has threads for the vCPUs {sorted(found)}, "
                f"where {self.spec.shape.vcpus} were asked for"
            )
        return tuple(found[number] for number in sorted(found))

    async def prove_user(self, uid: int | None) -> Mapping[str, Any]:
        """Check in ``/proc/PID/status``, proc(5), with whose rights the hypervisor runs.

        Returns:
            Its user id, and whether its main thread filters system calls.

        Raises:
            MachineFault: It runs as a different user than requested.
        """
        status = (await self.host.read(f"/proc/{self.pid}/status")).decode(errors="replace")
        found = {key: int(value) for key, value in _STATUS.findall(status)}
        if uid is not None and found.get("Uid") != uid:
            product = self.product
            raise MachineFault(f"{self.name}: {product} is not user {uid}, but {found.get('Uid')}")
        return {"uid": uid, "seccomp": found.get("Seccomp") == _FILTERED}

    async def _place(self, cpus: Sequence[int], within: Sequence[int]) -> None:
        """Pin each vCPU, let the other threads use all CPUs, and verify the pins."""
        if not cpus:
            return
        topology = self.host.topology()
        places = ",".join(map(str, topology.housekeeping or within or topology.online))
        others = sorted(set(await self.threads()) - set(self._threads))
        await self._taskset(places, *others)
        for number, thread in enumerate(self._threads):
            cpu = cpus[number % len(cpus)]
            await self._taskset(str(cpu), thread)
            if (allowed := await allowed_cpus(self.host, thread)) != (cpu,):
                raise MachineFault(
                    f"{self.name}: vCPU {number} was pinned to CPU {cpu}, but the kernel lets it "
                    f"run on {list(allowed)}"
                )

    async def _taskset(self, cpus: str, *threads: int) -> None:
        argv = ["sh", "-c", _TASKSET, "sh", cpus, *map(str, threads)]
        done = await self.host.run(argv, timeout_s=30)
        if not done.ok:
            raise MachineFault(f"{self.name}: it cannot be put on CPU {cpus}: {done.words()}")

    def _ended_by_itself(self) -> str:
        return "the guest powered itself off or restarted"

    async def _errors(self) -> str:
        """Return its last output: that of its log, or else of its console."""
        return await super()._errors() or "; ".join(self.console_tail()[-1:])
