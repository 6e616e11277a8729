"""One running guest of Firecracker or Cloud Hypervisor."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.agent.client import AgentClient
from tare.errors import MachineFault, TareError
from tare.hosts import OwnedProcess, start_owned
from tare.hosts.begun import begun
from tare.hosts.trace.threads import allowed_cpus, run_delay, threads_of
from tare.platforms.contract import Context, Machine, MachineSpec
from tare.platforms.guest_hello import first_hello, last_line
from tare.platforms.linux.backed_disk import forget_backed
from tare.platforms.linux.console import Console
from tare.platforms.linux.disk import OwnDisk
from tare.platforms.linux.oom import kills_so_far, reason_for_kill
from tare.platforms.linux.process_cost import vcpu_cost
from tare.platforms.linux.process_machine import any_stopped
from tare.platforms.linux.scheduling import Scheduled
from tare.platforms.linux.sockets import reached
from tare.platforms.microvm.api import VmmApi, VsockChannel, connect_vsock

if TYPE_CHECKING:
    from tare.agent.client import Hello
    from tare.hosts import Host

PORT = 1024
"""The port of vsock at which the agent listens: the first that needs no privilege, vsock(7)."""
_GONE_S = 2.0
_PANIC_S = 1.0
_HUNG_UP_S = 0.2
_COPY_S = 600.0
_ERROR_LINES = 3
_STATUS = re.compile(r"^(Uid|Seccomp):\s+(\d+)", re.MULTILINE)
_FILTERED = 2
"""The mode of seccomp(2) with filters."""
# A thread that ended meanwhile is not a fault.
_TASKSET = 'cpus=$1; shift; for t; do taskset -pc "$cpus" "$t" || [ ! -e "/proc/$t" ] || exit; done'


@dataclass(frozen=True)
class Files:
    """The files of one guest on its host.

    Args:
        folder: A folder of the machine's own, for sockets; its path is short enough for them.
        kernel: The kernel.
        initramfs: The initial file system with the agent.
        disk: The disk of the machine's own; None: it has none.
        toolbox: The disk with the applications; None: it has none.
        saved: The folder of the state that it is restored from; None: it boots.
    """

    folder: Path
    kernel: Path
    initramfs: Path
    disk: Path | None = None
    toolbox: Path | None = None
    saved: Path | None = None

    @property
    def read(self) -> tuple[Path, ...]:
        """Those that the hypervisor only reads."""
        return (self.kernel, self.initramfs, *((self.toolbox,) if self.toolbox else ()))


@dataclass(frozen=True)
class Launch:
    """How one hypervisor process is started.

    Args:
        product: The hypervisor's name, for messages.
        argv: Its command line.
        log: The file for its standard error.
        api: Its socket for REST, as the host names it.
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
        host: Where.
        name: The machine's name, for the message.
        script: The script.
        files: Its arguments.

    Raises:
        MachineFault: It failed; with its own words.
    """
    argv = ["sh", "-c", script, "sh", *map(str, files)]
    done = await host.run(argv, timeout_s=_COPY_S)
    if not done.ok:
        raise MachineFault(f"{name}: its state cannot be copied: {done.words()}")


class MicroVmMachine(Machine):
    """A guest in a hypervisor process of its own.

    Args:
        context: Where it runs.
        spec: What it is to be.
        scheduled: How the host is to schedule it.
    """

    def __init__(self, context: Context, spec: MachineSpec, scheduled: Scheduled) -> None:
        self.name = spec.name
        self.agent: AgentClient
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        self.applied: Mapping[str, Any] = {}
        self.held = contextlib.AsyncExitStack()
        """What is given back after the hypervisor has ended: folders, disk, control group."""
        self.disk: OwnDisk | None = None
        self.files: Files
        self.spec = spec
        self._context = context
        self._scheduled = scheduled
        self.host = context.host
        self._launch: Launch
        self._process: OwnedProcess | None = None
        self._console = Console()
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self._threads: tuple[int, ...] = ()
        self._kills_before: int | None = None
        self._opened = False
        self._answered = False
        self._stopping = False
        self._stop: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int:
        """The hypervisor's process id on its host."""
        assert self._process is not None
        return self._process.pid

    async def run(
        self,
        launch: Launch,
        boot: Callable[[VmmApi], Awaitable[None]],
        resume: Callable[[VmmApi], Awaitable[None]] | None = None,
    ) -> None:
        """Start the hypervisor and boot or restore the guest.

        Threads inherit the CPUs of the process. A machine that is pinned starts on the CPUs of its
        vCPUs, so that no vCPU ever runs elsewhere; afterwards the other threads may leave them.

        Args:
            launch: How the hypervisor is started.
            boot: Configures the machine over the API and boots it, or loads its saved state.
            resume: Lets a guest that was loaded run; it is called when all vCPUs are on their CPUs.

        Raises:
            MachineFault: The hypervisor ended, or refused a request; with its own words.
        """
        self._launch = launch
        cpus, host = self.spec.cpus, self.host
        within = self.spec.within or host.topology().within
        await self._scheduled.hold(self.held, realtime=False)
        self._kills_before = await kills_so_far(host)
        self._process = await start_owned(
            host,
            self._context.ledger,
            self._scheduled.around(launch.argv, threads=False),
            log=launch.log,
            cpus=cpus or within or None,
        )
        self._watch = asyncio.create_task(self._await_end())
        self._tasks.append(asyncio.create_task(self._console.follow(self._process.stdout)))
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
            # If the process ended, its own words say more than a broken connection.
            await asyncio.wait({self.died}, timeout=_GONE_S)
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
        """The folder that the hypervisor sees as its own, as the host names it."""
        return self._launch.api.parent

    @contextlib.asynccontextmanager
    async def api(self) -> AsyncIterator[VmmApi]:
        """Hold a connection to the hypervisor's API; raises as :func:`reached`."""
        launch = self._launch
        api = VmmApi(launch.product, self.name, await reached(self.host, launch.api, self.died))
        try:
            yield api
        finally:
            api.close()

    async def hang_up(self) -> None:
        """End the conversation with the agent, which then waits for the host's next connection.

        The agent of a machine whose specification did not say ``to_save`` ends the machine instead.
        """
        await self.agent.close()
        # If the guest is still busy with it when it is saved, the next connection ends this one.
        await asyncio.sleep(_HUNG_UP_S)

    async def _vcpus(self) -> tuple[int, ...]:
        """Return the threads of the vCPUs, in order; raises MachineFault where some are missing."""
        found = {}
        for thread, name in (await threads_of(self.host, [self.pid])).items():
            if match := self._launch.vcpu_threads.fullmatch(name):
                found[int(match[1])] = thread
        if sorted(found) != list(range(self.spec.shape.vcpus)):
            raise MachineFault(
                f"{self.name}: {self._launch.product} has threads for the vCPUs {sorted(found)}, "
                f"where {self.spec.shape.vcpus} were asked for"
            )
        return tuple(found[number] for number in sorted(found))

    async def prove_user(self, uid: int | None) -> Mapping[str, Any]:
        """Read in ``/proc/PID/status``, proc(5), whose rights the hypervisor has.

        Returns:
            Its user, and whether its main thread filters system calls.

        Raises:
            MachineFault: It is not the user that was asked for.
        """
        status = (await self.host.read(f"/proc/{self.pid}/status")).decode(errors="replace")
        found = {key: int(value) for key, value in _STATUS.findall(status)}
        if uid is not None and found.get("Uid") != uid:
            product = self._launch.product
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

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello.

        Raises:
            MachineFault: The hypervisor or the guest ended, or the guest did not answer in time.
        """
        hello = await first_hello(self, timeout_s=timeout_s, gone_s=_GONE_S)
        self._answered = True
        return hello

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in order."""
        return self._threads

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the vCPUs' threads: whatever the guest runs, it runs on them."""
        return self._threads

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have had; ended ones count nothing."""
        return (await run_delay(self.host, threads))[0]

    async def threads(self) -> dict[int, str]:
        """Return the names of the hypervisor's threads by id."""
        return await threads_of(self.host, [self.pid])

    async def host_cost(self) -> dict[str, float]:
        """Return what the hypervisor cost the host so far; raises MachineFault once it has ended.

        Returns:
            As :func:`tare.platforms.linux.process_cost.vcpu_cost`.
        """
        try:
            return await vcpu_cost(self.host, self.pid, self._threads)
        except (OSError, IndexError) as error:
            tail = self.console_tail()
            raise MachineFault(f"{self.name} has ended", console_tail=tail) from error

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the host forget what it caches of the machine's disk; see ``tare help disk``."""
        return {} if self.disk is None else await forget_backed(self.host, self.disk)

    async def stopped(self) -> bool:
        """Return whether the hypervisor's process is stopped."""
        return await any_stopped(self.host, [self.pid])

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return self._console.tail()

    async def stop(self) -> None:
        """End the hypervisor and remove what it left.

        The guest is not asked to power off: its disk is removed with it.
        """
        if self._stop is None:
            # Shielded: a stop that has begun continues when its caller is cancelled.
            self._stop = begun(self._end_and_remove())
        await asyncio.shield(self._stop)

    async def _end_and_remove(self) -> None:
        self._stopping = True
        try:
            if self._process is not None and self._process.returncode is None:
                await self._process.kill()
            if self._watch is not None:
                await self._watch
            if self._opened:
                with contextlib.suppress(TareError, OSError):
                    await self.agent.close()
        finally:
            for task in self._tasks:
                task.cancel()
            await self.held.aclose()

    async def _await_end(self) -> None:
        assert self._process is not None
        try:
            code = await self._process.wait()
        except MachineFault as lost:
            self._fail(lost.message, transient=lost.transient)
            return
        if self._tasks:
            # The last words are still on their way through the stream.
            await asyncio.wait(self._tasks[:1], timeout=_GONE_S)
        product = self._launch.product
        if code == -signal.SIGKILL:
            reason = await reason_for_kill(self.host, self.pid, product, self._kills_before)
            if reason:
                self._fail(reason, transient=True)
                return
        self._fail(await self._why(code), transient=code <= 0 and not self._answered)

    async def _await_panic(self) -> None:
        """End the machine when its kernel panicked and the hypervisor did not end by itself."""
        await self._console.panicked.wait()
        await asyncio.sleep(_PANIC_S)
        panic = f"the guest's kernel panicked: {self._console.panic}"
        self._fail(panic, transient=not self._answered)

    def _fail(self, reason: str, *, transient: bool = False) -> None:
        if self._stopping or self.died.done():
            return
        tail = self.console_tail()
        fault = MachineFault(
            f"{self.name}: {reason}{last_line(tail)}", console_tail=tail, transient=transient
        )
        self.died.set_result(fault)

    async def _why(self, code: int) -> str:
        product = self._launch.product
        if self._console.panic:
            return f"the guest's kernel panicked: {self._console.panic}"
        if code < 0:
            known = {number.value: number.name for number in signal.Signals}
            return f"{product} was killed by {known.get(-code, f'signal {-code}')}"
        if code:
            return f"{product} ended with code {code}: {await self._errors()}"
        if killed := self._console.killed:
            return f"the guest ran out of memory, and its kernel killed '{killed}': give it more"
        return "the guest powered itself off or restarted"

    async def _errors(self) -> str:
        with contextlib.suppress(OSError):
            lines = (await self.host.read(self._launch.log)).decode(errors="replace")
            if last := lines.strip().splitlines()[-_ERROR_LINES:]:
                return "; ".join(last)
        return "; ".join(self.console_tail()[-1:]) or "it gave no reason"
