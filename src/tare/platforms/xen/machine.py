"""One running Xen domain."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.errors import MachineFault, TareError
from tare.hosts import OwnedProcess, start_owned
from tare.hosts.shielded import begun
from tare.platforms.contract import (
    Context,
    HypervisorAccounting,
    HypervisorVcpus,
    Machine,
    MachineSpec,
    created,
)
from tare.platforms.guest_hello import first_hello, last_line
from tare.platforms.linux.console import Console
from tare.platforms.linux.disk import forget_file
from tare.platforms.linux.process_machine import owned_directory
from tare.platforms.xen import output as xen_output
from tare.platforms.xen import toolstack as xen
from tare.platforms.xen.cpu_accounting import cpu_accounting, cpus_of, device_threads, dom0s_cpus
from tare.platforms.xen.disk import GuestDisks, guest_disks
from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.scheduling import apply_and_verify_scheduling, held_settings
from tare.platforms.xen.trace.schedule import vcpu_id

if TYPE_CHECKING:
    from tare.agent.client import Hello

ATTENTION = b"\x0f"
"""On its own console Linux takes the key after this byte for a command to itself (SysRq), such as
to crash or to reboot. Sent twice, it means the byte itself (drivers/tty/hvc/hvc_console.c,
__hvc_poll)."""


class ConsoleChannel(StreamChannel):
    """A channel to an agent over the console of its kernel."""

    async def send(self, data: bytes) -> None:
        """Send all of ``data`` in a form that the kernel passes on unchanged.

        Raises:
            OSError: The other end is gone.
        """
        await super().send(data.replace(ATTENTION, 2 * ATTENTION))


_BUILT_S = 120.0
_CONSOLE_S = 30.0
_LOOK_S = 0.1
_GONE_S = 3.0
_PANIC_S = 2.0
_END_S = 5.0
_XL_LINES = 60
# xl reports its actions only on its error stream, which otherwise goes to a file.
_BOTH = 'exec "$@" 2>&1'
_ENDED = {
    0: "the guest powered itself off",
    1: "the guest restarted itself",
    2: "the guest suspended itself",
    3: "the guest crashed",
    4: "the guest's watchdog ended it",
    5: "the guest restarted itself softly",
}


class XenMachine(Machine):
    """A guest of Xen; made by :func:`tare.platforms.xen.platform.launch`."""

    def __init__(self, context: Context, options: XenOptions, spec: MachineSpec) -> None:
        self.name = spec.name
        self.agent: AgentClient
        self._opened = False
        """Whether the connection to the agent has been opened."""
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        self.applied: Mapping[str, Any] = {}
        self.uuid = str(uuid.uuid4())
        self.id = 0
        """The domain's number; 0 until it is built."""
        self._cpus = 0
        """The computer's number of CPUs, as Xen reports it; 0 until it was asked."""
        self._host_on: tuple[int, ...] = ()
        """The CPUs to which dom0 is restricted while machines run; empty until Xen was asked."""
        self._options = options
        self._spec = spec
        self._context = context
        self._host = context.host
        self._ledger = context.ledger
        self._held = contextlib.AsyncExitStack()
        self._console = Console()
        self._xl_lines: list[str] = []
        self._process: OwnedProcess | None = None
        self._built: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watch: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._streams: list[asyncio.StreamWriter] = []
        self._disks = GuestDisks()
        self._answered = False
        self._stopping = False
        self._stop: asyncio.Future[None] | None = None

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello.

        Raises:
            MachineFault: The domain ended, or did not answer in time.
        """
        hello = await first_hello(self, timeout_s=timeout_s, gone_s=_GONE_S)
        self._answered = True
        return hello

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that the domain has used, to 0.1 s."""
        return (await self.host_cost()).get("vcpu_cpu_s", 0.0)

    async def host_cost(self) -> dict[str, float]:
        """Return the costs of the domain so far, as ``xl list`` reports them.

        Returns:
            ``cpu_s`` and ``vcpu_cpu_s``: CPU seconds of its vCPUs, to 0.1 s; ``dom0_cpu_s``: those
            of dom0, which serves the devices and consoles of all domains ("unpinned CPU" of seed
            004); ``rss_bytes``: its memory.

        Raises:
            MachineFault: The domain has ended, or Xen's toolstack does not answer.
        """
        known = {domain.id: domain for domain in await xen.all_domains(self._host)}
        own = known.get(self.id)
        if not self.id or own is None:
            raise MachineFault(f"{self.name} has ended", console_tail=self.console_tail())
        cost = {
            "cpu_s": own.cpu_s,
            "rss_bytes": float(own.memory),
            "vcpu_cpu_s": own.cpu_s,
        }
        if 0 in known:
            cost["dom0_cpu_s"] = known[0].cpu_s
        return cost

    async def below(self) -> HypervisorAccounting:
        """Return the query with which dom0 reads each domain's CPU time: ``xl list``, to 0.1 s.

        Raises:
            MachineFault: Xen's toolstack does not answer.
        """
        cpus = self._cpus = self._cpus or await cpus_of(self._host)
        self._host_on = self._host_on or await dom0s_cpus(self._host, cpus)
        own, batch = self.id, self.name.removesuffix(self._spec.role)
        return HypervisorAccounting(
            argv=xen.LIST,
            read=lambda listed: cpu_accounting(xen_output.domains(listed), own, batch, cpus),
            threads=await device_threads(self._host, own),
            host_on=self._host_on,
        )

    def traced_below(self) -> HypervisorVcpus | None:
        """Return its vCPUs, which are not threads in dom0."""
        if not self.id:
            return None
        spec = self._spec
        return HypervisorVcpus(
            host=self._host,
            ledger=self._ledger,
            agent=self._context.host_agent,
            folder=spec.workdir,
            ids=tuple(vcpu_id(self.id, number) for number in range(spec.shape.vcpus)),
            cpus=tuple(sorted(set(spec.cpus))),
            raw_counter=self._options.type == "pv",
            counted=self._context.counted,
            limit=self._options.limit_of(spec.role),
        )

    async def stopped(self) -> bool:
        """Check whether the domain is paused, as by ``xl pause``.

        Raises:
            MachineFault: Xen's toolstack does not answer.
        """
        known = {domain.id: domain for domain in await xen.all_domains(self._host)}
        return self.id in known and known[self.id].paused

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the host drop its cache of the machine's disk; see ``tare help disk``."""
        file = self._disks.file
        return {} if file is None else await forget_file(self._host, file)

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return self._console.tail()

    async def stop(self) -> None:
        """Destroy the domain, and remove what it left.

        The guest is not asked to power off. Its Linux would wait 5 s for devices that are no longer
        served (xenbus_dev_shutdown), and it has nothing to save.

        Raises:
            MachineFault: The domain survives its destruction, and stays in the ledger.
        """
        if self._stop is None:
            # Shielded: a stop that has begun continues when its caller is cancelled.
            self._stop = begun(self._end_and_remove())
        await asyncio.shield(self._stop)

    # Methods for launch().

    async def run(self, guest_file: Callable[[str, Sequence[str]], str]) -> None:
        """Build the domain paused, connect to it, verify it, and let it run.

        Args:
            guest_file: Returns the text of the guest file for a domain's UUID and disks.

        Raises:
            MachineFault: Xen refuses, with its message.
        """
        await self._held.enter_async_context(
            owned_directory(self._host, self._ledger, self._spec.workdir)
        )
        settings = held_settings(self._host, self._ledger, self._options)
        held = await self._held.enter_async_context(settings)
        self._disks = await self._held.enter_async_context(
            guest_disks(self._context, self._options, self._spec)
        )
        file = self._spec.workdir / "guest.cfg"
        await self._host.write(file, guest_file(self.uuid, self._disks.entries).encode())
        domain = xen.DomainResource(self._host, self.name, self.uuid, partial(self._build, file))
        await self._held.enter_async_context(created(self._ledger, domain))
        await self._join_network()
        await self._listen()
        self.applied = await apply_and_verify_scheduling(
            self._host, self._options, self._spec, self.id, held
        )
        if self._spec.network is not None:
            self.applied = {**self.applied, "nic": {"model": self._options.card}}
        if self._disks.record:
            self.applied = {**self.applied, "disk": dict(self._disks.record)}
        counted_by = self._context.host_agent if self._context.counted else None
        await xen.unpause(self._host, self.id, counted_by=counted_by)

    async def _build(self, guest_file: Path) -> None:
        # In the foreground: xl ends when the domain does, and reports why. Paused: the console is
        # opened, and everything verified, before the first instruction.
        argv = ["sh", "-c", _BOTH, "sh", xen.XL, "create", "-F", "-p", str(guest_file)]
        self._process = await start_owned(self._host, self._ledger, argv)
        self._watch = asyncio.create_task(self._follow(self._process))
        either: set[asyncio.Future[Any]] = {self._built, self.died}
        await asyncio.wait(either, timeout=_BUILT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._built.done():
            self.id = self._built.result()
            return
        if self.died.done():
            raise self.died.result()
        raise MachineFault(
            f"{self.name}: xl did not build the domain within {_BUILT_S:g} s{self._last_xl_line()}",
            xen.START_XENSTORED,
        )

    async def _join_network(self) -> None:
        if self._spec.network is None:
            return
        # Xen's names of its own card and of the one that QEMU emulates next to it.
        own, emulated = f"vif{self.id}.0", f"vif{self.id}.0-emu"
        used = own if self._options.card == "netfront" else emulated
        for name in (own, emulated):
            if await self._host.exists(f"/sys/class/net/{name}"):
                await self._spec.network.join(name, self.name if name == used else "")

    async def _listen(self) -> None:
        path = f"/local/domain/{self.id}"
        agent = await self._open(f"{path}/console/tty")
        self._streams.append(agent[1])
        shared = self._options.type != "hvm"
        channel = ConsoleChannel(*agent) if shared else StreamChannel(*agent)
        self.agent = AgentClient(channel, name=self.name, on_text=self._console.feed)
        self._opened = True
        self._tasks.append(asyncio.create_task(self._await_panic()))
        if self._options.type == "hvm":
            serial = await self._open(f"{path}/serial/0/tty")
            self._streams.append(serial[1])
            self._tasks.append(asyncio.create_task(self._console.follow(serial[0])))

    async def _open(self, key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        deadline = time.monotonic() + _CONSOLE_S
        while True:
            # The console's daemon takes some time, and does not announce itself.
            answer = await self._host.run(["xenstore-read", key], timeout_s=xen.COMMAND_S)
            path = answer.stdout.decode(errors="replace").strip()
            if answer.ok and path.startswith("/"):
                break
            if self.died.done():
                raise self.died.result()
            if time.monotonic() > deadline:
                raise MachineFault(
                    f"{self.name}: its console has no server: xenstore has no {key}",
                    "start xenconsoled, for example: systemctl start xenconsoled",
                )
            await asyncio.sleep(_LOOK_S)
        try:
            return await self._host.open_terminal(path)
        except OSError as error:
            raise MachineFault(
                f"{self.name}: its console {path} cannot be opened: {error.strerror or error}"
            ) from error

    async def _follow(self, process: OwnedProcess) -> None:
        """Read xl's output until it ends, and report the domain's end."""
        try:
            while line := await process.stdout.readline():
                self._hear(line.decode(errors="replace").rstrip())
            code = await process.wait()
        except (MachineFault, OSError, ValueError) as lost:
            self._fail(f"the host lost sight of it: {lost}")
            return
        # If the guest ended before its hello, another boot may well succeed (`tare help lab`).
        fell_at_boot = self._built.done() and not self._answered
        self._fail(await self._why(code), transient=fell_at_boot)

    def _hear(self, line: str) -> None:
        self._xl_lines.append(line)
        del self._xl_lines[:-_XL_LINES]
        built = xen_output.created_id(line)
        if built is not None and not self._built.done():
            self._built.set_result(built)

    async def _await_panic(self) -> None:
        """End the machine if its kernel panicked and then hangs instead of crashing."""
        await self._console.panicked.wait()
        await asyncio.sleep(_PANIC_S)
        panic = f"the guest's kernel panicked: {self._console.panic}"
        self._fail(panic, transient=not self._answered)

    def _fail(self, reason: str, *, transient: bool = False) -> None:
        if self._stopping or self.died.done():
            return
        console = self.console_tail()
        tail = (*console, *(f"xl: {line}" for line in self._xl_lines[-5:]))
        fault = MachineFault(
            f"{self.name}: {reason}{last_line(console)}", console_tail=tail, transient=transient
        )
        self.died.set_result(fault)
        if self._opened:
            self.agent.fail(fault)

    async def _why(self, code: int) -> str:
        answer = "\n".join(self._xl_lines)
        if not self._built.done():
            return f"Xen did not build the domain: {await self._refusal(answer, code)}"
        # The console's last output is still on its way.
        await asyncio.sleep(_LOOK_S)
        if self._console.panic:
            return f"the guest's kernel panicked: {self._console.panic}"
        ended = xen_output.shutdown_code(answer)
        if ended is not None:
            return _ENDED.get(ended, f"the guest ended with Xen's reason code {ended}")
        if "has been destroyed" in answer:
            return "the domain was destroyed from outside"
        if code < 0:
            known = {number.value: number.name for number in signal.Signals}
            return f"xl, which watched the domain, was killed by {known.get(-code, -code)}"
        return f"xl, which watched the domain, ended with code {code}{self._last_xl_line()}"

    async def _refusal(self, answer: str, code: int) -> str:
        words = xen_output.reason(answer) or f"xl ended with code {code} and gave no reason"
        wanted = self._spec.shape.memory >> 20
        with contextlib.suppress(TareError, ValueError):
            facts = xen_output.info(await xen.asked(self._host, "info"))
            free = int(facts["free_memory"])
            if free < wanted:
                words += (
                    f" (the host has {free} of {facts.get('total_memory', '?')} MiB free, and the "
                    f"machine wants {wanted}; give it less, or dom0 by dom0_mem on Xen's command "
                    "line)"
                )
        return words

    def _last_xl_line(self) -> str:
        return f"; xl reported: {self._xl_lines[-1]}" if self._xl_lines else ""

    async def _end_and_remove(self) -> None:
        self._stopping = True
        try:
            # Newest first: the domain, then the settings, then the folder.
            await self._held.aclose()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._process is not None:
            with contextlib.suppress(TareError, OSError):
                await self._process.end(_END_S)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._opened:
            with contextlib.suppress(TareError, OSError):
                await self.agent.close()
        for stream in self._streams:
            stream.close()
