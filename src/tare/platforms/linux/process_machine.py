"""A machine that is a process of the host; Tare reaches its agent through the process's pipes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath
from typing import Any

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient, Hello
from tare.errors import MachineFault, TareError
from tare.hosts import Host, Ledger, OwnedProcess
from tare.hosts.control_groups import CGROUPS
from tare.hosts.processes import stat_fields
from tare.hosts.shielded import begun
from tare.hosts.trace.threads import run_delay, threads_of
from tare.platforms.contract import Machine
from tare.platforms.linux.disk import MountedDisk, device_moved, forget_everything

CONSOLE = "console.log"
KILLED = 128 + 9
"""The exit status with which a shell or an OCI runtime reports that SIGKILL ended a process."""
TAIL_LINES = 20
_TAIL_BYTES = 16384
WORKING = "tare-"
"""Prefix of the names of the agent's workload threads, and also of its main thread's name."""
MAIN = "tare-agent"
GRACE_S = 2.0
_FROZEN = re.compile(rb"^frozen 1$|^FROZEN$", re.MULTILINE)
_TRACER = re.compile(rb"^TracerPid:\s*(\d+)$", re.MULTILINE)
_PROCESS = re.compile(rb"^Tgid:\s*(\d+)$", re.MULTILINE)
MOST_LOG_BYTES = 64 << 20
"""The log's size limit. An honest agent writes almost nothing outside its channel."""
LOG_LOOK_S = 0.5


class ProcessMachine(Machine):
    """The bare host's agent, or a container's.

    Args:
        name: The machine's name.
        process: The process whose standard input and output are the agent's channel.
        log: The file of its standard error: its console.
        host: The host on which it runs.
        members: Returns the ids of its processes; may raise OSError once it has ended.
        cost: Returns ``cpu_s`` and ``rss_bytes`` so far; may raise OSError once it has ended.
        explain: Maps its exit status to a sentence that explains why it ended.
        held: Releases its files, control groups and settings after it has stopped.
        force: Ends it if it does not end by itself, before the process itself is killed.
        prove: Returns what the host does for the machine, once the agent answers; raises
            MachineFault if that differs from the request.
        disk: Its own disk, if it has one.
        shares_clock: Whether its clock is the host's own.
        cpus: The host's CPUs to which it is restricted, whether pinned or not; empty: all.
    """

    def __init__(
        self,
        name: str,
        process: OwnedProcess,
        log: Path,
        *,
        host: Host,
        members: Callable[[], Awaitable[tuple[int, ...]]],
        cost: Callable[[], Awaitable[dict[str, float]]],
        explain: Callable[[int], Awaitable[str]],
        held: AsyncExitStack,
        force: Callable[[], Awaitable[None]] | None = None,
        prove: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
        disk: MountedDisk | None = None,
        shares_clock: bool = True,
        cpus: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.shares_clock = shares_clock
        self.applied: Mapping[str, Any] = {}
        self._cpus = cpus
        self._prove = prove
        self._disk = disk
        self.agent = AgentClient(StreamChannel(process.stdout, process.stdin), name=name)
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        self._process = process
        self._log = log
        self._host = host
        self._members = members
        self._cost = cost
        self._last_cost = {"cpu_s": 0.0, "rss_bytes": 0.0}
        self._explain = explain
        self._held = held
        self._force = force
        self._answered = False
        self._stopping: asyncio.Task[None] | None = None
        self._tail: tuple[str, ...] = ()
        self._flooded: MachineFault | None = None
        self._watcher = asyncio.create_task(self._watch(), name=f"{name} watcher")
        self._listener = asyncio.create_task(self._listen(), name=f"{name} listener")

    async def _listen(self) -> None:
        """End the machine if it writes so much outside its channel that the disk would fill."""
        if not self._host.local or self._force is None:
            # A machine without `force` is the host's own agent. On a remote host each check would
            # be a command that disturbs the measurement.
            return
        size = 0
        while size <= MOST_LOG_BYTES:
            await asyncio.sleep(LOG_LOOK_S)
            with contextlib.suppress(OSError):
                size = self._log.stat().st_size
        self._flooded = MachineFault(
            f"{self.name}: it wrote more than {MOST_LOG_BYTES >> 20} MiB outside its channel, "
            "which no agent does"
        )
        await self._force()
        await self._process.kill()

    async def _watch(self) -> None:
        try:
            code = await self._process.wait()
            self._listener.cancel()
            if self._stopping is not None:
                return
            if self._flooded is not None:
                raise self._flooded
            reason = await self._explain(code)
            await self._read_tail()
            # If a signal ended it before its first answer, another attempt may succeed.
            passing = (code < 0 or code == KILLED) and not self._answered
            fault = MachineFault(
                f"{self.name}: {reason}", console_tail=self._tail, transient=passing
            )
        except MachineFault as lost:
            fault = lost
        if self._stopping is None:
            self.died.set_result(fault)
            self.agent.fail(fault)

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello; see :class:`tare.platforms.contract.Machine`."""
        hello = asyncio.ensure_future(self.agent.hello(timeout_s))
        either: set[asyncio.Future[Any]] = {hello, self.died}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if hello.done() and hello.exception() is not None:
                # The pipe's end is often seen shortly before the process's end.
                await asyncio.wait({self.died}, timeout=0.5)
            if self.died.done():
                raise self.died.result()
            greeting = await hello
            self._answered = True
        finally:
            hello.cancel()
            await asyncio.gather(hello, return_exceptions=True)
        if self._prove is not None:
            self.applied = await self._prove()
        if self._disk is not None:
            self.applied = {**self.applied, "disk": dict(self._disk.record)}
        if self._cpus:
            self.applied = {**self.applied, "keeps_to": list(self._cpus)}
        return greeting

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return an empty tuple, because there are no virtual CPUs."""
        return ()

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the agent's workload threads, which the agent has named."""
        named = (await self.threads()).items()
        return tuple(thread for thread, comm in named if comm.startswith(WORKING) and comm != MAIN)

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have used; ended ones count as 0."""
        return (await run_delay(self._host, threads))[0]

    async def threads(self) -> dict[int, str]:
        """Return the names of its threads by id; none once it has ended."""
        with contextlib.suppress(OSError):
            return await threads_of(self._host, await self._members())
        return {}

    async def host_cost(self) -> dict[str, float]:
        """Return the last known costs so far, with the bytes that are resident now.

        ``threads_cpu_s`` and ``threads_run_delay_s`` are the seconds for which its present threads
        ran, and for which they were ready while another thread ran.
        """
        with contextlib.suppress(OSError, ValueError, LookupError):
            cost = await self._cost()
            if threads := tuple(await self.threads()):
                ran, waited = await run_delay(self._host, threads)
                cost |= {"threads_cpu_s": ran, "threads_run_delay_s": waited}
            self._last_cost = cost
        return self._last_cost

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the host drop its caches of all files, if the machine has its own disk."""
        if self._disk is None:
            return {}
        return await forget_everything(self._host, self._disk.path)

    async def stopped(self) -> bool:
        """Check whether any of its processes is stopped."""
        return await is_any_stopped(self._host, await self._members())

    async def disk_moved(self) -> Mapping[str, float]:
        """Return how many bytes the loop device under its disk has moved, if there is one."""
        if self._disk is None or not self._disk.device:
            return {}
        return await device_moved(self._host, self._disk.device)

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of its standard error, as of the last time that they were read."""
        return self._tail

    async def _read_tail(self) -> None:
        with contextlib.suppress(OSError, TareError):
            self._tail = await tail(self._host, self._log)

    async def stop(self) -> None:
        """Ask the agent to end, then end it, and remove what it left; may be called again."""
        if self._stopping is None:
            self._stopping = begun(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        try:
            if self._process.returncode is None:
                await self._end()
            await self._watcher
            await self.agent.close()
        finally:
            self._listener.cancel()
            await self._read_tail()
            await self._held.aclose()

    async def _end(self) -> None:
        with contextlib.suppress(TareError, OSError, TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self.agent.shutdown()
                await self._process.wait()
        if self._process.returncode is None and self._force is not None:
            await self._force()
        await self._process.end(0.0 if self._force is None else GRACE_S)


async def tail(host: Host, path: Path, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """Return the last lines of a log on the host; empty if it is gone.

    The log may contain any bytes.
    """
    ends = await host.ends(path.parent, path.name, _TAIL_BYTES)
    text = ends.get(path, b"").decode(errors="replace")
    return tuple(line for line in text.splitlines() if line.strip())[-lines:]


@contextlib.asynccontextmanager
async def owned_directory(host: Host, ledger: Ledger, path: Path) -> AsyncIterator[Path]:
    """Create a directory, recorded in the ledger, and remove it at the end.

    Raises:
        MachineFault: The directory cannot be created.
    """
    entry = ledger.record("directory", path=str(path))
    made = await host.run(["mkdir", "-p", "-m", "700", str(path)], timeout_s=30)
    if not made.ok:
        ledger.done(entry)
        raise MachineFault(made.words(), "check the disk's free space")
    try:
        yield path
    finally:
        await host.remove(path)
        ledger.done(entry)


def temporary_folder(host: Host) -> Path:
    """Return the folder in which a host keeps files that last no longer than a run."""
    return Path(tempfile.gettempdir() if host.local else "/tmp")


async def kernel_release(host: Host) -> str:
    """Return the version of the host's kernel; raises OSError if it cannot be read."""
    return (await host.read("/proc/sys/kernel/osrelease")).decode().strip()


async def children_of(host: Host, pid: int) -> tuple[int, ...]:
    """Return the ids of a process's children; raises OSError once the process has ended."""
    listed = await host.read(f"/proc/{pid}/task/{pid}/children")
    return tuple(int(child) for child in listed.split())


async def is_any_stopped(host: Host, pids: Iterable[int]) -> bool:
    """Check whether a signal or a tracer stopped a process, or its control group is frozen.

    Source: field 3 of ``/proc/PID/stat``, proc(5). Processes that have ended are ignored. If the
    tracer is one of the processes themselves, the machine counts as running: gVisor's kernel stops
    the processes that it runs at each system call.
    """
    pids, groups = tuple(pids), set[str]()
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            state = stat_fields(await host.read(f"/proc/{pid}/stat"))[0]
            if state == b"T" or (state == b"t" and await _tracer_of(host, pid) not in pids):
                return True
            groups |= freezers(await host.read(f"/proc/{pid}/cgroup"))
    for group in groups:
        with contextlib.suppress(OSError):
            if _FROZEN.search(await host.read(group)):
                return True
    return False


async def _tracer_of(host: Host, pid: int) -> int:
    """Return the id of the process whose thread traces ``pid``; 0: none does."""
    traced = _TRACER.search(await host.read(f"/proc/{pid}/status"))
    if traced is None or traced[1] == b"0":
        return 0
    found = _PROCESS.search(await host.read(f"/proc/{int(traced[1])}/status"))
    return int(found[1]) if found else 0


def freezers(listed: bytes) -> set[str]:
    """Return the files that show whether a process's control groups are frozen.

    Args:
        listed: The process's ``/proc/PID/cgroup``, cgroups(7). In version 2 the file is
            ``cgroup.events``, in version 1 the freezer's state. Both include the groups above.
    """
    found = set()
    for line in listed.decode(errors="replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." in PurePosixPath(path).parts:
            continue
        if number == "0" and path not in ("", "/"):
            found.add(f"{CGROUPS}{path}/cgroup.events")
        elif "freezer" in controllers.split(",") and path not in ("", "/"):
            found.add(f"{CGROUPS}/freezer{path}/freezer.state")
    return found
