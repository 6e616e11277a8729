"""A guest in a hypervisor process of its own on a Linux host, such as QEMU or Firecracker."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault, TareError
from tare.hosts import OwnedProcess, start_owned
from tare.hosts.shielded import begun
from tare.hosts.trace.threads import run_delay, threads_of
from tare.platforms.contract import Context, Machine
from tare.platforms.guest_hello import first_hello, last_line
from tare.platforms.linux.backed_disk import forget_backed
from tare.platforms.linux.console import Console
from tare.platforms.linux.oom import kills_so_far, reason_for_kill
from tare.platforms.linux.process_cost import vcpu_cost
from tare.platforms.linux.process_machine import is_any_stopped

if TYPE_CHECKING:
    from tare.agent.client import AgentClient, Hello
    from tare.platforms.linux.disk import OwnDisk

GONE_S = 2.0
"""How long to wait for the last output of a process that ended, in seconds."""
_PANIC_S = 1.0
_ERROR_LINES = 3


class VmmMachine(Machine):
    """A guest in a hypervisor process: watches for its end, counts its cost and removes it.

    Args:
        context: The host on which it runs, and Tare's state there.
        name: The machine's name.
    """

    product: str = ""
    """The hypervisor's name, for messages."""

    def __init__(self, context: Context, name: str) -> None:
        self.name = name
        self.host = context.host
        self.agent: AgentClient
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        self.applied: Mapping[str, Any] = {}
        self.held = contextlib.AsyncExitStack()
        """Releases the machine's folders, disk and control group after the hypervisor has ended."""
        self.disk: OwnDisk | None = None
        self._ledger = context.ledger
        self._console = Console()
        self._process: OwnedProcess | None = None
        self._log: Path
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self._threads: tuple[int, ...] = ()
        self._kills_before: int | None = None
        self._opened = False
        """Whether the connection to the agent has been opened."""
        self._answered = False
        self._stopping = False
        self._stop: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int:
        """The hypervisor's process id on its host."""
        assert self._process is not None
        return self._process.pid

    async def _start(self, argv: Sequence[str], log: Path, cpus: Sequence[int]) -> OwnedProcess:
        """Start the hypervisor's process, and watch for its end.

        Args:
            argv: Its command line.
            log: The file for its standard error.
            cpus: The CPUs that it and its later threads start on; empty: any.
        """
        self._log = log
        self._kills_before = await kills_so_far(self.host)
        self._process = await start_owned(self.host, self._ledger, argv, log=log, cpus=cpus or None)
        self._watch = asyncio.create_task(self._await_end())
        return self._process

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello.

        Raises:
            MachineFault: The hypervisor or the guest ended, or the guest did not answer in time.
        """
        hello = await first_hello(self, timeout_s=timeout_s, gone_s=GONE_S)
        self._answered = True
        return hello

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in order."""
        return self._threads

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the vCPUs' threads, on which everything in the guest runs."""
        return self._threads

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have used; ended ones count as 0."""
        return (await run_delay(self.host, threads))[0]

    async def threads(self) -> dict[int, str]:
        """Return the names of the hypervisor's threads by id."""
        return await threads_of(self.host, [self.pid])

    async def host_cost(self) -> dict[str, float]:
        """Return the hypervisor's costs so far; raises MachineFault once it has ended.

        Returns:
            The result of :func:`tare.platforms.linux.process_cost.vcpu_cost`.
        """
        try:
            return await vcpu_cost(self.host, self.pid, self._threads)
        except (OSError, IndexError) as error:
            tail = self.console_tail()
            raise MachineFault(f"{self.name} has ended", console_tail=tail) from error

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the host drop its cache of the machine's disk; see ``tare help disk``."""
        return {} if self.disk is None else await forget_backed(self.host, self.disk)

    async def stopped(self) -> bool:
        """Check whether the hypervisor's process is stopped."""
        return await is_any_stopped(self.host, [self.pid])

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return self._console.tail()

    async def stop(self) -> None:
        """End the hypervisor and remove what it left.

        The guest is not asked to power off. That would only take time, because its disk is removed.
        """
        if self._stop is None:
            # Shielded: a stop that has begun continues when its caller is cancelled.
            self._stop = begun(self._end_and_remove())
        await asyncio.shield(self._stop)

    async def _end_and_remove(self) -> None:
        self._stopping = True
        try:
            await self._end()
            if self._watch is not None:
                await self._watch
            await self._hang_up()
        finally:
            for task in self._tasks:
                task.cancel()
            await self._give_back()

    async def _end(self) -> None:
        """End the hypervisor's process, if it still runs."""
        if self._process is not None and self._process.returncode is None:
            await self._process.kill()

    async def _hang_up(self) -> None:
        """Close the connections to a hypervisor that has ended, and to its agent."""
        if self._opened:
            with contextlib.suppress(TareError, OSError):
                await self.agent.close()

    async def _give_back(self) -> None:
        """Release the resources that the machine held on its host."""
        await self.held.aclose()

    async def _await_end(self) -> None:
        assert self._process is not None
        try:
            code = await self._process.wait()
        except MachineFault as lost:
            self._fail(lost.message, transient=lost.transient)
            return
        if self._tasks:
            # The process's last output is still on its way through the stream.
            await asyncio.wait(self._tasks[:1], timeout=GONE_S)
        if code == -signal.SIGKILL:
            reason = await reason_for_kill(self.host, self.pid, self.product, self._kills_before)
            if reason:
                # The memory may be free again at the next attempt.
                self._fail(reason, transient=True)
                return
        # A guest that ended before its hello may boot at the next attempt (`tare help lab`), and so
        # may one whose hypervisor got a signal. One that refuses its options refuses them again.
        self._fail(await self._why(code), transient=code <= 0 and not self._answered)

    async def _await_panic(self) -> None:
        """End the machine if its kernel panicked and the hypervisor does not end by itself."""
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
        """Return why the process ended with an exit code; a negative code is a signal."""
        if self._console.panic:
            return f"the guest's kernel panicked: {self._console.panic}"
        if code < 0:
            known = {number.value: number.name for number in signal.Signals}
            return f"{self.product} was killed by {known.get(-code, f'signal {-code}')}"
        if code:
            words = await self._errors() or "it did not report a reason"
            return f"{self.product} ended with code {code}: {words}"
        if killed := self._console.killed:
            return f"the guest ran out of memory, and its kernel killed '{killed}': give it more"
        return self._ended_by_itself()

    @abstractmethod
    def _ended_by_itself(self) -> str:
        """Return the reason to report if the hypervisor ended without an error."""

    async def _errors(self) -> str:
        """Return the last lines of the hypervisor's log; empty if there are none."""
        with contextlib.suppress(OSError):
            lines = (await self.host.read(self._log)).decode(errors="replace")
            return "; ".join(map(self._error, lines.strip().splitlines()[-_ERROR_LINES:]))
        return ""

    def _error(self, line: str) -> str:
        """Return a line of the log in the form for messages."""
        return line
